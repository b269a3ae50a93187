"""What channels leave behind, and when a sweep may have it.

source ==raw==> scorer ==scored==> sink
"""

from __future__ import annotations

from typing import Any

import pytest
from clocked import DAY_S, HOUR_S, Clock, ClockedStore
from streaming_run import RUN, StreamingRun

from airflow_recovery.model.retention import Retention
from airflow_recovery.results.sweep import Sweeper
from airflow_recovery.results.sweep_report import SweepReport
from airflow_recovery.results.swept_run import SweepOptions
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.streaming.folder import CheckpointFolder
from airflow_recovery.streaming.results import StreamingResults


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(clock: Clock) -> StreamingRun:
    return StreamingRun(ClockedStore("memory://journal", clock), ClockedStore("memory://results", clock))


def sweep(run: StreamingRun, **options: object) -> SweepReport:
    given = {"retention": Retention.keep(), **options}
    return Sweeper(run.journal_store, run.results, SweepOptions(**given)).sweep()  # type: ignore[arg-type]


def told(report: SweepReport) -> dict[str, str]:
    return {entry.what.rpartition(" / ")[2]: f"{entry.action.value}: {entry.why}" for entry in report.entries}


def objects(run: StreamingRun, *kinds: str) -> list[str]:
    """Keys below the run's channels, without the prefix."""
    prefix = run.journal().layout.channels
    found = [channel.key[len(prefix) :] for channel in run.results.list(prefix)]
    return [each for each in found if not kinds or each.split("/")[2] in kinds or each.split("/")[0] in kinds]


def orphan(run: StreamingRun, key: str = "seg/1/dead-000001/0") -> str:
    """What a process has written that was killed before its record."""
    client = run.client("raw")
    client.put(key, b"[1]")
    return client.folder.object(key)


def has(run: StreamingRun, key: str) -> bool:
    return any(each.key == key for each in run.results.list(key))


def checkpoint(run: StreamingRun, region: str, attempt: int) -> ObjectInfo:
    return run.results.put(f"{CheckpointFolder(RUN, region).attempt(str(attempt))}/checkpoint/offsets/0", b"{}")


def test_nothing_of_an_open_channel_goes_however_old(run: StreamingRun, clock: Clock) -> None:
    source, scorer = run.source(), run.scorer()
    run.emit(source, 5)
    scorer.work()
    kept = orphan(run, "seg/1/looks-dead/0")
    before = objects(run)
    clock.passes(300 * DAY_S)
    found = told(sweep(run, retention=Retention.as_consumed()))
    assert found["channel raw, generation 1"] == "kept: it is open"
    assert objects(run) == before
    assert has(run, kept)


def test_control_without_asking_whether_it_is_open_live_segments_go(
    run: StreamingRun, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, scorer = run.source(), run.scorer()
    run.emit(source, 5)
    monkeypatch.setattr("airflow_recovery.streaming.results._ChannelSweep._why_all", lambda *_: "swept blindly")
    clock.passes(DAY_S)
    sweep(run)
    assert objects(run, "seg") == []
    with pytest.raises(Exception, match="was deleted from outside"):
        scorer.work()


def test_orphans_of_a_channel_that_has_ended_go_and_what_is_named_stays(run: StreamingRun, clock: Clock) -> None:
    source, scorer = run.source(), run.scorer()
    run.emit(source, 5)
    dead = orphan(run)
    source.finish()
    clock.passes(2 * HOUR_S)
    found = [f"{entry.action.value}: {entry.why}" for entry in sweep(run).entries if "channel raw" in entry.what]
    assert found == [
        "kept: its records name them, and its consumer has not finished",
        "deleted: no record names it",
    ]
    assert not has(run, dead)
    scorer.work()  # everything is there for it
    assert scorer.input.is_drained


def test_orphans_within_the_grace_time_stay(run: StreamingRun, clock: Clock) -> None:
    source = run.source()
    run.emit(source, 5)
    clock.passes(2 * HOUR_S)
    young = orphan(run)
    source.finish()
    assert "within the grace time of 1h" in told(sweep(run))["channel raw, generation 1"]
    assert has(run, young)


def test_when_the_consumer_has_finished_the_data_goes_and_the_ledger_stays(run: StreamingRun, clock: Clock) -> None:
    run.to_the_end()
    for region in ("source", "scorer", "sink"):
        checkpoint(run, region, 1)
    logs = objects(run, "log")
    clock.passes(2 * HOUR_S)
    found = told(sweep(run))
    assert found["channel scored, generation 1"] == "deleted: its consumer sink@1 has finished"
    assert found["checkpoints of scorer@1"] == "deleted: scorer@1 has finished"
    assert objects(run) == logs != []
    # The result is beside the channels, and is kept by its own rule.
    assert found["sink@1"].startswith("kept: ")


def test_a_dry_run_deletes_nothing(run: StreamingRun, clock: Clock) -> None:
    run.to_the_end()
    before = objects(run)
    clock.passes(2 * HOUR_S)
    assert told(sweep(run, dry_run=True))["channel raw, generation 1"].startswith("deleted: ")
    assert objects(run) == before


def test_a_generation_that_was_left_goes_and_the_one_of_now_stays(run: StreamingRun, clock: Clock) -> None:
    run.emit(run.source(), 5)
    checkpoint(run, "source", 1)
    run.new_generation()
    run.emit(run.source(), 5)
    checkpoint(run, "source", 2)
    clock.passes(2 * HOUR_S)
    found = told(sweep(run))
    assert found["channel raw, generation 1"] == "deleted: both sides have started over since"
    assert found["channel raw, generation 2"] == "kept: it is open"
    assert found["checkpoints of source@1"] == "deleted: the region has started over since"
    assert found["checkpoints of source@2"] == "kept: the next attempt goes on from them"
    assert {key.split("/")[1] for key in objects(run, "seg")} == {"2"}


def test_checkpoints_of_an_attempt_that_died_stay_for_the_next_one(run: StreamingRun, clock: Clock) -> None:
    run.source()
    checkpoint(run, "source", 1)
    run.source()
    clock.passes(2 * HOUR_S)
    assert told(sweep(run))["checkpoints of source@1"] == "kept: the next attempt goes on from them"


def test_a_purge_leaves_nothing_of_the_channels(run: StreamingRun, clock: Clock) -> None:
    run.to_the_end()
    checkpoint(run, "source", 1)
    clock.passes(31 * DAY_S)
    sweep(run, purge_older_than_s=30 * DAY_S)
    assert objects(run, "log")
    clock.passes(2 * HOUR_S)
    sweep(run, purge_older_than_s=30 * DAY_S)
    assert objects(run) == []
    # What is left is the mark of the start-up probe, which is the store's and no run's.
    assert [each.key for each in run.results.list("")] == ["_probe/raced"]


def test_a_run_that_came_back_while_it_was_purged_keeps_its_new_channels(run: StreamingRun, clock: Clock) -> None:
    run.to_the_end()
    clock.passes(31 * DAY_S)
    sweep(run, purge_older_than_s=30 * DAY_S)
    clock.passes(2 * HOUR_S)

    listed = StreamingResults.purged

    def late(*args: Any, **options: Any) -> object:
        # Between the sweep's look at the journal and its look at the data a new attempt claims and writes.
        run.emit(run.source(), 3)
        return listed(*args, **{**options, "has_come_back": True})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamingResults, "purged", late)
        sweep(run, purge_older_than_s=30 * DAY_S)
    assert {(key.split("/")[0], key.split("/")[1]) for key in objects(run)} == {("raw", "2")}


def test_what_is_no_channels_is_left_alone(run: StreamingRun, clock: Clock) -> None:
    run.source()
    key = f"{run.journal().layout.channels}notes.txt"
    run.results.put(key, b"mine")
    clock.passes(300 * DAY_S)
    sweep(run)
    assert has(run, key)


def test_the_layouts_of_journal_and_channels_agree(run: StreamingRun) -> None:
    assert run.client("raw").folder.prefix == f"{run.journal().layout.channels}raw/1"
    assert CheckpointFolder(RUN, "scorer").attempt("2") == f"{run.journal().layout.channels}_stages/scorer/2"
