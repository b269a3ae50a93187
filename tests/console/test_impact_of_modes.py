"""``impact`` of regions that commit split by split, and of streaming ones: real code over records written one by one.

lines[2] ~ numbers[2] --> counted                 events ==raw==> scores ==> table --> report     ``==`` is a channel
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from impact_bundle import KEY, Bundle, changes, effects

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.mode import BATCH, RegionMode
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    CommittedBatch,
    ExternalObject,
    Outcome,
    PlanRecord,
    ReadMetrics,
    RunIdentity,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.splits.mode import AdoptedBatches, CommittedBatchRef, SplitClaim, SplitOutcome, SplitPlan
from airflow_recovery.store import open_store
from airflow_recovery.story import deploy_impact
from airflow_recovery.story.mode import StoryMode
from airflow_recovery.streaming.mode import ChannelRef, StreamingClaim, StreamingOutcome, StreamingPlan

AT = "2026-01-01T00:00:00+00:00"
SPLITS = """
from airflow_recovery import BLOCKING, files, job

flights = job("flights")


@flights.source(splits=files("s3://lake/*.csv"), parallelism=2, commit="split")
def lines(spark, splits):
    return spark.read.csv(splits.paths)


@flights.vertex(parallelism=2, commit="split", result=BLOCKING)
def numbers(lines):
    return lines.where("number >= 0")


@flights.sink
def counted(numbers):
    return numbers.groupBy("number").count()
"""
STREAMS = """
from airflow_recovery import BLOCKING, job
from airflow_recovery.streaming import APPROXIMATE, Streaming

flights = job("flights")
LATEST = APPROXIMATE(reconnect="latest", max_lost_records=1000, subpartitions=1)


@flights.source(result=LATEST)
def events(spark):
    return spark.readStream.schema("id long").csv("s3://lake")


@flights.vertex(result=LATEST)
def scores(events):
    return events.selectExpr("id", "id * 2 AS score")


@flights.vertex(result=BLOCKING)
def table(scores):
    return scores


@flights.sink
def report(table):
    return table.groupBy("score").count()
"""


@pytest.fixture
def bundle(recorded, tmp_path: Path) -> Bundle:
    return Bundle(tmp_path / "bundle", recorded)


def version(bundle: Bundle, name: str, text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return bundle.write(name, files={"jobs/flights.py": text})


Modes = Callable[[RegionPlan], tuple[RegionMode, RegionMode]]


class Written:
    """A run of ``plan``, of which attempts are written down as a test says."""

    def __init__(self, bundle: Bundle, plan: PlanRecord, modes: Modes) -> None:
        self.plan = plan
        self._modes = modes
        self.journal = Journal(open_store(bundle.recorded.uri), RunIdentity("flights", KEY, "g"), writer="w")
        self.journal.put_plan(plan)

    def claims(self, name: str, number: int = 1, mode: RegionMode | None = None) -> RegionPlan:
        region = self.plan.by_name[name]
        claimed = self._modes(region)[0] if mode is None else mode
        hash_ = plan_hash(self.plan)
        self.journal.claim(
            Claim(name, number, "w", hash_, self._inputs(region), "run", number, "ti", "tag", AT, mode=claimed)
        )
        return region

    def finishes(self, name: str, number: int = 1, mode: RegionMode | None = None, **said: Any) -> None:
        region = self.plan.by_name[name]
        outputs = tuple(
            PartitionManifest(result, "file:///r", (ResultObject("part-0", 42, "e"),), rows=1)
            for result in region.results
        )
        self.journal.finish(
            Outcome(
                name,
                number,
                AttemptState.FINISHED,
                "w",
                AT,
                region.fingerprint,
                inputs=self._inputs(region),
                outputs=outputs,
                mode=self._modes(region)[1] if mode is None else mode,
                **{"spark_seconds": 10.0, **said},
            )
        )

    def is_finished(self, *, but: tuple[str, ...] = ()) -> Written:
        for name in self.plan.by_name:
            if name not in but:
                self.claims(name)
                self.finishes(name)
        return self

    def _inputs(self, region: RegionPlan) -> tuple[InputRef, ...]:
        return tuple(InputRef(name, 1) for name in region.inputs)


def asked(bundle: Bundle, old: str, new: str) -> dict[str, Any]:
    return bundle.answer(old, new, "--journal-only")


def notes(answer: Mapping[str, Any]) -> list[str]:
    return [note for job in answer["jobs"] for run in job["runs"] for note in run["notes"]]


def costs(answer: Mapping[str, Any]) -> dict[str, tuple[float | None, int | None, bool]]:
    (run,) = (run for job in answer["jobs"] for run in job["runs"])
    return {
        region["name"]: (region["cost"]["seconds"], region["cost"]["read"], region["cost"]["is_estimate"])
        for region in run["regions"]
    }


# split by split


def split_modes(region: RegionPlan) -> tuple[RegionMode, RegionMode]:
    if not isinstance(region.mode, SplitPlan):
        return BATCH, BATCH
    return SplitClaim(reading="r"), SplitOutcome((CommittedBatchRef(1, 0, ("a",)),))


def split_run(bundle: Bundle, version: str) -> Written:
    return Written(bundle, bundle.plan(version), split_modes)


NUMBERS = {"numbers[0]": "again", "numbers[1]": "again", "counted": "again"}


@pytest.mark.slow
def test_other_code_of_splits_reads_all_of_them_and_another_reader_none(bundle: Bundle) -> None:
    old = version(bundle, "old", SPLITS)
    split_run(bundle, old).is_finished()
    filtered = version(bundle, "filtered", SPLITS, ("number >= 0", "number >= 1"))
    answer = asked(bundle, old, filtered)
    assert effects(answer) == NUMBERS
    assert changes(answer) == {"numbers": ("changed", "numbers() changed at jobs/flights.py:14")}
    assert effects(asked(bundle, "journal", filtered)) == NUMBERS
    counted = version(bundle, "counted", SPLITS, (".count()", ".sum()"))
    assert effects(asked(bundle, old, counted)) == {"counted": "again"}
    # What is read of the lake, and how.
    moved = version(bundle, "moved", SPLITS, ("s3://lake/*.csv", "s3://lake/new/*.csv"))
    answer = asked(bundle, old, moved)
    assert effects(answer) == NUMBERS
    assert changes(answer)["lines"][1].startswith("splits pattern was" if False else "splits")
    smaller = version(
        bundle, "smaller", SPLITS, ('commit="split")\ndef lines', 'commit="split", batch_bytes=1)\ndef lines')
    )
    assert effects(asked(bundle, old, smaller)) == {}


@pytest.mark.slow
def test_a_job_that_is_read_as_a_whole_from_now_on_is_told(bundle: Bundle) -> None:
    old = version(bundle, "old", SPLITS)
    split_run(bundle, old).is_finished()
    whole = version(
        bundle,
        "whole",
        SPLITS,
        ('parallelism=2, commit="split")\ndef lines', "parallelism=2)\ndef lines"),
        ('commit="split", result=BLOCKING', "result=BLOCKING"),
    )
    answer = asked(bundle, old, whole)
    assert effects(answer) == NUMBERS
    assert changes(answer)["numbers"] == ("changed", 'commit="split" was true, now none')
    assert effects(asked(bundle, whole, old)) == {}  # back to what has made the run


@pytest.mark.slow
def test_another_number_of_subtasks_makes_all_of_them_again(bundle: Bundle) -> None:
    old = version(bundle, "old", SPLITS)
    split_run(bundle, old).is_finished()
    three = SPLITS.replace("parallelism=2", "parallelism=3")
    answer = asked(bundle, old, bundle.write("three", files={"jobs/flights.py": three}))
    assert effects(answer) == {**NUMBERS, "numbers[2]": "again"}
    # The third has never run: as long as the two together took, at most.
    assert costs(answer)["numbers[2]"] == (20.0, None, True)


@pytest.mark.slow
def test_a_finish_made_of_batches_of_several_attempts_costs_what_all_of_them_did(bundle: Bundle) -> None:
    old = version(bundle, "old", SPLITS)
    run = split_run(bundle, old).is_finished(but=("numbers[0]",))
    run.claims("numbers[0]", 1)
    run.journal.commit_batch(CommittedBatch("numbers[0]", 1, 0, "w", ("a",), (), AT, 30.0))
    run.journal.fence(Outcome("numbers[0]", 1, AttemptState.FENCED, "w", AT))
    run.claims("numbers[0]", 2, SplitClaim(base=(AdoptedBatches(1, 1),), reading="r"))
    run.finishes(
        "numbers[0]",
        2,
        SplitOutcome((CommittedBatchRef(1, 0, ("a",)), CommittedBatchRef(2, 0, ("b",)))),
        spark_seconds=40.0,  # with those of the batch that it adopted (`airflow_recovery.splits.region`)
        read=ReadMetrics(1, 100, None),
        externals=tuple(ExternalObject("lines", f"s3://lake/{each}.csv", 100, "e") for each in "ab"),
    )
    answer = asked(bundle, old, version(bundle, "new", SPLITS, ("number >= 0", "number >= 1")))
    assert costs(answer)["numbers[0]"] == (40.0, 200, False)


@pytest.mark.slow
def test_batches_of_an_unfinished_region_that_other_code_does_not_adopt_are_named(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = version(bundle, "old", SPLITS)
    run = split_run(bundle, old).is_finished(but=("numbers[1]", "counted"))
    run.claims("numbers[1]")
    run.journal.commit_batch(CommittedBatch("numbers[1]", 1, 0, "w", ("b",), (), AT, 30.0))
    run.journal.fence(Outcome("numbers[1]", 1, AttemptState.FENCED, "w", AT))
    new = version(bundle, "new", SPLITS, ("number >= 0", "number >= 1"))
    answer = asked(bundle, old, new)
    assert effects(answer) == {"numbers[0]": "again", "numbers[1]": "anyway", "counted": "anyway"}
    said = "numbers[1]: without the deploy it would go on from 1 committed batch, with it it starts over"
    assert notes(answer) == [said]
    assert notes(asked(bundle, "journal", new)) == [said]
    # Its code is the same: it goes on.
    assert notes(asked(bundle, old, version(bundle, "other", SPLITS, (".count()", ".sum()")))) == []
    # Control: without asking the mode, nobody says so.
    monkeypatch.setattr(deploy_impact, "story_of_region", lambda region: StoryMode())
    assert notes(asked(bundle, old, new)) == []


# streaming


def stream_modes(region: RegionPlan) -> tuple[RegionMode, RegionMode]:
    if not isinstance(region.mode, StreamingPlan):
        return BATCH, BATCH
    channels = tuple(ChannelRef(channel.result, 1) for channel in region.mode.channels)
    return StreamingClaim(channels, reading="r"), StreamingOutcome(channels)


def stream_run(bundle: Bundle, version: str) -> Written:
    return Written(bundle, bundle.plan(version), stream_modes)


ALL = {"events": "again", "scores": "again", "table": "again", "report": "again"}


@pytest.mark.slow
def test_other_code_of_one_streaming_region_begins_all_that_channels_connect_with_it(bundle: Bundle) -> None:
    old = version(bundle, "old", STREAMS)
    stream_run(bundle, old).is_finished()
    scored = version(bundle, "scored", STREAMS, ("id * 2", "id * 3"))
    answer = asked(bundle, old, scored)
    assert effects(answer) == ALL
    assert changes(answer) == {"scores": ("changed", "scores() changed at jobs/flights.py:16")}
    assert effects(asked(bundle, "journal", scored)) == ALL
    reported = version(bundle, "reported", STREAMS, (".count()", ".sum()"))
    assert effects(asked(bundle, old, reported)) == {"report": "again"}
    # How much may be lost is no part of what is computed.
    budget = version(bundle, "budget", STREAMS, ("max_lost_records=1000", "max_lost_records=5"))
    assert effects(asked(bundle, old, budget)) == {}


@pytest.mark.slow
def test_a_channel_that_is_a_written_result_from_now_on_and_back(bundle: Bundle) -> None:
    old = version(bundle, "old", STREAMS)
    written = version(
        bundle,
        "written",
        STREAMS,
        ("@flights.source(result=LATEST)", "@flights.source(result=BLOCKING)"),
        ("@flights.vertex(result=LATEST)", "@flights.vertex(result=BLOCKING)"),
    )
    stream_run(bundle, old).is_finished()
    answer = asked(bundle, old, written)
    assert effects(answer) == ALL
    assert changes(answer)["events"] == ("changed", 'result= was "PIPELINED_APPROXIMATE", now "BLOCKING"')


@pytest.mark.slow
def test_written_results_that_are_channels_from_now_on(bundle: Bundle) -> None:
    written = STREAMS.replace("result=LATEST", "result=BLOCKING")
    old = bundle.write("old", files={"jobs/flights.py": written})
    stream_run(bundle, old).is_finished()
    answer = asked(bundle, old, version(bundle, "new", STREAMS))
    assert effects(answer) == ALL


@pytest.mark.slow
def test_of_a_stream_that_went_on_the_seconds_are_a_least_number(bundle: Bundle) -> None:
    old = version(bundle, "old", STREAMS)
    run = stream_run(bundle, old)
    run.claims("events")
    run.journal.fence(Outcome("events", 1, AttemptState.FENCED, "w", AT))
    run.claims("events", 2)
    run.finishes("events", 2)
    run.is_finished(but=("events",))
    answer = asked(bundle, old, version(bundle, "new", STREAMS, ("id * 2", "id * 3")))
    assert effects(answer) == ALL
    assert costs(answer)["events"] == (10.0, None, True)
    assert costs(answer)["scores"] == (10.0, None, False)
    assert notes(answer) == ["events: attempt 2 went on from earlier ones: it takes at least as long"]


@pytest.mark.slow
def test_a_stream_at_work_is_not_disturbed_by_a_deploy_and_what_a_clear_of_it_gives_up_is_named(
    bundle: Bundle,
) -> None:
    old = version(bundle, "old", STREAMS)
    run = stream_run(bundle, old)
    for name in ("events", "scores", "table"):
        run.claims(name)
    same = version(bundle, "same", STREAMS, (".count()", ".sum()"))
    answer = asked(bundle, old, same)
    assert effects(answer) == dict.fromkeys(("events", "scores", "table", "report"), "anyway")
    assert notes(answer) == []
    answer = asked(bundle, old, version(bundle, "new", STREAMS, ("id * 2", "id * 3")))
    assert effects(answer) == dict.fromkeys(("events", "scores", "table", "report"), "anyway")
    assert notes(answer) == [
        "scores: without the deploy it would go on from what attempt 1 has read, with it it starts over"
    ]
