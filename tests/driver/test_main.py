"""The application file in real processes without a JVM: what keeps a driver from starting is said once, by name."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from runtime_specs import region_spec, troubled

from airflow_recovery.driver import RegionSpec, driver, main
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.exit_report import read_failure
from airflow_recovery.driver.start_advice import SAYS, keep_output, start_failure
from airflow_recovery.driver.submit import APPLICATION
from airflow_recovery.errors import DriverLost, NotSetUp, UserCodeError
from airflow_recovery.task.region_program import region_failed
from airflow_recovery.testing.patience import HANG_S

OLD = """
import runpy, sys
sys.version_info = (3, 8, 10, "final", 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(spec: RegionSpec, folder: Path, archive: Path, *, before: str = "") -> tuple[int, str]:
    """A driver's Python with nothing but the archive: neither site-packages nor this checkout."""
    path = folder / "spec.json"
    path.write_text(spec.to_json())
    start = ["-c", before, APPLICATION] if before else [APPLICATION]
    done = subprocess.run(
        [sys.executable, "-S", *start, str(path)],
        cwd=folder,
        env={"PYTHONPATH": str(archive)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return done.returncode, done.stdout


def without(archive: Path, folder: Path, left_out: str, **altered: str) -> Path:
    path = folder / "archive.zip"
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(path, "w") as part:
        for name in whole.namelist():
            if not name.startswith(left_out):
                body = whole.read(name)
                for old, new in altered.items():
                    body = body.replace(old.encode(), new.encode()) if name == "airflow_recovery/version.py" else body
                part.writestr(name, body)
    return path


@pytest.fixture
def spec(tmp_path: Path) -> RegionSpec:
    return region_spec(tmp_path, *troubled("none"))


@pytest.fixture
def archive(spec: RegionSpec) -> Path:
    return build_archive(spec.job)


def said(spec: RegionSpec, code: int, output: str) -> NotSetUp:
    """What the task fails with: by the file beside the receipt, by the one in the results, and by the output alone."""
    assert (code, output.count(SAYS)) == (main.NOT_SET_UP, 1), output
    error = RuntimeError(f"Cannot execute: spark-submit. Error code is: {code}.")
    keep_output(error, output.splitlines())
    for seen in (spec, replace(spec, receipt=None)):
        assert read_failure(seen) == start_failure(error)
    failed = region_failed(spec, read_failure(spec), error)
    assert isinstance(failed, NotSetUp)
    return failed


@pytest.mark.slow
def test_fault_122_an_archive_that_lacks_a_package_is_named(spec: RegionSpec, archive: Path, tmp_path: Path) -> None:
    code, output = run(spec, tmp_path, without(archive, tmp_path, "airflow_recovery/journal/"))
    told = str(said(spec, code, output))
    assert "expected the archive of --py-files to hold airflow_recovery.journal" in told
    assert "archive.zip/airflow_recovery" in told
    assert "Use one version of airflow_recovery" in told


@pytest.mark.slow
def test_fault_122_control_a_whole_archive_starts_and_says_what_else_is_missing(
    spec: RegionSpec, archive: Path, tmp_path: Path
) -> None:
    code, output = run(spec, tmp_path, archive)
    assert (code, SAYS in output) == (driver.FAILED, False)
    failed = region_failed(spec, read_failure(spec), RuntimeError("Error code is: 1"))
    assert isinstance(failed, UserCodeError)
    assert "No module named 'pyspark'" in str(failed)
    assert "Install it for the Python that says so" in str(failed)


def test_fault_123_a_python_that_is_too_old_is_named(spec: RegionSpec, archive: Path, tmp_path: Path) -> None:
    code, output = run(spec, tmp_path, archive, before=OLD)
    told = str(said(spec, code, output))
    assert "expected Python 3.10 or later, found Python" in told
    assert "spark.pyspark.python" in told


def test_fault_123_two_versions_of_this_package_are_named(spec: RegionSpec, archive: Path, tmp_path: Path) -> None:
    other = without(archive, tmp_path, "nothing", **{'__version__ = "': '__version__ = "9.'})
    code, output = run(spec, tmp_path, other)
    told = str(said(spec, code, output))
    assert "expected a region spec as this version of airflow_recovery (9." in told
    assert f"expected version 9.{spec.version}, found {spec.version}" in told


def test_fault_122_control_without_what_it_says_it_is_retried_as_a_driver_that_was_lost(spec: RegionSpec) -> None:
    failed = region_failed(spec, None, RuntimeError("Cannot execute: spark-submit. Error code is: 1."))
    assert isinstance(failed, DriverLost)


def test_it_is_read_by_an_old_python() -> None:
    """No syntax and no module that came after Python 3.6."""
    source = Path(APPLICATION).read_text()
    compile(source, APPLICATION, "exec", dont_inherit=True)
    import ast

    assert ast.parse(source, feature_version=(3, 6))
    imported = {node.names[0].name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import)}
    assert imported == {"importlib.util", "json", "os", "platform", "sys", "traceback"}


def test_what_it_leaves_is_what_the_receipts_read(spec: RegionSpec, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    main.report([str(path)], "expected x, found y.")
    failure = read_failure(replace(spec, receipt=None))
    assert failure is not None
    assert (failure.type, failure.message) == ("NotSetUp", "expected x, found y.")
    assert json.loads(Path(f"{spec.receipt}.failure").read_text())["labels"] == []
