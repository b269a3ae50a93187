"""Airflow's backfills: only what is missing runs, whatever Airflow clears or creates again.

forty           step_01 ~ ... ~ step_20 --> step_21 ~ ... ~ step_39 --> step_40        (`forty_steps.py`)
by_partition    made --> total
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import forty_steps
import pytest
from forty_steps import REGIONS, RIGHT, WRONG
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline, fresh_day

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

PARTITIONS = ("2019-07-01T00:00:00", "2019-07-02T00:00:00")
Span = tuple[datetime, datetime]


class Forty:
    """The DAG `forty` on three dates, whose gates are in one folder: each file there names its date."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.airflow: LocalAirflow = pipeline.airflow
        self.finished, self.half, self.never = self.dates = [fresh_day() for _ in range(3)]
        self.runs = {date: pipeline.run("forty", name="forty", day=date) for date in self.dates}
        gates = self.runs[self.finished].gates
        self.conf = {"gates": str(gates)}
        for run in self.runs.values():
            run.gates = gates
            run.conf.update(self.conf)

    def journals(self) -> list[JournalObjects]:
        return [self.runs[date].journal() for date in self.dates]

    def calls(self) -> list[list[int]]:
        """How often the ends of the regions were called, for each date: counted by themselves."""
        return [[self.runs[date].calls(f"{region}-{date}") for region in REGIONS] for date in self.dates]

    def tries(self) -> list[list[int]]:
        return [[self.runs[date].tries(region) for region in (*REGIONS, "publish")] for date in self.dates]

    def ends(self, backfill: int) -> dict[str, Span]:
        """Wait for the end of a backfill: success of all its runs. When each date's tasks worked, the first first."""
        found = self.airflow.wait_backfill(backfill)
        assert {each["state"] for each in found} <= {"success"}, found
        for each in found:  # Airflow names those that it creates
            self.runs[each["logical_date"][:10]].run_id = each["dag_run_id"]
        spans = {date: span(self.runs[date]) for date in self.dates}
        return dict(sorted(spans.items(), key=lambda item: item[1]))


def span(run: DagRun) -> Span:
    """From the first start to the last end of the newest tries."""
    found = run.airflow.task_instances(run.dag_id, run.run_id)
    moments = [
        [datetime.fromisoformat(instance[name].replace("Z", "+00:00")) for instance in found]
        for name in ("start_date", "end_date")
    ]
    return min(moments[0]), max(moments[1])


def ran(before: list[JournalObjects], after: list[JournalObjects]) -> list[dict[str, int]]:
    return [now.ran_since(then) for then, now in zip(before, after, strict=True)]


@pytest.fixture(scope="module")
def forty(pipeline: Pipeline) -> Forty:
    """One date is finished, one half finished (`step_40` fails), one has never run; then a backfill, as users type it.

    Of the finished date Airflow wants nothing then; the failed run it clears as a whole.
    """
    found = Forty(pipeline)
    finished, half = found.runs[found.finished], found.runs[found.half]
    half.make_broken(f"step_40-{half.day}")
    for run in (finished, half):
        run.start()
    half.ends("failed")
    half.repair(f"step_40-{half.day}")
    finished.ends()
    before = found.journals()
    assert [journal.executions() for journal in before] == [dict.fromkeys(REGIONS, 1)] * 2 + [{}]
    found.airflow.run_cli(
        *("backfill", "create", "--dag-id", "forty", "--from-date", found.finished, "--to-date", found.never),
        *("--reprocess-behavior", "failed", "--run-backwards", "--max-active-runs", "1"),
        *("--dag-run-conf", json.dumps(found.conf)),
    )
    spans = found.ends(found.airflow.newest_backfill("forty"))
    journals = found.journals()
    assert ran(before, journals) == [{}, {"step_40": 1}, dict.fromkeys(REGIONS, 1)]
    # One at a time, the last date first.
    assert list(spans) == [found.finished, found.never, found.half]
    assert spans[found.never][1] <= spans[found.half][0]
    return found


def test_a_backfill_of_dates_that_are_finished_half_finished_and_missing_runs_what_is_missing(forty: Forty) -> None:
    assert forty.calls() == [[1, 1, 1], [1, 1, 2], [1, 1, 1]]
    assert forty.tries() == [[1, 1, 1, 1], [2, 2, 2, 1], [1, 1, 1, 1]]
    assert [forty.runs[forty.half].said(region)["decision"] for region in REGIONS[:2]] == ["kept", "kept"]
    for journal in forty.journals():
        assert journal.rows("step_40") == [(WRONG,)]
        journal.check()

    # Reprocess nothing: Airflow makes no run of a date that has one.
    before, tries = forty.journals(), forty.tries()
    forty.ends(forty.airflow.backfill("forty", forty.finished, forty.never, reprocess="none", conf=forty.conf))
    assert (ran(before, forty.journals()), forty.tries()) == ([{}] * 3, tries)


def test_a_fixed_bug_in_step_40_runs_that_step_alone_for_every_date(forty: Forty) -> None:
    before, calls, tries = forty.journals(), forty.calls(), forty.tries()
    forty_steps.write(forty.pipeline.folder / "dags", forty_steps.FIX)

    # Airflow clears every run as a whole.
    backfill = forty.airflow.backfill("forty", forty.finished, forty.never, reprocess="completed", max_active_runs=2)
    spans = list(forty.ends(backfill).values())

    journals = forty.journals()
    assert ran(before, journals) == [{"step_40": 1}] * 3
    assert forty.calls() == [[first, second, last + 1] for first, second, last in calls]
    assert forty.tries() == [[each + 1 for each in of_date] for of_date in tries]
    for run, journal in zip(forty.runs.values(), journals, strict=True):
        assert [run.said(region)["decision"] for region in REGIONS] == ["kept", "kept", "ran"]
        assert journal.rows("step_40") == [(RIGHT,)]
        assert journal.attempts["step_40"][journal.current("step_40")].reads == {"step_39": 1}
        journal.check()
    # Two at a time: the third waits for one of them.
    assert spans[2][0] >= min(spans[0][1], spans[1][1])


# --- partitions -------------------------------------------------------------------------------------------------------


def partition(pipeline: Pipeline, key: str) -> JournalObjects:
    return pipeline.journal("by_partition", "", "g", f"partition-{key.replace(':', '~3A')}")


def test_partitions_that_are_reprocessed_by_other_runs_keep_what_stands_and_two_runs_at_once_are_one_too_many(
    pipeline: Pipeline,
) -> None:
    airflow = pipeline.airflow
    gates = pipeline.folder / "gates" / "by_partition"
    gates.mkdir(parents=True)
    conf = {"gates": str(gates)}
    first, second = PARTITIONS

    def backfill(reprocess: str) -> int:
        return airflow.backfill("by_partition", f"{first}Z", f"{second}Z", reprocess=reprocess, conf=conf)

    def states(key: str) -> dict[str, str]:
        runs = sorted(airflow.dag_runs("by_partition"), key=lambda run: str(run["start_date"]))
        return {run["dag_run_id"]: run["state"] for run in runs if run["partition_key"] == key}

    runs = airflow.wait_backfill(backfill("none"))
    assert [(run["partition_key"], run["logical_date"], run["state"]) for run in runs] == [
        (partition, None, "success") for partition in PARTITIONS
    ]
    before = [partition(pipeline, candidate) for candidate in PARTITIONS]
    assert [each.executions() for each in before] == [{"made": 1, "total": 1}] * 2

    # Airflow clears no run of a partition, it makes another one. What stands is kept by that as well.
    for file in before[0].files("total"):
        file.unlink()
    (gates / "total.hold").touch()
    again = backfill("completed")
    airflow.wait_until(lambda: called(gates) == 3, "total to be called again", lambda: str(states(first)))
    (old, _), (live, live_state) = states(first).items()
    assert (old, live_state) == (runs[0]["dag_run_id"], "running")

    # A third run of the partition, while `total` is at work in the second: it does not end the other's attempt.
    third = airflow.trigger("by_partition", run_id="third", partition_key=first, conf=conf)
    assert airflow.wait_run("by_partition", third) == "failed"
    assert f"Journal in use by run {live}, which makes total@2" in airflow.log("by_partition", third, "g.total", 1)
    (gates / "total.hold").unlink()

    assert [each["state"] for each in airflow.wait_backfill(again)] == ["success"] * 4
    after = [partition(pipeline, candidate) for candidate in PARTITIONS]
    assert ran(before, after) == [{"total": 1}, {}]
    for journal in after:
        assert journal.rows("total") == [(sum(range(50)),)]
        journal.check()
    airflow.clear("by_partition", third, only_failed=True)
    assert airflow.wait_run("by_partition", third) == "success"
    assert airflow.xcom("by_partition", third, "g.total")["decision"] == "kept"


def called(gates: Any) -> int:
    return len(list(gates.glob("total.called-*")))
