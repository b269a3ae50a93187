"""What a task leaves in Airflow besides its state, when its run is cleared: XComs, return values, asset events."""

from __future__ import annotations

import time

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

OPERATORS = "~28operators~29"
RESULTS = ("made", "words", "reads")


def new_run(pipeline: Pipeline, name: str) -> DagRun:
    run = pipeline.run("left", name=name)
    run.group_id = OPERATORS
    return run


def decisions(run: DagRun) -> dict[str, str]:
    return {task: str(run.said(task)["decision"]) for task in RESULTS}


def events(run: DagRun) -> dict[str, int]:
    """How many events each asset has from this run."""
    path = f"/assets/events?source_dag_id={run.dag_id}&source_run_id={run.run_id}"
    counts: dict[str, int] = {}
    for event in run.airflow.api("GET", path)["asset_events"]:
        counts[event["name"]] = counts.get(event["name"], 0) + 1
    return counts


def readers(pipeline: Pipeline) -> int:
    return len(pipeline.airflow.dag_runs("left_reader"))


def test_fault_190_fault_193_a_kept_task_leaves_its_xcoms_again_and_no_second_event(pipeline: Pipeline) -> None:
    pipeline.airflow.wait_dag("left_reader")
    run = new_run(pipeline, "kept")
    first = run.start().ends()
    left = {task: run.xcoms(task) for task in RESULTS}
    returned = {"day": run.day, "words": "(a,b)"}  # so Airflow's API writes a tuple
    assert left["made"] == {"watermark": 42, **returned, "return_value": returned}
    assert left["words"] == {"return_value": ["one", "two", "three"]}
    assert left["reads"] == {"return_value": f"42 b {run.day}"}
    once = {"left_published": 1, "left_made": 1, "left_found": 1}
    assert events(run) == once
    run.wait(lambda: readers(pipeline) == 1, "the run that the event starts")

    run.clear()
    cleared = run.ends()
    assert cleared.ran_since(first) == {}
    assert run.calls("made") == 1
    assert decisions(run) == dict.fromkeys(RESULTS, "kept")
    assert {task: run.xcoms(task) for task in RESULTS} == left
    lengths = [run.airflow.xcom(run.dag_id, run.run_id, "length", map_index=index) for index in range(3)]
    assert lengths == [3, 3, 5]
    assert events(run) == once
    time.sleep(2)  # Airflow starts such a run in a second.
    assert readers(pipeline) == 1
    cleared.check()

    # Only the consumer: what it is told is there.
    run.clear("reads")
    assert run.ends().ran_since(first) == {}
    assert run.said("reads")["decision"] == "kept"

    # Made again, and published: events for both.
    run.delete("made.rows")
    run.clear("made", downstream=True)
    run.ends()
    assert (decisions(run)["made"], run.calls("made")) == ("kept", 1)
    run.recovery("restart", "made")
    run.ends()
    assert run.calls("made") == 2
    assert events(run)["left_made"] == 2


def test_fault_191_fault_194_a_task_whose_xcoms_can_not_be_left_again_runs_again(pipeline: Pipeline) -> None:
    run = new_run(pipeline, "unfit")
    large, secret = run.gates / "large", run.gates / "secret"
    large.touch()
    run.start().ends()
    assert run.calls("made") == 1
    assert "The XComs of attempt 1 are not stored: " in run.log("made")
    plan = run.recovery("plan", "--json")
    assert "its XComs were not stored" in plan
    assert "a clear of its task in Airflow runs it again" in plan

    def cleared(calls: int, why: str) -> None:
        run.clear("made")
        run.ends()
        assert run.calls("made") == calls
        assert why in run.log("made")
        assert run.xcoms("made")["watermark"] == 42
        assert run.xcoms("reads")["return_value"] == f"42 b {run.day}"

    large.unlink(), secret.touch()
    cleared(2, "attempt 1: they were not stored (")
    assert "Airflow's secrets masker finds a secret in them" in run.log("made")
    secret.unlink()
    cleared(3, "attempt 2: they were not stored (Airflow's secrets masker finds a secret in them)")
    cleared(3, "made is kept: attempt 3 is valid")

    (stored,) = pipeline.folder.glob(f"results/left/*{run.day}*/*/made/00000003-*/_xcoms/*.json")
    stored.unlink()
    cleared(4, f"{stored.name} is missing")
    assert run.said("reads")["decision"] == "ran"
    assert not any(b"a-password" in path.read_bytes() for path in pipeline.folder.glob("results/left/**/*.json"))
