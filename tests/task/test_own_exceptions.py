"""The exception with which a user's own application has ended is the failure, not what Spark logs after it."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from test_drop_in_application import dag_of
from test_not_set_up import failure_in, says, spark_submit, write  # noqa: F401 - a fixture
from tries import run_try

from airflow_recovery.driver.failure_class import CLASS_LABEL, label_of
from airflow_recovery.errors import DriverLost, RegionFailed, kind_of
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators.spark_submit import RecoverableSparkSubmitOperator
from airflow_recovery.task import drop_in

INFO = """26/11/28 07:00:00 INFO SparkContext: Invoking stop() from shutdown hook
26/11/28 07:00:00 INFO SparkContext: Successfully stopped SparkContext
26/11/28 07:00:00 INFO ShutdownHookManager: Shutdown hook called"""
ENDED = f"""Traceback (most recent call last):
  File "clean.py", line 7, in <module>
    raise BadRows("3 rows have no carrier")
__main__.BadRows: 3 rows have no carrier
{INFO}"""
APPLICATION = """
from pyspark.sql import SparkSession

class BadRows(Exception): ...

SparkSession.builder.getOrCreate().range(3).count()
try:
    {}["carrier"]
except KeyError as error:
    raise BadRows("3 rows have no carrier") from error
"""


def test_fault_215_an_applications_own_exception_is_the_failure(recovery: Path, spark_submit: Path) -> None:  # noqa: F811
    write(spark_submit, says(ENDED))
    with pytest.raises(RegionFailed, match=r"^t@1: the application failed: BadRows: 3 rows have no carrier$") as caught:
        run_try(dag_of({"task_id": "t"})["t"])
    assert not isinstance(caught.value, DriverLost)
    failure = failure_in(recovery, OPERATORS_GROUP, "t")
    assert (failure.type, failure.message) == ("BadRows", "3 rows have no carrier")
    assert label_of(failure, CLASS_LABEL) == "unknown"


def test_fault_215_control_where_the_output_is_not_read_the_driver_is_said_to_be_lost(
    recovery: Path,
    spark_submit: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drop_in, "raised_in", lambda output: None)
    monkeypatch.setattr(drop_in, "exit_first", str)
    write(spark_submit, says(ENDED))
    with pytest.raises(DriverLost, match="Cannot execute: "):
        run_try(dag_of({"task_id": "t"})["t"])


def test_an_application_that_was_killed_is_lost_whatever_it_has_handled_before(
    recovery: Path,
    spark_submit: Path,  # noqa: F811
) -> None:
    text = (
        f"#!{sys.executable}\nimport os, signal\nprint({ENDED!r}, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    write(spark_submit, text)
    with pytest.raises(DriverLost, match="Error code is: -9"):
        run_try(dag_of({"task_id": "t"})["t"])


LONG = "x" * 3_000


def ended_with(spark_submit: Path, end: str) -> str:  # noqa: F811
    """What a try fails with whose arguments are long, and whose program ends so behind lines of Spark's log."""
    write(spark_submit, f"#!{sys.executable}\nimport os, signal, sys\nprint({INFO!r}, flush=True)\n{end}\n")
    with pytest.raises(RegionFailed) as caught:
        run_try(dag_of({"task_id": "t", "say": ["--say", LONG]})["t"])
    return str(caught.value)


def test_fault_336_the_exit_code_stands_first_and_sparks_log_does_not(
    recovery: Path,
    spark_submit: Path,  # noqa: F811
) -> None:
    killed = ended_with(spark_submit, "os.kill(os.getpid(), signal.SIGKILL)")
    told = "Error code is: -9. It was killed by SIGKILL.\nCannot execute: spark-submit"
    assert killed.startswith(f"t@1: the application failed: {told}")
    assert "ShutdownHookManager" not in killed
    failure = failure_in(recovery, OPERATORS_GROUP, "t")
    assert failure.message.startswith("Error code is: -9.")
    assert label_of(failure, CLASS_LABEL) == "driver lost"


def test_fault_336_an_exit_code_of_the_applications_own(recovery: Path, spark_submit: Path) -> None:  # noqa: F811
    said = ended_with(spark_submit, "print('no rows today')\nsys.exit(3)")
    assert "the application failed: Error code is: 3." in said
    assert said.index("no rows today") < said.index("Cannot execute: ")


@pytest.mark.control
def test_fault_336_control_behind_the_command_a_record_does_not_have_the_exit_code(
    recovery: Path,
    spark_submit: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drop_in, "exit_first", str)
    ended_with(spark_submit, "os.kill(os.getpid(), signal.SIGKILL)")
    assert "Error code is" not in failure_in(recovery, OPERATORS_GROUP, "t").message


def test_fault_337_an_argument_that_is_too_long_is_refused_at_once(
    recovery: Path,
    spark_submit: Path,  # noqa: F811
) -> None:
    write(spark_submit, says("never called"))
    with pytest.raises(AirflowFailException, match=r"Argument list too long \(Errno 7\).*pass its path"):
        run_try(dag_of({"task_id": "t", "say": ["--say", "x" * 200_000]})["t"])


@pytest.mark.control
def test_fault_337_control_of_an_error_of_the_system_it_would_be_tried_again(
    recovery: Path,
    spark_submit: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drop_in, "start_failure", lambda error: None)
    write(spark_submit, says("never called"))
    with pytest.raises(RegionFailed, match="Argument list too long") as caught:
        run_try(dag_of({"task_id": "t", "say": ["--say", "x" * 200_000]})["t"])
    assert not kind_of(caught.value).is_final


@pytest.mark.spark
def test_fault_215_of_a_real_spark_submit(recovery: Path, tmp_path: Path) -> None:
    application = tmp_path / "clean.py"
    application.write_text(APPLICATION)
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        task: Any = RecoverableSparkSubmitOperator(
            task_id="t", application=str(application), outputs=["rows"], application_args=["{output:rows}"]
        )
    with pytest.raises(RegionFailed, match="t@1: the application failed: BadRows: 3 rows have no carrier") as caught:
        run_try(task)
    assert not isinstance(caught.value, DriverLost)
    assert failure_in(recovery, OPERATORS_GROUP, "t").type == "BadRows"
