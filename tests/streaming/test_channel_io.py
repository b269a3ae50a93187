"""A channel on every kind of store: what a store answers, or does not, and what that does to the account."""

from __future__ import annotations

import math
import threading

import pytest
from channel_consumer import ChannelConsumer
from channel_ends import Source, bodies, client, committed_rows, drain, lost_rows, rows_of, sink_batch
from expected_errors import fails_with

from airflow_recovery.errors import (
    ChannelEvicted,
    ChannelFailed,
    ChannelInconsistent,
    StoreTimeout,
)
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.log import PutAnswer, PutSlot
from airflow_recovery.streaming import producer
from airflow_recovery.streaming.appending import ChannelLog
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.folder import ChannelFolder
from airflow_recovery.streaming.ledger import loss_report
from airflow_recovery.streaming.producer import ChannelProducer
from airflow_recovery.streaming.producing import publish
from airflow_recovery.streaming.sweep import sweep
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, SeededFaults, Verb
from airflow_recovery.testing.patience import HANG_S


def sink(store: ObjectStore, attempt: int = 1, reconnect: Reconnect = Reconnect.REWIND) -> ChannelConsumer:
    consumer = ChannelConsumer(client(store), attempt)
    consumer.connect(reconnect)
    return consumer


def test_what_is_published_is_committed_once_and_let_go(store):
    source, reader = Source(store), None
    source.emit(*range(10))
    reader = sink(store)
    drain(reader, 4)
    source.emit(*range(10, 15))
    drain(reader, 4)
    source.producer.finish()
    drain(reader)
    assert reader.is_drained
    assert sorted(committed_rows(store)) == list(range(15))
    # All but the last batch's is released, and gone from the store.
    prefix = reader.client.folder.prefix
    assert {each.key for each in store.list(f"{prefix}/seg/")} == {
        f"{prefix}/{key}" for key in reader.client.state.retained
    }
    assert len(reader.client.state.retained) <= 2


def test_rewind_loses_nothing(local_store):
    """Attempt 2 goes on where attempt 1 committed, whatever attempt 1 has planned."""
    source = Source(local_store)
    source.emit(*range(10))
    first = sink(local_store)
    drain(first, 4)
    source.emit(*range(10, 20))
    assert first.next_batch(4) is not None
    drain(sink(local_store, 2), 4)
    assert sorted(committed_rows(local_store)) == list(range(20))
    assert lost_rows(local_store, source.sent) == []


def test_control_of_rewind_a_consumer_that_goes_on_at_the_head_misses_rows(local_store):
    source = Source(local_store)
    source.emit(*range(10))
    sink(local_store)
    drain(sink(local_store, 2, Reconnect.LATEST))
    assert committed_rows(local_store) == []
    assert sorted(lost_rows(local_store, source.sent)) == list(range(10))


def test_overflow_loses_what_was_dropped_and_nothing_else(store):
    source = Source(store, overflow=Overflow.DROP, max_bytes=60)
    reader = sink(store)
    for first in range(0, 60, 10):
        source.emit(*range(first, first + 10))
        if first == 10:
            sink_batch(reader, reader.next_batch(4))
    drain(reader)
    committed, lost = committed_rows(store), lost_rows(store, source.sent)
    assert len(lost) > 0
    assert sorted(committed + lost) == list(range(60))
    assert {each.cause.value for each in reader.client.state.ledger} == {"overflow"}


def test_a_producer_that_blocks_goes_on_when_the_consumer_has_committed(local_store):
    store = local_store
    source = Source(store, max_bytes=40)
    source.emit(*range(10))
    source.emit(*range(10, 12))
    waits = threading.Thread(target=source.emit, args=range(12, 30), daemon=True)
    waits.start()
    drain(sink(store))
    waits.join(HANG_S)
    assert not waits.is_alive()
    drain(sink(store, 2))
    assert sorted(committed_rows(store)) == list(range(30))


def test_a_producer_whose_consumer_never_comes_fails_by_name(local_store):
    """Without a slot for the consumer nobody hangs for ever."""
    source = Source(local_store, max_bytes=10, block_timeout_s=0.0)
    source.emit(*range(10))
    with fails_with("consumer-takes-nothing"):
        source.emit(*range(10, 20))


class StillWaits(Exception):
    """A week has passed."""


def test_control_of_a15_without_its_timeout_a_producer_waits_for_ever(local_store):
    source = Source(local_store, max_bytes=10, block_timeout_s=math.inf)
    source.emit(*range(10))
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += 3600.0
        if now_s > 7 * 24 * 3600.0:
            raise StillWaits

    source.producer.client.clock, source.producer.client.sleep = (lambda: now_s), sleep
    with pytest.raises(StillWaits):
        source.emit(*range(10, 20))


def test_a_producer_that_gave_up_is_told_once_everything_was_read(local_store):
    source = Source(local_store)
    source.emit(1, 2)
    source.producer.give_up("no licence")
    reader = sink(local_store)
    sink_batch(reader, reader.next_batch())
    with pytest.raises(ChannelFailed, match="no licence"):
        reader.next_batch()


def test_fault_58_a_budget_stops_before_the_commit(local_store):
    source = Source(local_store, budget=LossBudget(max_lost_records=5))
    source.emit(*range(4))
    drain(sink(local_store))
    source.emit(*range(4, 10))
    late = sink(local_store, 2, Reconnect.LATEST)
    with fails_with("checkpoint-over-budget"):
        late.next_batch()
    assert sorted(committed_rows(local_store)) == list(range(4))
    assert loss_report("raw", late.client.state).lost == 0
    drain(sink(local_store, 3))  # with rewind nothing has to be lost
    assert sorted(committed_rows(local_store)) == list(range(10))


def test_fault_13_of_two_producers_one_stops(local_store):
    source = Source(local_store)
    source.emit(1, 2)
    newer = Source(local_store, 2)
    with pytest.raises(ChannelEvicted):
        source.emit(3, 4)
    newer.emit(3, 4)
    drain(sink(local_store))
    assert sorted(committed_rows(local_store)) == [1, 2, 3, 4]


def test_an_epoch_that_was_published_is_not_written_again(local_store):
    Source(local_store).emit(1, 2)
    again = Source(local_store, 2)
    assert again.producer.publish(0, [producer.SegmentBody(0, 1, b"[1]")]) is False
    assert len(list(local_store.list(f"{client(local_store).folder.prefix}/seg/"))) == 2


# --- the store's answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.LOST_REPLY_THEN_RETRIED, FaultKind.TIMEOUT])
def test_fault_24_the_reply_of_every_write_is_lost_once(kind, local_store):
    """Each record is found to be ours, or written again, and never twice."""
    faults = [Fault(Verb.PUT_IF_ABSENT, kind, key=f"/log/{slot:08d}") for slot in range(40)]
    store = FaultyStore(local_store, faults)
    source = Source(store)
    for first in (0, 10, 20):
        source.emit(*range(first, first + 10))
    drain(sink(store), 7)
    assert sorted(committed_rows(local_store)) == list(range(30))


def test_control_of_fault_24_a_lost_reply_that_is_taken_for_a_lost_race(local_store, monkeypatch):
    def put(self, slot, body):
        return (yield PutSlot(slot, body)) is PutAnswer.CREATED

    monkeypatch.setattr(ChannelLog, "_put", put)
    store = FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.LOST_REPLY, key="/log/")])
    with pytest.raises(ChannelEvicted):  # by itself
        Source(store)


def test_fault_24_a_store_that_never_answers_is_given_up(local_store):
    clock = iter(range(1000))
    store = FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.TIMEOUT, key="/log/", times=None)])
    endless = client(store, deadline_s=5.0, clock=lambda: next(clock), sleep=lambda _: None)
    with pytest.raises(StoreTimeout):
        ChannelProducer(endless, 1).open(subpartitions=1, schema="int")


@pytest.mark.parametrize("seed", range(4))
def test_random_answers_of_the_store_leave_the_account_exact(seed, local_store):
    store = SeededFaults(local_store, seed, rate=0.3, limit=25)
    for attempt in range(1, 60):
        try:
            source = Source(store, attempt)
            while source.producer.client.state.epoch < 4:
                first = 10 * (source.producer.client.state.epoch + 1)
                source.emit(*range(first, first + 10))
            drain(sink(store, attempt), 7)
            break
        except Exception as error:
            if "injected" not in str(error):
                raise
    assert sorted(committed_rows(local_store)) == list(range(50))


def test_fault_25_a_store_without_conditional_writes_is_refused(local_store):
    store = FaultyStore(local_store, ignores_if_none_match=True)
    with fails_with("no-conditional-writes"):
        Source(store)


def test_control_of_fault_25_without_the_probe_two_producers_both_win(local_store, monkeypatch):
    monkeypatch.setattr(producer, "probe", lambda store: None)
    store = FaultyStore(local_store, ignores_if_none_match=True)
    Source(store)
    clients = [client(store), client(store)]
    written = [[producer.WrittenSegment(0, 0, f"seg/1/{number}/0", 1, 1)] for number in range(2)]

    def both(number):
        def prepare(state):
            if number == 0 and len(clients) == 2:  # the other one writes while we prepare
                clients.pop().append(both(1))
            return publish(state, 1, number, written[number])

        return prepare

    clients[0].append(both(0))
    assert list(client(store).refresh().retained) == ["seg/1/0/0"]  # the other's epoch is gone, and it does not know


def test_a_segment_that_was_deleted_from_outside_is_an_error_and_never_fewer_rows(store):
    source = Source(store)
    source.emit(*range(10))
    reader = sink(store)
    batch = reader.next_batch()
    store.delete([reader.client.folder.object(batch.slices[0].key)])
    with pytest.raises(ChannelInconsistent, match="deleted from outside"):
        sink_batch(reader, batch)
    assert committed_rows(store) == []


def test_an_evicted_reader_that_misses_a_segment_is_told_that_it_was_evicted(local_store):
    source = Source(local_store)
    source.emit(*range(10))
    old = sink(local_store)
    batch = old.next_batch()
    newer = sink(local_store, 2)
    drain(newer, 4)
    source.emit(11)
    drain(newer)
    with pytest.raises(ChannelEvicted):
        sink_batch(old, batch)


def chain(store: ObjectStore, attempt: int) -> tuple[ChannelProducer, ChannelConsumer]:
    """The scorer's two ends; the output is open, the input is not connected yet."""
    output = ChannelProducer(client(store, "scores"), attempt)
    output.open(subpartitions=2, schema="int")
    return output, ChannelConsumer(client(store), attempt)


def dies_between_two_logs(store: ObjectStore) -> Source:
    """Attempt 1 of a scorer has published its output, and has not committed its input."""
    source = Source(store)
    source.emit(*range(10))
    output, reader = chain(store, 1)
    reader.connect(output=output.client)
    batch = reader.next_batch()
    output.publish(batch.number, bodies(rows_of(reader, batch)), (batch.consumed,))
    return source


def scores(store: ObjectStore, reader: ChannelConsumer, output: ChannelProducer) -> list[int]:
    """What the sink gets, once the scorer has done what there is to do."""
    while (batch := reader.next_batch()) is not None:
        rows = rows_of(reader, batch)
        output.publish(batch.number, bodies(rows), (batch.consumed,))
        reader.commit(batch, tuple(map(len, rows)))
    last = ChannelConsumer(client(store, "scores"), 1)
    last.connect()
    drain(last)
    return sorted(committed_rows(store, "scores"))


def test_death_between_two_logs_neither_loses_nor_repeats(store):
    dies_between_two_logs(store)
    output, reader = chain(store, 2)
    reader.connect(output=output.client)
    assert scores(store, reader, output) == list(range(10))


def test_control_of_death_between_two_logs_a_view_that_does_not_know_the_output(local_store):
    dies_between_two_logs(local_store)
    output, reader = chain(local_store, 2)
    reader.connect()
    reader._next = output.client.state.epoch + 1
    assert scores(local_store, reader, output) == sorted([*range(10)] * 2)


def test_what_a_crash_has_left_is_swept_at_the_end_and_nothing_else(store):
    source = Source(store)
    source.emit(*range(4))
    abandoned = [f"seg/1/crashed-{number}/0" for number in range(2)]
    for key in [*abandoned, "out/1/crashed"]:
        source.producer.client.put(key, b"[]")
    reader = sink(store)
    drain(reader, 3)
    assert sweep(client(store)) == 0  # the newest attempts may still name what they have written
    source.producer.finish()
    assert sweep(client(store)) == 3
    assert sweep(client(store)) == 0
    assert sorted(committed_rows(store)) == list(range(4))


def test_nothing_is_listed_and_an_epoch_costs_few_requests(local_store):
    counting = CountingStore(local_store)
    source = Source(counting)
    reader = sink(counting)
    source.emit(1, 2)
    drain(reader)
    counting.clear()
    for _ in range(10):
        source.emit(1, 2)
        drain(reader)
    assert counting.count(Verb.LIST) == 0
    counts = counting.counts()
    # Of the producer: 2 segments, 1 record. Of the consumer: plan, output, commit, release, 2 reads, 1 deletion.
    assert counts[Verb.PUT_IF_ABSENT] == 10 * 4
    assert counts[Verb.PUT] == 10 * 3
    assert counts[Verb.DELETE] == 10
    assert counts[Verb.GET] <= 10 * 20


def test_who_comes_late_reads_ahead_and_nobody_else(local_store):
    counting = CountingStore(local_store)
    source = Source(counting)
    counting.clear()
    for number in range(100):
        source.emit(number)
    # Of each epoch: is it there, is there room, and which slot is free.
    assert counting.count(Verb.GET) == 300
    counting.clear()
    assert client(counting).refresh().slots == 101
    assert 102 <= counting.count(Verb.GET) <= 102 + 32


def test_threads_that_write_at_once_fill_every_slot_once(store):
    Source(store)
    errors: list[Exception] = []

    def epochs(number: int) -> None:
        writer = client(store)
        for turn in range(4):
            key = f"seg/1/{number}-{turn}/0"

            def next_one(state, key=key):
                return publish(state, 1, state.epoch + 1, [producer.WrittenSegment(0, 0, key, 1, 1)])

            try:
                writer.append(next_one)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=epochs, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for candidate in threads:
        candidate.join()
    assert errors == []
    state = client(store).refresh()
    assert state.ends[0] == state.epoch + 1 == len(state.retained) == 16
    assert state.void == []


def test_channels_do_not_share_a_folder():
    run = RunIdentity("dag", "2024-01-01", "group")
    identities = [
        ChannelIdentity(run, "a", 1),
        ChannelIdentity(run, "a", 2),
        ChannelIdentity(run, "a/1", 1),
        ChannelIdentity(run, "../a", 1),
        ChannelIdentity(RunIdentity("dag", "2024-01-01", "group/a"), "1", 1),
    ]
    folders = {ChannelFolder(identity).prefix for identity in identities}
    assert len(folders) == len(identities)
    assert not any(".." in folder.split("/") for folder in folders)


def test_a_client_says_which_channel_it_is(local_store):
    assert isinstance(client(local_store, "scores"), ChannelClient)
    assert client(local_store, "scores").identity.edge == "scores"
