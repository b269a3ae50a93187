"""The write-once log: what one process appends another one folds, and what that asks of a store."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.log import PutAnswer, PutSlot, ReadBack, ReadSlot, WriteOnceLog, fill
from airflow_recovery.store.write_once import AHEAD, ListedSlots, PeekedSlots, Slots
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb
from airflow_recovery.testing.patience import HANG_S

PREFIX = "log/"
KINDS = [Slots, ListedSlots, PeekedSlots]


class Numbers(WriteOnceLog[list[int]]):
    """A log of numbers; its state is all of them."""

    def __init__(self, writer: str) -> None:
        super().__init__([])
        self.writer = writer

    def encode(self, slot: int, record: int) -> bytes:
        return json.dumps([self.writer, record]).encode()

    def fold(self, slot: int, body: bytes) -> None:
        self.state.append(json.loads(body)[1])


class Process:
    """One process, with its log."""

    def __init__(self, store: ObjectStore, writer: str, kind: type[Slots] = Slots) -> None:
        self.slots, self.log = kind(store, PREFIX), Numbers(writer)

    def read(self, most: int | None = None) -> list[int]:
        return self.slots.run(self.log.refresh(most))

    def append(self, decide: Callable[[list[int]], int | None]) -> int | None:
        return self.slots.run(self.log.append(decide))


def fill_up(store: ObjectStore, count: int) -> None:
    for slot in range(count):
        store.put(f"{PREFIX}{slot:08d}", json.dumps(["before", slot]).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_what_one_process_appends_another_one_folds(store: ObjectStore, kind: type[Slots]) -> None:
    mine, other = Process(store, "mine", kind), Process(store, "other", kind)
    assert mine.append(lambda numbers: 7) == 7
    assert other.append(lambda numbers: numbers[-1] + 1) == 8
    assert other.append(lambda numbers: None) is None
    assert mine.read() == other.read() == [7, 8]
    assert [info.key for info in store.list()] == ["log/00000000", "log/00000001"]


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_append_at_once_each_decide_with_all_before(store: ObjectStore, kind: type[Slots]) -> None:
    start = threading.Barrier(4)

    def count_up(writer: int) -> None:
        process = Process(store, str(writer), kind)
        start.wait(HANG_S)
        for _ in range(5):
            process.append(len)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, range(4)))
    assert Process(store, "reader", kind).read() == list(range(20))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [FaultKind.LOST_REPLY, FaultKind.LOST_REPLY_THEN_RETRIED, FaultKind.TIMEOUT])
def test_a_write_that_loses_its_reply_is_done_once(
    local_store: LocalStore, kind: type[Slots], fault: FaultKind
) -> None:
    process = Process(FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, fault)]), "mine", kind)
    assert process.append(len) == 0
    assert process.append(len) == 1
    assert Process(local_store, "reader").read() == [0, 1]
    assert process.log.lost_races == 0


@pytest.mark.parametrize(
    ("kind", "requests"),
    [
        (Slots, {Verb.GET: 4}),
        (ListedSlots, {Verb.LIST: 1, Verb.GET: 3}),
        (PeekedSlots, {Verb.GET: 4}),
    ],
)
def test_what_a_first_reading_of_three_records_asks(
    local_store: LocalStore, kind: type[Slots], requests: dict[Verb, int]
) -> None:
    fill_up(local_store, 3)
    counting = CountingStore(local_store)
    assert Process(counting, "reader", kind).read() == [0, 1, 2]
    assert counting.counts() == requests


@pytest.mark.parametrize(
    ("kind", "requests"), [(Slots, {Verb.GET: 1}), (ListedSlots, {Verb.LIST: 1}), (PeekedSlots, {Verb.GET: 1})]
)
def test_a_look_at_what_has_not_grown_is_one_request(
    local_store: LocalStore, kind: type[Slots], requests: dict[Verb, int]
) -> None:
    fill_up(local_store, 3)
    counting = CountingStore(local_store)
    process = Process(counting, "reader", kind)
    process.read()
    for _ in range(2):
        counting.clear()
        assert process.read() == [0, 1, 2]
        assert counting.counts() == requests


def test_who_is_far_behind_reads_ahead_and_asks_for_little_more(local_store: LocalStore) -> None:
    fill_up(local_store, 100)
    counting = CountingStore(local_store)
    assert len(Process(counting, "reader", PeekedSlots).read()) == 100
    assert counting.count(Verb.LIST) == 0
    assert counting.count(Verb.GET) <= 101 + AHEAD


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_log_is_folded_in_steps(local_store: LocalStore, kind: type[Slots]) -> None:
    fill_up(local_store, 10)
    process = Process(local_store, "reader", kind)
    assert process.read(most=4) == [0, 1, 2, 3]
    assert process.read(most=4) == list(range(8))
    assert process.read() == process.read() == list(range(10))


def test_other_names_beside_the_slots_are_passed_over(local_store: LocalStore) -> None:
    fill_up(local_store, 2)
    for name in ("00000001.bak", "000000002", "x"):
        local_store.put(f"{PREFIX}{name}", b"")
    assert ListedSlots(local_store, PREFIX).numbers() == [0, 1]
    assert Process(local_store, "reader", ListedSlots).read() == [0, 1]


# --- the rule for a write, request by request ------------------------------------------------------------------------


def test_the_same_put_is_repeated_until_it_has_a_definite_answer() -> None:
    steps = fill(3, b"mine")
    assert next(steps) == PutSlot(3, b"mine")
    assert steps.send(PutAnswer.UNKNOWN) == PutSlot(3, b"mine")
    with pytest.raises(StopIteration) as created:
        steps.send(PutAnswer.CREATED)
    assert created.value.value is None


def test_a_slot_that_is_taken_is_read_back() -> None:
    steps = fill(3, b"mine")
    next(steps)
    assert steps.send(PutAnswer.EXISTS) == ReadBack(3)
    assert steps.send(None) == PutSlot(3, b"mine")  # 412, and then nothing there: the same put may win
    assert steps.send(PutAnswer.EXISTS) == ReadBack(3)
    with pytest.raises(StopIteration) as taken:
        steps.send(b"theirs")
    assert taken.value.value == b"theirs"


def test_a_lost_race_folds_the_winner_and_decides_again() -> None:
    steps = Numbers("mine").append(len)
    assert next(steps) == ReadSlot(0)
    assert steps.send(None) == PutSlot(0, b'["mine", 0]')
    assert steps.send(PutAnswer.EXISTS) == ReadBack(0)
    assert steps.send(b'["other", 0]') == ReadSlot(0)
    assert steps.send(b'["other", 0]') == ReadSlot(1)
    assert steps.send(None) == PutSlot(1, b'["mine", 1]')
