"""Without an annex, and without all of them, the product imports and type-checks, and batch regions run as before.

`test_layering` holds that no module of the core imports an annex. Here a copy of the package has no such room, nor the
files of other rooms that belong to it. `testing` is left out: it is there to test the annexes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import airflow_recovery
from airflow_recovery.rooms import ANNEX_ROOMS, ELSEWHERE, ROOMS

TESTS = Path(__file__).parents[1]
PRODUCT = sorted(ROOMS.keys() - {*ANNEX_ROOMS, "testing", "__init__", "__main__"})
BATCH_TESTS = (
    "planning/test_evaluation.py",
    "planning/test_determinism.py",
    "planning/test_plan.py",
    "planning/test_plan_text.py",
    "planning/test_restart_strategy.py",
    "attempt/test_region_task.py",
    "attempt/test_final_check.py",
    "attempt/test_clear_producers.py",
    "attempt/test_restarts.py",
    "attempt/test_commit.py",
    "attempt/test_publish.py",
    "attempt/test_recompute.py",
    "attempt/test_full_restart.py",
    "attempt/test_early_cutoff.py",
)
WITHOUT_REAL_PARTS = "not spark and not airflow and not slow"
IMPORT_ALL = """
import importlib, pkgutil, sys
for room in sys.argv[1:]:
    module = importlib.import_module(f"airflow_recovery.{room}")
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + "."):
        if found.name != "airflow_recovery.operators.dataproc":  # its provider is not one of the tests'
            importlib.import_module(found.name)
"""


@pytest.fixture(params=[*ANNEX_ROOMS, "all"])
def without(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the package, but for the room and the files of one annex, or of all of them."""
    package = tmp_path / "airflow_recovery"
    shutil.copytree(Path(airflow_recovery.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for annex in ANNEX_ROOMS if request.param == "all" else [request.param]:
        shutil.rmtree(package / annex)
        for module in (module for module, owner in ELSEWHERE.items() if owner == annex):
            (package / module.replace(".", "/")).with_suffix(".py").unlink()
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # Hypothesis knows CI, and sets no deadline there.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def gone(folder: Path) -> str:
    return next(annex for annex in ANNEX_ROOMS if not (folder / "airflow_recovery" / annex).exists())


def import_the_annex(folder: Path) -> None:
    (folder / "airflow_recovery" / "planning" / "knows.py").write_text(
        f"from airflow_recovery.{gone(folder)} import mode\n"
    )


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def type_check(folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    shutil.copy(TESTS.parent / "pyproject.toml", folder)
    shutil.rmtree(folder / "airflow_recovery" / "testing")
    return run(folder, "-m", "mypy", "--cache-dir", str(cache), "airflow_recovery")


@pytest.mark.slow
def test_every_module_imports_without_the_annex(without: Path) -> None:
    answer = run(without, "-c", IMPORT_ALL, *PRODUCT)
    assert answer.returncode == 0, answer.stderr


def test_control_an_import_of_the_annex_would_be_found(without: Path) -> None:
    import_the_annex(without)
    answer = run(without, "-c", IMPORT_ALL, "planning")
    assert f"No module named 'airflow_recovery.{gone(without)}'" in answer.stderr


@pytest.mark.drill
def test_the_types_are_right_without_the_annex(without: Path, mypy_cache: Path) -> None:
    answer = type_check(without, mypy_cache)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.drill
def test_control_an_import_of_the_annex_for_types_alone_would_be_found(without: Path, mypy_cache: Path) -> None:
    import_the_annex(without)
    answer = type_check(without, mypy_cache)
    assert f'"airflow_recovery.{gone(without)}"' in answer.stdout


def test_batch_regions_run_without_the_annex(without: Path) -> None:
    """The tests are copied as well: they must find the package in the folder, and no other one."""
    # Their conftest would install the whole package.
    ignored = shutil.ignore_patterns("__pycache__", "integration", "tab", "conftest.py")
    shutil.copytree(TESTS, without / "tests", ignore=ignored)
    shutil.copy(TESTS.parent / "pyproject.toml", without)
    tests = [f"tests/{name}" for name in BATCH_TESTS]
    answer = run(without, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", WITHOUT_REAL_PARTS, *tests)
    assert answer.returncode == 0, answer.stdout[-5000:] + answer.stderr[-2000:]
    passed = re.search(r"(\d+) passed", answer.stdout)
    assert passed is not None, answer.stdout
    assert int(passed[1]) > 300
