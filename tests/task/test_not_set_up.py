"""A driver that can't start fails its task at once, with what to do: whole tries, with a false `spark-submit`."""

from __future__ import annotations

import os
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from job_tasks import GROUP, job_dag
from test_drop_in_application import dag_of
from tries import journal_in, run_try

from airflow_recovery.errors import DriverLost, Failure, NotSetUp, RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.task import drop_in, region_program, region_submission

STARTS_PYTHON = f"""#!{sys.executable}
import subprocess, sys
archive = sys.argv[sys.argv.index("--py-files") + 1]
application = next(n for n, each in enumerate(sys.argv) if each.endswith(".py"))
sys.exit(subprocess.call([sys.executable, "-S", *sys.argv[application:]], env={{"PYTHONPATH": archive.split(",")[-1]}}))
"""
NO_PYTHON = 'Exception in thread "main" java.io.IOException: Cannot run program "python9": error=2, No such file'
NO_CLASS = "Error: Failed to load class com.example.Main."
NO_ANSWER = "java.net.ConnectException: Connection refused"


def says(line: str) -> str:
    return f"#!{sys.executable}\nimport sys\nprint({line!r})\nsys.exit(1)\n"


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program, not yet written."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    return folder / "spark-submit"


def write(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def region() -> Any:
    return next(task for task in job_dag("dagjobs.shapes:diamond").tasks if task.task_id == "g.aside")


def at_once(task: Any) -> str:
    """The reason for which the task fails without a retry."""
    with pytest.raises(AirflowFailException) as caught:
        run_try(task)
    assert isinstance(caught.value.__cause__, NotSetUp)
    return str(caught.value)


def failure_in(folder: Path, group: str, name: str) -> Failure:
    outcome = journal_in(folder, group).read_outcome(name, 1)
    assert outcome is not None
    assert outcome.failure is not None
    return outcome.failure


def test_fault_122_an_incomplete_archive_fails_the_task_at_once(
    recovery: Path, spark_submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the task's process through a driver's real Python, which has nothing but that archive."""
    write(spark_submit, STARTS_PYTHON)
    build, broken = region_submission.build_archive, tmp_path / "broken.zip"

    def incomplete(*given: Any) -> Path:
        with zipfile.ZipFile(build(*given)) as whole, zipfile.ZipFile(broken, "w") as part:
            for name in whole.namelist():
                if not name.startswith("airflow_recovery/journal/"):
                    part.writestr(name, whole.read(name))
        return broken

    monkeypatch.setattr(region_submission, "build_archive", incomplete)
    assert "expected the archive of --py-files to hold airflow_recovery.journal" in at_once(region())
    failure = failure_in(recovery, GROUP, "aside")
    assert dict(failure.labels) == {"class": "not set up", "recoverable": "no"}
    assert not list((recovery / "results").rglob("_failure.json"))


def test_fault_123_a_cluster_without_that_python_fails_the_task_at_once(recovery: Path, spark_submit: Path) -> None:
    write(spark_submit, says(NO_PYTHON))
    told = at_once(region())
    assert 'Cannot run program "python9"' in told
    assert "PYSPARK_PYTHON" in told
    assert dict(failure_in(recovery, GROUP, "aside").labels)["recoverable"] == "no"


def test_fault_124_a_drop_in_whose_class_is_in_no_jar_fails_at_once(recovery: Path, spark_submit: Path) -> None:
    write(spark_submit, says(NO_CLASS))
    told = at_once(dag_of({"task_id": "t"})["t"])
    assert "t@1 could not start: Error: Failed to load class com.example.Main. A jar is missing" in told
    assert dict(failure_in(recovery, OPERATORS_GROUP, "t").labels)["recoverable"] == "no"


def test_fault_124_control_what_may_pass_by_itself_is_retried(recovery: Path, spark_submit: Path) -> None:
    write(spark_submit, says(NO_ANSWER))
    with pytest.raises(DriverLost, match="said nothing"):
        run_try(region())
    with pytest.raises(RegionFailed, match="the application failed") as caught:
        run_try(dag_of({"task_id": "t"})["t"])
    assert not isinstance(caught.value, NotSetUp)


def test_fault_123_control_where_nobody_reads_the_output_it_is_retried(
    recovery: Path, spark_submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (region_program, drop_in):
        monkeypatch.setattr(each, "start_failure", lambda error: None)
    monkeypatch.setattr("airflow_recovery.driver.failure_class.start_advice", lambda failure: None)
    monkeypatch.setattr(region_program, "start_advice", lambda failure: None)
    write(spark_submit, says(NO_PYTHON))
    with pytest.raises(DriverLost, match="said nothing"):
        run_try(region())
    write(spark_submit, says(NO_CLASS))
    with pytest.raises(RegionFailed, match="the application failed"):
        run_try(dag_of({"task_id": "t"})["t"])
