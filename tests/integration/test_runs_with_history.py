"""What an earlier try of a date has left behind is no result of this run (faults 179 to 182), in a real Airflow."""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.s3]


def begun(pipeline: Pipeline, dag_id: str) -> DagRun:
    run = pipeline.run(dag_id)
    run.group_id = "~28operators~29"
    return run


def say(run: DagRun, name: str, text: str) -> None:
    """From now on the operator does something else: so its code is another one."""
    (run.gates / name).write_text(text)


@pytest.mark.smoke
def test_fault_179_new_code_fails_and_nobody_uses_what_the_old_code_had_made(pipeline: Pipeline) -> None:
    run = begun(pipeline, "histories")
    first = run.start().ends()
    assert run.states() == dict.fromkeys(["a", "b", "done", "lone", "publish"], "success") | {"failed": "skipped"}

    say(run, "a", "exit 1")
    run.clear()
    failed = run.ends("failed")

    assert {name: run.state(name) for name in ("a", "b", "done", "failed")} == {
        "a": "failed",
        "b": "upstream_failed",
        "done": "failed",
        "failed": "failed",
    }
    assert "done reads a, which has failed in this run" in run.log("done")
    assert failed.ran_since(first) == {"a": 1}

    # Rolled back: the old result counts again, once its own task has looked.
    say(run, "a", "echo a")
    run.clear()
    again = run.ends()
    assert again.ran_since(failed) == {}
    assert run.said("a")["decision"] == run.said("b")["decision"] == "kept"


def test_fault_180_a_producer_that_is_marked_as_a_success_by_hand_is_made_again(pipeline: Pipeline) -> None:
    run = begun(pipeline, "histories")
    run.start().ends()
    say(run, "a", "exit 1")
    run.clear("a")
    run.wait(lambda: run.state("a") == "failed", "a has failed")
    say(run, "a", "echo new")
    run.mark("a", "success")
    run.clear("b")
    run.wait(lambda: run.state("b") == "success", "b has succeeded")
    journal = run.ends()
    assert journal.executions()["a"] == 3
    assert "was outdated when its newest attempt began" in run.log("b", run.tries("b") - 1)


def test_fault_181_what_a_branch_leaves_out_is_absent_whatever_ran_before(pipeline: Pipeline) -> None:
    run = begun(pipeline, "histories_branch")
    run.start().ends()
    other = begun(pipeline, "histories_branch")
    say(other, "branch", "y")
    other.start()

    say(run, "branch", "y")
    run.clear()
    journal, fresh = run.ends(), other.ends()

    assert run.states()["x"] == other.states()["x"] == "skipped"
    newest = [publishes.publishes[-1] for publishes in (journal, fresh)]
    assert [publish["skipped"] for publish in newest] == [["x"], ["x"]]
    assert [sorted(region["region"] for region in publish["regions"] if region["results"]) for publish in newest] == [
        ["join", "y"],
        ["join", "y"],
    ]
    assert [content(each, "join") for each in (run, other)] == ["y", "y"]


def test_fault_352_a_publish_without_retries_waits_for_a_region_that_is_at_work(pipeline: Pipeline) -> None:
    run = begun(pipeline, "histories_waits")
    run.start()
    run.wait(lambda: run.state("publish") == "up_for_reschedule", "the publish waits")
    say(run, "open", "")
    journal = run.ends()
    assert (run.states(), run.tries("publish")) == ({"slow": "success", "publish": "success"}, 1)
    assert [region["region"] for region in journal.publishes[-1]["regions"] if region["results"]] == ["slow"]


def test_fault_351_what_a_branch_leaves_out_has_no_xcom_whatever_ran_before(pipeline: Pipeline) -> None:
    run = begun(pipeline, "histories_xcoms")
    first = run.start().ends()
    assert content(run, "join") == "x None"

    say(run, "branch", "y")
    run.clear()
    again = run.ends()
    assert (run.state("x"), run.xcoms("x")) == ("skipped", {"return_value": "x"})  # Airflow still has it
    assert content(run, "join") == "None y"
    assert again.ran_since(first) == {"y": 1, "join": 1}


def test_fault_182_what_skips_itself_today_is_published_no_more(pipeline: Pipeline) -> None:
    run = begun(pipeline, "histories")
    run.start().ends()
    say(run, "a", "exit 99")
    run.clear()
    journal = run.ends()
    assert {run.states()[name] for name in ("a", "b")} == {"skipped"}
    newest = journal.publishes[-1]
    assert {"a", "b"} <= set(newest["skipped"])
    assert [region["region"] for region in newest["regions"] if region["results"]] == ["lone"]


def test_fault_242_a_task_that_was_marked_as_failed_is_not_cleared_with_its_new_input(pipeline: Pipeline) -> None:
    run = begun(pipeline, "histories")
    first = run.start().ends()
    run.mark("b", "failed")
    say(run, "a", "echo new")
    run.clear("a")
    journal = run.ends("failed")
    assert journal.ran_since(first) == {"a": 1, "done": 1}
    assert (run.state("b"), run.tries("b"), run.state("done")) == ("failed", 1, "success")


def content(run: DagRun, region: str) -> str:
    """What the newest attempt of an operator has written."""
    location = run.journal().manifest(f"{region}.o")["location"].removeprefix("file://")
    with open(f"{location}/o") as file:
        return file.read().strip()
