from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from our_imports import imports_of

from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.rooms import MODES, reachable


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"airflow-recovery-{os.getuid()}"


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "code"
    for name in ("shippedjobs/__init__.py", "shippedjobs/deep/steps.py", "shippedjobs/data/airports.csv", "lonely.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    (folder / "shippedjobs/__pycache__").mkdir()
    (folder / "shippedjobs/__pycache__/x.cpython-311.pyc").write_bytes(b"")
    (folder / "shippedjobs/.git").mkdir()
    (folder / "shippedjobs/.git/config").write_text("secret")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def names(archive: Path) -> set[str]:
    return set(zipfile.ZipFile(archive).namelist())


def test_holds_our_airflow_free_packages_and_the_jobs_package(code: Path) -> None:
    found = names(build_archive("shippedjobs.deep.steps:job"))
    jobs = {name for name in found if not name.startswith("airflow_recovery/")}
    assert jobs == {"shippedjobs/__init__.py", "shippedjobs/deep/steps.py", "shippedjobs/data/airports.csv"}
    assert {"airflow_recovery/__init__.py", "airflow_recovery/errors.py", "airflow_recovery/driver/main.py"} <= found
    assert "airflow_recovery/sinks/declaration.py" in found
    assert not {name.split("/")[1] for name in found} & {"operators", "sensors", "hooks", "plugins", "testing"}


def test_single_module_and_extra_packages(code: Path) -> None:
    found = names(build_archive("lonely:job", ["shippedjobs"]))
    assert {"lonely.py", "shippedjobs/deep/steps.py"} <= found


def test_named_by_content_and_reused(code: Path, own_cache: Path) -> None:
    first = build_archive("shippedjobs.deep.steps:job")
    made = first.stat().st_ino
    os.utime(code / "shippedjobs/__init__.py", (1, 1))  # a new checkout: the same content
    assert build_archive("shippedjobs.deep.steps:job") == first
    assert first.stat().st_ino == made

    bytes_before = first.read_bytes()
    first.unlink()
    assert build_archive("shippedjobs.deep.steps:job").read_bytes() == bytes_before

    (code / "shippedjobs/data/airports.csv").write_text("changed")
    assert build_archive("shippedjobs.deep.steps:job") != first
    assert {path.suffix for path in own_cache.iterdir()} == {".zip"}


def test_code_is_taken_from_its_folder_where_an_archive_stands_before_it_on_the_path(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's Connect client puts an archive there: the next region of the process has one made as well."""
    first = build_archive("lonely:job", ["shippedjobs"])
    monkeypatch.syspath_prepend(str(first))
    assert build_archive("lonely:job", ["shippedjobs"]) == first
    (code / "lonely.py").write_text("changed")
    changed = build_archive("lonely:job", ["shippedjobs"])
    assert zipfile.ZipFile(changed).read("lonely.py") == b"changed"


def test_folder_of_somebody_else_is_refused(code: Path, own_cache: Path) -> None:
    own_cache.mkdir(mode=0o777)
    own_cache.chmod(0o777)
    with pytest.raises(ConfigurationError, match="only this user"):
        build_archive("lonely:job")


def test_code_that_is_nowhere_is_refused(code: Path) -> None:
    for job in ("nosuchpackage.jobs:job", "sys:job"):
        with pytest.raises(ConfigurationError, match="package or module in files"):
            build_archive(job)


IMPORT_ALL = """
import importlib, sys
for blocked in ("airflow", "pyspark", "boto3"):
    sys.modules[blocked] = None  # as where they are not installed
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if getattr(error, "name", None) is None or error.name.partition(".")[0] == "airflow_recovery":
            raise
elsewhere = [name for name, each in sys.modules.items()
             if name.startswith("airflow_recovery") and not each.__file__.startswith({archive!r})]
print(elsewhere)
"""


def import_all(archive: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Import every module of ours in the archive, in an interpreter that has nothing else of ours."""
    names = [module_of(name) for name in zip_names(archive)]
    code = IMPORT_ALL.format(
        names=[name for name in names if name.startswith("airflow_recovery")], archive=str(archive)
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
    )


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def zip_names(archive: Path) -> list[str]:
    return sorted(name for name in names(archive) if name.endswith(".py"))


def test_a_driver_imports_all_that_it_has_of_ours_from_the_archive_alone(code: Path, tmp_path: Path) -> None:
    answer = import_all(build_archive("lonely:job"), tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "[]\n"


def test_control_a_room_that_does_not_travel_is_missed(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sinks = reachable("__init__", "driver", *MODES) - {"sinks"}
    monkeypatch.setattr("airflow_recovery.driver.code_archive.reachable", lambda *rooms: without_sinks)
    archive = build_archive("lonely:job")
    answer = import_all(archive, tmp_path)
    assert "No module named 'airflow_recovery.sinks'" in answer.stderr
    assert "airflow_recovery.sinks.declaration" in missing_from(archive)


def missing_from(archive: Path) -> set[str]:
    """What the archive's modules import of ours, at any depth and in functions, and the archive does not hold."""
    held = {module_of(name) for name in zip_names(archive)}
    held |= {each.rpartition(".")[0] for each in held}
    with zipfile.ZipFile(archive) as files:
        imported = {
            candidate
            for name in zip_names(archive)
            for candidate in imports_of(files.read(name).decode(), name.rpartition("/")[0].replace("/", "."))
            if candidate.startswith("airflow_recovery.")
        }
    # `from airflow_recovery.job import files` may mean a module, or a name in one.
    return {candidate for candidate in imported if candidate not in held and candidate.rpartition(".")[0] not in held}


def test_whatever_a_function_in_it_may_import_of_ours_is_in_it(code: Path) -> None:
    assert missing_from(build_archive("lonely:job")) == set()
