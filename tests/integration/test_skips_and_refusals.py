"""What must not be retried, and what must not be waited for."""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

from airflow_recovery.testing.s3_server import SECRET_KEY

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


def test_fault_64_the_consumer_of_a_skipped_region_is_skipped_and_the_rest_is_published(pipeline: Pipeline) -> None:
    run = pipeline.run("branching")

    journal = run.start().ends()

    states = run.states()
    assert states["right"] == "skipped"
    assert states["merged"] == "skipped"
    # It ran, by its trigger rule, and found out for itself; nobody was woken, nothing was claimed.
    assert "reads right, which was skipped in this run" in run.skip_reason("merged")
    assert set(journal.executions()) == {"base", "left", "lone", "lone_numbers", "side"}
    assert states["publish"] == "success"
    published = journal.publishes[-1]
    assert {publish["region"] for publish in published["regions"]} == set(journal.executions())
    assert set(published["skipped"]) == {"right", "merged"}


def test_fault_78_a_missing_table_fails_at_once(pipeline: Pipeline) -> None:
    run = pipeline.run("chain", {"table": "no_such_table"})

    journal = run.start().ends("failed")

    assert journal.executions() == {"made": 1}
    assert run.tries("made") == 1
    assert run.states() == {"made": "failed", "total": "upstream_failed", "publish": "upstream_failed"}
    failure = journal.attempts["made"][1].outcome["failure"]
    assert failure["condition"] == "TABLE_OR_VIEW_NOT_FOUND"
    assert "The same code would fail again, so it is not retried." in run.log("made")


@pytest.mark.drill
def test_fault_78_control_another_exception_is_retried(pipeline: Pipeline) -> None:
    """As is one in `test_failures_and_losses.py`."""
    run = pipeline.run("chain")
    run.make_fail_once("made")

    assert run.start().ends().executions() == {"made": 2, "total": 1}


def test_fault_27_access_denied_is_not_lost(pipeline: Pipeline, finished: DagRun) -> None:
    before = finished.journal()
    tries = {attempt: finished.tries(attempt) for attempt in before.attempts}
    finished.delete("left", "merged")

    pipeline.set_aws_password("wrong")
    try:
        with pipeline.s3.refusing_strangers():
            finished.clear("merged", downstream=True)
            assert pipeline.airflow.wait_run(finished.dag_id, finished.run_id) == "failed", finished.story()
    finally:
        pipeline.set_aws_password(SECRET_KEY)

    # It failed at its first try, with the reason, though its input is gone; nobody else was woken.
    assert {attempt: finished.tries(attempt) for attempt in before.attempts} == {**tries, "merged": tries["merged"] + 1}
    assert finished.state("merged") == "failed"
    assert "StoreAccessDenied" in finished.log("merged")
    assert set(finished.journal().keys) == set(before.keys)

    # With the right password the very same loss is one, and is repaired.
    finished.clear(only_failed=True)
    journal = finished.ends()
    assert journal.ran_since(before) == {"left": 1, "merged": 1}
    journal.check()


def test_a_missing_connection_is_named_and_no_other_credentials_are_tried(pipeline: Pipeline) -> None:
    pipeline.remove_aws_connection()
    try:
        run = pipeline.run("chain").start()
        assert pipeline.airflow.wait_run(run.dag_id, run.run_id) == "failed", run.story()
        assert run.tries("made") == 1
        assert "Expected the connection 'recovery_s3' of [recovery] aws_conn_id" in run.log("made")
    finally:
        pipeline.set_aws_password(SECRET_KEY)
    assert run.journal().keys == {}
