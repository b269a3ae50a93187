"""What a restart does in Airflow's features (docs/restarts.md): two runs of `featured`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from journal_objects import JournalObjects
from metrics_listener import MetricsListener
from pipeline import SPARK_HISTORY, DagRun, Pipeline

from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.s3 import S3Store

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

MADE, TOTAL, PUBLISH = "outer.g.made", "outer.g.total", "outer.g.publish"


A_PERSONS = "ann: told the customer"


@dataclass(frozen=True)
class Moment:
    """A run at one moment: its task instances as the API shows them, how often each gate was passed, its journal."""

    tasks: dict[str, dict[str, Any]]
    calls: Counter[str]
    journal: JournalObjects
    asset_events: int

    @classmethod
    def of(cls, run: DagRun) -> Moment:
        rows = run.airflow.task_instances(run.dag_id, run.run_id)
        tasks = {f"{row['task_id']}[{row['map_index']}]".removesuffix("[-1]"): row for row in rows}
        calls = Counter(path.name.partition(".called-")[0] for path in run.gates.glob("*.called-*"))
        found = run.airflow.api("GET", f"/assets/events?source_dag_id={run.dag_id}&source_run_id={run.run_id}")
        return cls(tasks, calls, run.journal(), int(found["total_entries"]))

    def states(self, *names: str) -> list[str]:
        return [str(self.tasks[name]["state"]) for name in names]

    def tries(self, *names: str) -> list[int]:
        return [int(self.tasks[name]["try_number"]) for name in names]


@dataclass(frozen=True)
class Story:
    """Of the first run: it fails, its failed tasks are cleared, then the region, and then its results are lost.

    Of the second: the branch leaves the group out, and takes it later.
    """

    failed: Moment
    only_failed: Moment
    repaired: Moment
    lost: Moment
    left_out: Moment
    taken: Moment
    run: DagRun
    failed_log: str
    metrics_before: Counter[str]

    def moments(self) -> tuple[Moment, ...]:
        return (self.failed, self.only_failed, self.repaired, self.lost, self.left_out, self.taken)


def ended(run: DagRun, state: str = "success") -> Moment:
    run.ends(state)
    return Moment.of(run)


@pytest.fixture(scope="module")
def story(pipeline: Pipeline, metrics: MetricsListener) -> Story:
    metrics_before = metrics.counters + metrics.timers
    pipeline.airflow.api("POST", "/pools", {"name": "narrow", "slots": 1, "include_deferred": False})
    run, branched = (pipeline.run("featured", name=name) for name in ("fails", "branched"))
    for each in (run, branched):
        each.group_id = "outer.g"
    run.make_broken("total")
    (branched.gates / "other").touch()
    run.start(), branched.start()

    failed, left_out = ended(run, "failed"), ended(branched)
    failed_log = run.log(TOTAL)

    run.repair("total")
    (branched.gates / "other").unlink()
    run.clear(only_failed=True)
    branched.clear("choose", downstream=True)
    only_failed, taken = ended(run, "failed"), ended(branched)
    run.clear(TOTAL, downstream=True)
    repaired = ended(run)

    path = f"/dags/featured/dagRuns/{run.run_id}/taskInstances/{PUBLISH}"
    run.airflow.api("PATCH", path, {"note": A_PERSONS})
    run.delete("made", "total")
    run.clear(TOTAL)
    return Story(failed, only_failed, repaired, ended(run), left_out, taken, run, failed_log, metrics_before)


def test_what_follows_a_failed_region_by_trigger_rules(story: Story) -> None:
    assert story.failed.states(MADE, TOTAL, PUBLISH) == ["success", "failed", "upstream_failed"]
    assert story.failed.states("told", "alarm", "joined") == ["success", "success", "upstream_failed"]

    # all_done, one_failed, none_failed_min_one_success: as if it had never failed.
    assert story.repaired.states("told", "alarm", "joined") == ["success", "skipped", "success"]
    assert story.repaired.journal.ran_since(story.only_failed.journal) == {"total": 1}
    assert story.repaired.tries(MADE) == [1]


def test_a_region_that_is_cleared_has_its_setup_again_and_of_a_run_cleared_only_failed_it_has_not(story: Story) -> None:
    assert story.failed.calls["up"] == story.failed.calls["down"] == 1

    # Airflow clears what has failed, and nothing else: the teardown has taken the cluster away, and nobody made it.
    assert story.only_failed.calls["up"] == 1
    failure = story.only_failed.journal.attempts["total"][2].outcome["failure"]
    assert failure["message"] == "total: there is no cluster"

    assert (story.repaired.calls["up"], story.repaired.calls["down"]) == (2, 2)


def test_a_producer_that_is_woken_is_set_up_again_and_the_teardown_is_last(story: Story) -> None:
    # Each region looks for the cluster, and would have failed for good.
    assert story.lost.journal.ran_since(story.repaired.journal) == {"made": 1, "total": 1}
    assert story.lost.calls["up"] > story.repaired.calls["up"]
    assert story.lost.states("down") == ["success"]
    assert ended_at(story.lost, "down") > max(ended_at(story.lost, each) for each in (MADE, TOTAL, PUBLISH))
    story.lost.journal.check()


def test_in_a_pool_of_one_slot_a_consumer_does_not_block_the_producer_that_it_woke(story: Story) -> None:
    # `total` found its input gone while it had the one slot, and gave it back.
    assert story.lost.tries(MADE)[0] > story.repaired.tries(MADE)[0]
    assert story.lost.states(MADE, TOTAL) == ["success", "success"]
    assert {moment.tasks[name]["pool"] for moment in story.moments() for name in (MADE, TOTAL, PUBLISH)} == {"narrow"}
    assert ended_at(story.lost, MADE) <= started_at(story.lost, TOTAL)


def test_priority_and_queue_are_those_of_the_group_in_every_try(story: Story) -> None:
    for moment in story.moments():
        for each in (MADE, TOTAL):
            task = moment.tasks[each]
            assert (task["priority_weight"], task["queue"]) == (7, "spark")


def test_the_readers_of_a_group_that_are_mapped_run_once_it_has_published(story: Story) -> None:
    assert story.failed.calls["read-0"] == story.failed.calls["read-1"] == 0
    assert story.repaired.calls["read-0"] == story.repaired.calls["read-1"] == 1
    # The region alone was cleared: who reads it outside the group is not asked to run again.
    assert story.lost.calls["read-0"] == story.lost.calls["read-1"] == 1


def test_a_branch_leaves_the_group_out_and_nothing_is_recorded(story: Story) -> None:
    names = (MADE, TOTAL, PUBLISH)
    assert story.left_out.states(*names, "up", "down", "joined") == ["skipped"] * 5 + ["success"]
    assert story.left_out.journal.keys == {}

    # Cleared with what follows it, it decides otherwise.
    assert story.taken.states(*names, "other", "joined") == ["success"] * 3 + ["skipped", "success"]
    assert story.taken.journal.executions() == {"made": 1, "total": 1}


def test_the_asset_changes_when_a_result_is_published_and_not_when_a_region_has_run(story: Story) -> None:
    assert [each.asset_events for each in (story.failed, story.only_failed, story.repaired)] == [0, 0, 1]
    # A repair that has made a final result again publishes it.
    assert story.lost.calls["total"] == story.repaired.calls["total"] + 1
    assert story.lost.asset_events == 2
    assert story.left_out.asset_events == 0


def test_the_metrics_arrive_at_a_statsd_server(story: Story, pipeline: Pipeline, metrics: MetricsListener) -> None:
    at_least = {
        "recovery.attempts": 8,
        "recovery.attempts.rerun": 4,
        "recovery.attempts.finished": 6,
        "recovery.attempts.failed": 2,
        "recovery.results.lost": 1,
        "recovery.publishes": 3,
    }
    before = story.metrics_before
    pipeline.airflow.wait_until(
        lambda: all(metrics.counters[name] - before[name] >= count for name, count in at_least.items()),
        "the metrics of the story",
        lambda: str(metrics.counters - before),
    )
    assert metrics.timers["recovery.attempt.spark"] - before["recovery.attempt.spark"] >= 6
    assert metrics.timers["recovery.journal.put_if_absent"] > before["recovery.journal.put_if_absent"]


def test_fault_119_what_a_vertex_says_in_clear_is_read_nowhere(story: Story) -> None:
    secret = "hunter2-of-the-vertex"
    assert secret not in json.dumps([moment.tasks for moment in story.moments()], default=str)
    pipeline = story.run.pipeline
    journal = S3Store(f"s3://{pipeline.bucket}", endpoint_url=pipeline.s3.endpoint_url, session=pipeline.s3.session())
    results = LocalStore(f"file://{pipeline.folder}/results")
    bodies = [store.get(each.key).body for store in (journal, results) for each in store.list()]
    assert any(b"total is broken; PGPASSWORD=***" in body for body in bodies)
    assert not any(secret.encode() in body for body in bodies)


def test_the_note_of_a_task_says_what_it_did_and_why(story: Story) -> None:
    def note(moment: Moment, name: str) -> str:
        return str(moment.tasks[name]["note"])

    assert note(story.failed, MADE) == "recovery: ran as attempt 1: it had not run yet"
    assert note(story.failed, TOTAL).startswith("recovery: failed: total@1 failed in vertex total: TypeError: ")
    assert "total is broken; PGPASSWORD=***" in note(story.failed, TOTAL)
    assert note(story.repaired, TOTAL).startswith("recovery: ran as attempt 3: total: failed (attempt 2: ")
    assert note(story.repaired, PUBLISH) == "recovery: published 1: made@1, total@3"
    assert note(story.lost, MADE).startswith("recovery: ran as attempt 2: made: ")
    # A person's stays.
    assert note(story.lost, PUBLISH) == A_PERSONS


def test_the_log_of_what_has_failed_ends_with_what_repairs_it(story: Story) -> None:
    run, url = story.run, story.run.airflow.url
    command = f"airflow recovery plan featured date-{run.day}T000000Z --group outer.g"
    # Airflow logs one entry, whose lines it keeps.
    assert f"What would run again, and why:  {command}" in story.failed_log
    assert f"Once the cause is repaired:  {command} --apply, or clear this task" in story.failed_log
    assert f"{url}/dags/featured/runs/{run.run_id}/plugin/recovery-dag-run" in story.failed_log
    assert story.failed_log.index("TypeError: total is broken") < story.failed_log.index(command)


def test_a_task_links_to_the_tab_and_to_its_spark_application(story: Story) -> None:
    run = story.run
    path = f"/dags/featured/dagRuns/{run.run_id}/taskInstances/{TOTAL}/links"
    links = run.airflow.api("GET", path)["extra_links"]
    assert links["Recovery"] == f"{run.airflow.url}/dags/featured/runs/{run.run_id}/plugin/recovery-dag-run"
    application = story.lost.journal.attempts["total"][4].outcome["application_id"]
    assert links["Spark history"] == f"{SPARK_HISTORY}/history/{application}/"


def test_a_service_account_restarts_a_region_over_rest(story: Story) -> None:
    """The last one: the story goes on."""
    run, airflow = story.run, story.run.airflow
    path = f"/airflow-recovery/v1/dags/featured/runs/{run.run_id}"

    seen = airflow.request("GET", path).json()["run"]
    assert {each["story"]["name"]: each["status"] for each in seen["regions"]} == {"made": "run", "total": "run"}
    plan = airflow.request("POST", f"{path}/plan", {"restart": ["total"]}).json()
    kept = {name: plan[name] for name in ("plan_id", "plan", "tries")}
    # Who may only look changes nothing.
    refused = airflow.request("POST", f"{path}/plan/run", kept, user=airflow.viewer)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert run.journal().keys == story.lost.journal.keys

    assert airflow.request("POST", f"{path}/plan/run", kept).status_code == 200
    journal = run.ends()
    assert journal.ran_since(story.lost.journal) == {"total": 1}

    late = airflow.request("POST", f"{path}/plan/run", kept)
    assert (late.status_code, late.json()["code"]) == (409, "outdated")
    assert run.journal().keys == journal.keys


def started_at(moment: Moment, name: str) -> str:
    return str(moment.tasks[name]["start_date"])


def ended_at(moment: Moment, name: str) -> str:
    return str(moment.tasks[name]["end_date"])
