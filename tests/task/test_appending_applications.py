"""Fault 80 for drop-ins: an application that appends at a user's own location, and is run again after it died there."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from expected_errors import fails_with
from paths import CODE
from tries import run_try, state_in

from airflow_recovery.errors import JobDefinitionError, RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator

APPENDER = str(CODE / "appender.py")
WRITER = str(CODE / "writer.py")


def operator(
    folder: Path, *, outputs: Any, application: str = APPENDER, **given: Any
) -> RecoverableSparkSubmitOperator:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            task_id="t",
            application=application,
            outputs=outputs,
            application_args=["{output:out}", f"{folder}/died"],
            **given,
        )


def files_after_a_retry(task: RecoverableSparkSubmitOperator, folder: Path) -> int:
    """How many files are registered after an attempt that died when it had written, and one that did not."""
    with pytest.raises(RegionFailed):
        run_try(task)
    run_try(task, try_number=2)
    (manifest,) = state_in(folder, OPERATORS_GROUP, "t").of("t").attempts[2].outcome.outputs
    return len(manifest.objects)


def test_fault_80_an_application_that_is_seen_to_append_at_its_own_location_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        operator(tmp_path, outputs={"out": f"file://{tmp_path}/ledger"})
    assert str(refused.value).startswith(
        "t: expected an application that can run again for output 'out' at a location of its own, found write in mode "
        '"append": an attempt that dies after it has written is run again, and writes once more. Overwrite a '
        "place that no other date writes to (.../day={{ ds }}); or name the output without a URI"
    )


def test_fault_80_control_where_it_is_allowed_rows_are_there_twice_and_the_log_says_so(
    recovery: Path, submitted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = operator(recovery, outputs={"out": f"file://{recovery}/ledger"}, allow_duplicates=True)
    with caplog.at_level(logging.WARNING):
        assert files_after_a_retry(task, recovery) == 2
    assert "Attempt 2: what it appends, an earlier attempt may have appended already" in caplog.text


def test_fault_80_each_attempt_of_a_managed_output_appends_to_nothing(recovery: Path, submitted: Path) -> None:
    assert files_after_a_retry(operator(recovery, outputs=["out"]), recovery) == 1


def test_fault_80_what_nobody_can_see_is_declared(tmp_path: Path) -> None:
    with fails_with("application-cannot-run-again", task="t"):
        operator(tmp_path, outputs=["out"], application=WRITER, idempotent=False)
    fixed = {"out": f"file://{tmp_path}/ledger"}
    assert operator(tmp_path, outputs=fixed, idempotent=True).allow_duplicates is False
    assert operator(tmp_path, outputs=fixed, application=WRITER).allow_duplicates is False
