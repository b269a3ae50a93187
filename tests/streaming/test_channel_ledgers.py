"""What is told of the loss ledgers of a run, over real control logs."""

from __future__ import annotations

import pytest
from channel_consumer import ChannelConsumer
from channel_ends import SUBS, Source, client, drain

from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import ObjectStore
from airflow_recovery.story.mode import ChannelView
from airflow_recovery.streaming import describe as channels_module
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.describe import LedgerReader, channels_of
from airflow_recovery.streaming.producer import ChannelProducer
from airflow_recovery.testing import CountingStore

RUN = RunIdentity("dag", "2024-01-01", "group")


def sink(store: ObjectStore, attempt: int = 1, reconnect: Reconnect = Reconnect.REWIND, edge: str = "raw") -> None:
    """One attempt of the consumer, which reads what there is."""
    consumer = ChannelConsumer(client(store, edge), attempt)
    consumer.connect(reconnect)
    drain(consumer, 4)


def identity(edge: str = "raw") -> ChannelIdentity:
    return ChannelIdentity(RUN, edge, 1)


def test_a_run_without_channels_has_no_ledger(local_store: ObjectStore) -> None:
    local_store.put("_channels/dag/2024-01-02/group/raw/1/log/00000000", b"another run's")
    assert channels_of(local_store, RUN) == ()


def test_committed_lost_and_behind_of_each_channel(store: ObjectStore) -> None:
    source = Source(store, budget=LossBudget(max_lost_records=100))
    source.emit(*range(10))
    sink(store)
    source.emit(*range(10, 14))
    sink(store, 2, Reconnect.LATEST)
    source.emit(*range(14, 20))
    Source(store, edge="errors & more").emit(1, 2, 3)

    errors, raw = channels_of(store, RUN)

    assert (errors.edge, errors.committed, errors.lost, errors.behind) == ("errors & more", 0, 0, 3)
    assert errors.verdict == "no budget was set"
    assert raw.committed + raw.lost + raw.behind == 20
    assert (raw.committed, raw.lost, raw.causes) == (10, 4, (("reconnect", 4),))
    assert (raw.unknown, raw.verdict, raw.problem) == ((), "within the budget", None)


def test_earlier_generations_are_told_and_whether_they_count(local_store: ObjectStore) -> None:
    Source(local_store).emit(*range(4))
    newer = ChannelProducer(client(local_store, generation=2), 1)
    newer.open(subpartitions=SUBS, schema="int")

    told = channels_of(local_store, RUN, counting=lambda: {("raw", 2)})

    assert [(channel.generation, channel.is_newest, channel.counts, channel.behind) for channel in told] == [
        (1, False, False, 4),
        (2, True, True, 0),
    ]
    assert {channel.counts for channel in channels_of(local_store, RUN)} == {None}


def test_what_is_not_known_is_never_told_as_none(local_store: ObjectStore) -> None:
    Source(local_store).emit(*range(4))
    second = ChannelProducer(client(local_store), 2)
    second.open(subpartitions=SUBS, schema="int", replays=False)
    sink(local_store)
    (found,) = channels_of(local_store, RUN)
    assert (found.committed, found.lost, found.unknown) == (4, 0, (2,))


def test_a_look_reads_what_is_new_and_no_more(local_store: ObjectStore) -> None:
    counted = CountingStore(local_store)
    source = Source(local_store)
    for at in range(10):
        source.emit(at, at)
    reader = LedgerReader(counted, identity())
    assert reader.look().behind == 20
    source.emit(1)
    counted.clear()
    assert reader.look().behind == 21
    assert sum(counted.counts().values()) <= 4


def test_a_long_log_is_read_in_several_looks(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels_module, "MOST_SLOTS", 5)
    source = Source(local_store)
    for _ in range(20):
        source.emit(0, 1)
    reader = LedgerReader(local_store, identity())
    looks = [reader.look() for _ in range(5)]
    assert not looks[0].is_whole
    assert (looks[-1].is_whole, looks[-1].behind) == (True, 40)
    assert looks[0].behind < looks[1].behind


def test_a_run_that_was_purged_and_started_over_is_read_anew(local_store: ObjectStore) -> None:
    reader = LedgerReader(local_store, identity())
    Source(local_store).emit(*range(8))
    assert reader.look().behind == 8
    local_store.delete([each.key for each in local_store.list("_channels/")])
    Source(local_store).emit(1)
    assert reader.look().behind == 1


def test_a_damaged_log_is_told_as_far_as_it_goes(local_store: ObjectStore) -> None:
    source = Source(local_store)
    source.emit(*range(8))
    local_store.put(source.producer.client.folder.slot(2), b'{"format": 99}')
    Source(local_store, edge="whole").emit(1)
    damaged, whole = channels_of(local_store, RUN)
    assert damaged.behind == 8
    assert damaged.problem is not None
    assert "newer version" in damaged.problem
    assert whole == ChannelView("whole", 1, behind=1, verdict="no budget was set")


def test_a_store_that_denies_is_no_empty_ledger(local_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    Source(local_store).emit(1)

    def denied(*arguments: object, **named: object) -> None:
        raise StoreAccessDenied("may not read")

    monkeypatch.setattr(local_store, "get", denied)
    with pytest.raises(StoreAccessDenied):
        channels_of(local_store, RUN)
