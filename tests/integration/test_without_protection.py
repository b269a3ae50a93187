"""No clear client, and the negative controls of the clear clients: a run says by its name what it lacks."""

from __future__ import annotations

import pytest
from files_in_batches import lose_an_input_while_a_neighbour_is_at_work
from pipeline import Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

TOTAL = [(sum(range(50)),)]


def test_without_a_clear_client_a_region_retries_by_itself_and_a_lost_input_names_both_settings(
    pipeline: Pipeline,
) -> None:
    run = pipeline.run("chain", name="client-off")
    run.make_fail_once("total")
    before = run.start().ends()
    assert before.executions() == {"made": 1, "total": 2}
    before.check()

    run.delete("made", "total")
    run.clear("total", downstream=True)
    failed = run.ends("failed")

    assert failed.ran_since(before) == {}
    assert run.tries("made") == 1
    log = run.log("total")
    assert "[state_store] backend" in log
    assert "[recovery] api_conn_id" in log

    # By hand, as it says: `made` sees that its reader was cleared as well.
    assert "By hand: clear g.made, each with its downstream tasks, this one among them" in log
    run.clear("made", downstream=True)
    journal = run.ends()
    assert journal.ran_since(before) == {"made": 1, "total": 1}
    assert journal.rows("total") == TOTAL
    journal.check()


@pytest.mark.drill
def test_fault_66_control_without_a_clear_client_a_success_by_hand_leaves_the_run_stuck(
    pipeline: Pipeline,
) -> None:
    """Without Airflow: `tests/attempt/test_plan_then_run.py`."""
    run = pipeline.run("chain", name="client-off")
    run.make_broken("made")
    run.start().ends("failed")
    run.repair("made")

    run.mark("made", "success")
    run.clear(only_failed=True)

    assert run.ends("failed").executions() == {"made": 1}
    assert run.state("made") == "success"
    assert "[state_store] backend" in run.log("total")


@pytest.mark.drill
def test_fault_65_control_without_unblocking_the_rest_of_the_run_stays_blocked(pipeline: Pipeline) -> None:
    """In real Airflow also the control in `tests/testing_airflow/test_clear_clients_airflow.py`."""
    run = pipeline.run("chain", name="unblock-off")
    run.make_broken("made")
    run.start().ends("failed")
    run.repair("made")

    run.clear("made")

    assert run.ends("failed").executions() == {"made": 2}
    assert run.states() == {"made": "success", "total": "upstream_failed", "publish": "upstream_failed"}


@pytest.mark.drill
def test_control_without_the_comparison_a_late_consumer_restarts_a_producer_that_is_at_work(
    pipeline: Pipeline,
) -> None:
    # `left` misses `base` and wakes it; `side` decides the same when `base` is running already.
    run = pipeline.run("diamond", name="compare-off")
    run.hold("left", "side")
    run.start()
    run.wait_called("left")
    run.wait_called("side")
    run.wait(lambda: run.state("right") == "success", "right")
    run.delete("base")
    run.hold("base")
    run.release("left")
    run.wait_called("base", 2)

    run.release("side")
    run.wait_called("base", 3)
    run.release("base")

    journal = run.ends()
    assert journal.executions()["base"] == 3, "with the comparison it is 2: test_failures_and_losses"
    assert journal.fenced("base") == ["superseded"]


@pytest.mark.drill
def test_control_where_clears_know_no_map_index_a_neighbour_is_stopped_and_runs_again(
    pipeline: Pipeline,
) -> None:
    run = lose_an_input_while_a_neighbour_is_at_work(pipeline, "indexes-off")
    run.wait_called("raw-a.csv", 2)
    run.release("raw-a.csv")
    journal = run.ends()
    journal.check()
    assert journal.executions()["raw[a.csv]"] == 2, "with map indexes it is 1: test_parallel"
    assert journal.fenced("raw[a.csv]") == ["superseded"]
    assert run.airflow.task_instance(run.dag_id, run.run_id, "g.raw", 0)["try_number"] == 2
