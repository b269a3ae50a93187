"""``airflow recovery rebuild`` in real Airflow: a run is lost in the middle, and what had finished has no try again.

numbers ~ base --+--> left ---+--> merged
                 +--> right --+
                 +--> side            lone
"""

from __future__ import annotations

import json

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


def rebuild(run: DagRun, *options: str, through_api: bool = False) -> dict[str, object]:
    """What the command says: through the API server, or with the metadata database alone."""
    found: dict[str, object] = json.loads(run.recovery("rebuild", "--json", *options, through_api=through_api))
    return found


def lose_in_the_middle(pipeline: Pipeline) -> DagRun:
    """`right` is at work, and `merged` has not begun, when Airflow forgets the run; it is triggered again, paused."""
    run = pipeline.run("diamond", name="rebuilt")
    run.hold("right")
    run.start()
    run.wait_called("right")
    for each in ("left", "side", "lone"):
        run.wait(lambda each=each: run.state(each) == "success", f"the success of {each}")
    processes = run.airflow.task_processes(run.dag_id, run.run_id, run.task("right"))
    assert processes is not None
    # Airflow deletes no run that is running.
    run.airflow.api("PATCH", f"/dags/{run.dag_id}/dagRuns/{run.run_id}", {"state": "failed"})
    run.forget()
    # Released before Airflow has ended it, it might finish all the same; that is another story.
    run.airflow.wait_until(processes.is_gone, "the end of right's process")
    run.release("right")
    run.airflow.api("PATCH", f"/dags/{run.dag_id}", {"is_paused": True})
    # By hand, and under another name: the logical date is what the journal knows it by.
    run.run_id = f"again-{run.run_id}"
    run.start()
    return run


def resume(run: DagRun) -> None:
    run.airflow.api("PATCH", f"/dags/{run.dag_id}", {"is_paused": False})


def tries(run: DagRun) -> dict[str, int]:
    found = run.airflow.task_instances(run.dag_id, run.run_id)
    return {instance["task_id"].removeprefix("g."): int(instance["try_number"]) for instance in found}


def test_fault_60_the_finished_regions_of_a_lost_run_have_no_try(pipeline: Pipeline) -> None:
    run = lose_in_the_middle(pipeline)
    before = run.journal()
    finished = sorted(
        execution
        for execution in before.executions()
        if before.attempts[execution][1].is_finished and execution != "right"
    )
    try:
        would = rebuild(run, "--dry-run", through_api=True)
        assert set(run.states().values()) == {"None"}
        done = rebuild(run, through_api=True)
        assert sorted(done["set"]) == [f"g.{execution}" for execution in finished] == sorted(would["set"])  # type: ignore[call-overload]
        assert done["airflow_run_id"] == run.run_id
        # Once more, with the database alone: there is nothing left to do.
        again = rebuild(run)
        assert (again["set"], again["left"]["g.left"]) == ([], "it is success, try 0")  # type: ignore[index]
    finally:
        resume(run)
    journal = run.ends()
    journal.check()
    assert {execution: tries(run)[execution] for execution in finished} == dict.fromkeys(finished, 0)
    assert {name: tries(run)[name] for name in ("right", "merged")} == {"right": 1, "merged": 1}
    assert {execution: journal.executions()[execution] for execution in finished} == dict.fromkeys(finished, 1)
    assert journal.executions()["merged"] == 1
    noted = run.airflow.task_instance(run.dag_id, run.run_id, "g.left")["note"]
    assert "left: attempt 1 is valid, 1 files are as registered" in noted
    assert noted.startswith(f"Rebuilt from s3://{pipeline.bucket}/journal/diamond/date-{run.day}T000000Z/g/: ")


def test_control_without_rebuild_each_of_them_costs_a_try(finished: DagRun) -> None:
    before = finished.journal()
    finished.forget()

    journal = finished.start().ends()

    assert journal.ran_since(before) == {}
    assert tries(finished) == dict.fromkeys([*before.attempts, "publish"], 1)
