"""The account of a run's channels, of a live run and of one that has ended.

source ==raw==> scorer ==scored==> sink
"""

from __future__ import annotations

import pytest
from fakes import MemoryStore
from streaming_run import RUN, StreamingRun

from airflow_recovery.errors import ObjectMissing
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.object_store import StoredObject
from airflow_recovery.streaming.channel_records import LossCause
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.reading import batch_of, committed_outputs, read_channel
from airflow_recovery.streaming.run_channels import (
    ChannelReport,
    ChannelStanding,
    channel_reports,
    ledger_counters,
    run_channels,
)
from airflow_recovery.testing import CountingStore, Verb


def run_of(**options: object) -> StreamingRun:
    return StreamingRun(MemoryStore("memory://journal"), MemoryStore("memory://results"), **options)  # type: ignore[arg-type]


def reports(run: StreamingRun) -> dict[tuple[str, int], ChannelReport]:
    found = channel_reports(run.results, RUN, run.plan, run.state())
    return {(report.channel.edge, report.channel.generation): report for report in found}


def test_a_run_that_has_begun_nothing_has_channels_that_nobody_has_opened() -> None:
    found = reports(run_of())
    assert {report.standing for report in found.values()} == {ChannelStanding.NOT_OPENED}
    assert list(found) == [("raw", 1), ("scored", 1)]


def test_a_live_run() -> None:
    run = run_of()
    source, scorer = run.source(), run.scorer()
    run.emit(source, 5)
    scorer.work()
    run.emit(source, 3)
    raw = reports(run)["raw", 1]
    assert raw.standing is ChannelStanding.OPEN
    assert (raw.published, raw.committed, raw.loss.behind, raw.loss.lost) == (8, 5, 3, 0)
    assert (raw.producer_attempt, raw.consumer_attempt) == (1, 1)
    assert reports(run)["scored", 1].consumer_attempt == 0


def test_a_run_that_has_ended() -> None:
    run = run_of()
    run.to_the_end()
    for report in reports(run).values():
        assert report.standing is ChannelStanding.DRAINED
        assert (report.published, report.committed, report.loss.behind) == (20, 20, 0)
        assert report.budget_used() == "no budget was set"


def test_lost_by_cause_and_the_budget_used() -> None:
    run = run_of(reconnect=Reconnect.LATEST, budget=LossBudget(max_lost_records=10, max_lost_fraction=0.5))
    source, scorer = run.source(), run.scorer()
    run.emit(source, 6)
    scorer.work()
    run.emit(source, 4)  # nobody reads them: the next attempt goes on at the head
    scorer = run.scorer()
    run.emit(source, 6)
    scorer.work()
    raw = reports(run)["raw", 1]
    assert raw.loss.causes == ((LossCause.RECONNECT, 4),)
    assert raw.consumer_attempt == 2
    assert raw.budget_used() == "4 of 10 records; 25.00% of 50.00%"
    assert dict(ledger_counters(raw)) == {
        "published": 16, "committed": 12, "behind": 0, "lost.reconnect": 4, "unknown": 0, "lost": 4, "budget_used": 0.4,
    }  # fmt: skip


def test_what_nobody_can_know_is_no_zero() -> None:
    run = run_of(replays=False)
    run.emit(run.source(), 3)
    run.source()
    raw = reports(run)["raw", 1]
    assert raw.unknown == 1
    assert raw.to_json()["lost_records"] is None
    assert raw.to_json()["unknown_at_producer_attempts"] == [2]
    counters = dict(ledger_counters(raw))
    assert counters["unknown"] == 1
    assert "lost" not in counters


def test_generations_that_started_over_stay_in_the_account_and_do_not_count() -> None:
    run = run_of()
    run.emit(run.source(), 5)
    run.new_generation()
    run.emit(run.source(), 2)
    found = reports(run)
    # The source had one attempt, so its new generation is number 2; nobody had claimed the scorer.
    assert found["raw", 1].standing is ChannelStanding.ABANDONED
    assert not found["raw", 1].channel.counts
    assert (found["raw", 2].published, found["raw", 2].channel.is_newest) == (2, True)


def test_an_altered_channel_counts_in_both_generations() -> None:
    run = run_of()
    run.emit(run.source(), 5)
    run.alter("source")
    run.emit(run.source(), 2)
    raw = [channel for channel in run_channels(run.plan, run.state()) if channel.edge == "raw"]
    assert [(channel.generation, channel.counts, channel.is_newest) for channel in raw] == [
        (1, True, False),
        (2, True, True),
    ]


def test_the_account_lists_nothing_and_reads_each_slot_about_once() -> None:
    run = run_of()
    run.to_the_end()
    store = CountingStore(run.results)
    state = read_channel(store, run.client("raw").identity)
    assert state.slots > 10
    assert state == run.client("raw").refresh()
    assert set(store.counts()) == {Verb.GET}
    assert store.count(Verb.GET) <= 2 * state.slots + 1


class BlindToNew(CountingStore):
    """It answers a peek at one slot wrongly, as a cache before a store may."""

    def __init__(self, inner: ObjectStore, slot: int) -> None:
        super().__init__(inner)
        self.slot: int | None = slot

    def peek(self, key: str) -> StoredObject:
        if self.slot is not None and key.endswith(f"/log/{self.slot:08d}"):
            self.slot = None
            raise ObjectMissing(key)
        return self.inner.get(key)


def test_who_concludes_from_the_end_of_a_log_has_it_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of()
    run.to_the_end()
    identity = run.client("raw").identity
    whole = read_channel(run.results, identity)
    assert read_channel(BlindToNew(run.results, 4), identity) == whole

    monkeypatch.setattr(ChannelClient, "is_end", lambda self: True)
    assert read_channel(BlindToNew(run.results, 4), identity).slots == 4  # control: it takes the first answer


def test_committed_outputs_are_what_commits_name() -> None:
    run = run_of()
    source, scorer, sink = run.source(), run.scorer(), run.sink()
    client = run.client("scored")
    assert committed_outputs(client) == ()
    for _ in range(2):
        run.emit(source, 4)
        scorer.work()
        run.sink_all(sink)
    client.put("out/1/2-abc/part-0.parquet", b"written, and no commit names it")
    assert committed_outputs(client) == tuple(run.committed)
    assert committed_outputs(client, newest_batch=True) == tuple(run.committed)[-1:]


def test_the_batch_of_an_output() -> None:
    assert batch_of("out/3/17-abc/part-0.parquet") == 17
    assert batch_of("out/3/17-abc") == 17
    with pytest.raises(ValueError, match="expected an output"):
        batch_of("seg/3/17-abc/0")
