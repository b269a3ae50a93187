"""Assignments in the journal: advanced by whoever needs them, over real stores and lost replies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery.attempt.assignment_log import AssignmentLog
from airflow_recovery.errors import StoreTimeout
from airflow_recovery.job.enumerators import ResumedEnumerator
from airflow_recovery.journal import codec
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import Assignment, advance
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.write_once import Slots
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb

IDENTITY = RunIdentity("dag", "date-2026-01-01T000000Z", "flights")
log = logging.getLogger("tests.source")


def file(name: str, size: int = 10, etag: str = "e1") -> Split:
    return Split.of_file(f"s3://lake/{name}.csv", size, etag)


A, B, C, D = map(file, "abcd")


def advanced(
    store: ObjectStore,
    *splits: Split,
    writer: str = "w1",
    parallelism: int = 2,
    vanished: Vanished = Vanished.DROP,
    meanwhile: Callable[[], Any] = lambda: None,
) -> Assignment:
    """One process that lists ``splits``; ``meanwhile`` happens while it lists."""

    def today() -> list[Split]:
        meanwhile()
        return list(splits)

    return AssignmentLog(store, IDENTITY, "raw", writer=writer).advanced(today, parallelism, vanished=vanished, log=log)


def generations(store: ObjectStore) -> list[str]:
    return [split.key.rpartition("/")[2] for split in store.list(JournalLayout(IDENTITY).splits)]


def test_it_lies_beside_the_truth(store: ObjectStore) -> None:
    advanced(store, A, B)
    (info,) = store.list()
    assert info.key == "_splits/dag/date-2026-01-01T000000Z/flights/raw/assignment-00000000"
    assert not list(store.list(JournalLayout(IDENTITY).prefix))


def test_an_assignment_that_nobody_would_read_is_not_written(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = advanced(store, A, B)
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", 400)
    with fails_with("record-too-large-to-write"):
        advanced(store, *(file(f"{number}") for number in range(50)))
    assert advanced(store, A, B) == first


def test_fault_55_only_another_listing_makes_another_generation(
    store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    first = advanced(store, A, B, C)
    assert advanced(store, C, B, A, A, writer="w2") == first
    assert generations(store) == ["assignment-00000000"]
    assert not caplog.records
    grown = advanced(store, A, B, C, D)
    assert grown == advance(first, [A, B, C, D], 2).assignment
    assert generations(store) == ["assignment-00000000", "assignment-00000001"]
    assert "The splits of raw are others than before: 3 as before, 1 new (s3://lake/d.csv)." in caplog.text
    assert advanced(store, A, D) == advance(grown, [A, D], 2).assignment


def test_fault_93_what_has_vanished_is_remembered_whatever_becomes_of_its_rows(store: ObjectStore) -> None:
    advanced(store, A, B, vanished=Vanished.KEEP)
    assert set(advanced(store, A, vanished=Vanished.KEEP).gone) == {B}
    assert set(advanced(store, A, vanished=Vanished.KEEP).gone) == {B}
    with fails_with("splits-gone", found=1):
        advanced(store, C, vanished=Vanished.FAIL)
    assert set(advanced(store, A).gone) == {B}


class Orders:
    """Tells of one order after the other."""

    def __init__(self, until: int) -> None:
        self.until, self.told = until, 0

    def __iter__(self) -> Iterator[Split]:
        while self.told < self.until:
            self.told += 1
            yield Split.of(f"order-{self.told}", self.told, size=10)

    def snapshot_state(self) -> int:
        return self.told

    def restore(self, state: int) -> None:
        self.told = state


def told(store: ObjectStore, until: int, of: str = "orders", deadline_s: float = 60.0) -> list[str]:
    """What a process has to read whose enumerator goes on where it was, up to order ``until``."""
    enumerator = ResumedEnumerator(lambda: Orders(until), of, where="w")
    assignments = AssignmentLog(store, IDENTITY, "raw", writer="w1", deadline_s=deadline_s)
    found = assignments.advanced(enumerator, 2, vanished=Vanished.DROP, log=log)
    return [each.name.removeprefix("order-") for each in found.in_order]


def test_fault_95_an_enumerator_goes_on_where_it_was_and_what_it_has_told_of_stays(store: ObjectStore) -> None:
    assert told(store, 2) == ["1", "2"]
    assert told(store, 2) == ["1", "2"]
    assert told(store, 4) == ["1", "2", "3", "4"]
    assert generations(store) == ["assignment-00000000", "assignment-00000001"]
    assert told(store, 1, of="other orders") == ["1"]


def test_fault_95_killed_before_its_splits_were_written_it_tells_of_them_again(local_store: LocalStore) -> None:
    told(local_store, 2)
    with pytest.raises(StoreTimeout):
        told(FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.TIMEOUT)]), 4, deadline_s=0)
    assert told(local_store, 4) == ["1", "2", "3", "4"]


def test_fault_92_subtasks_down_and_up_again_have_their_homes_by_the_log(store: ObjectStore) -> None:
    advanced(store, B, D, parallelism=4)
    four = advanced(store, A, B, C, D, parallelism=4)
    advanced(store, A, B, C, D, parallelism=2)
    assert advanced(store, A, B, C, D, parallelism=4).homes == four.homes
    assert four.homes != advance(None, [A, B, C, D], 4).assignment.homes  # the control: dealt out anew


def test_fault_56_of_two_first_processes_one_decides_for_both(store: ObjectStore) -> None:
    others: list[Assignment] = []
    found = advanced(
        store, A, B, C, D, writer="w1", meanwhile=lambda: others.append(advanced(store, A, C, D, writer="w2"))
    )
    assert found == others[0]
    assert generations(store) == ["assignment-00000000"]


def test_fault_56_one_that_was_slow_to_list_overtakes_nothing(store: ObjectStore) -> None:
    """It began to list before D came; the other one has assigned D by then."""
    advanced(store, A, B)
    slow = advanced(store, A, B, C, meanwhile=lambda: advanced(store, A, B, C, D, writer="w2"))
    assert set(slow.homes) == {A, B, C, D}
    assert generations(store)[-1] == "assignment-00000001"


def test_fault_56_control_without_put_if_absent_two_subtasks_have_one_split(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each believes its own listing then: one that is a little older has other homes."""

    def overwrite(self: Slots, slot: int, body: bytes) -> None:
        self.store.put(self.key(slot), body)

    monkeypatch.setattr(Slots, "put", overwrite)
    others: list[Assignment] = []
    big = file("0", 100)
    mine = advanced(local_store, A, B, C, meanwhile=lambda: others.append(advanced(local_store, big, A, B, C)))
    assert any(mine.homes[home] != others[0].homes[home] for home in mine.homes)


def test_the_same_assignment_of_another_process_is_as_good(local_store: LocalStore) -> None:
    counting = CountingStore(local_store)
    found = advanced(counting, A, B, meanwhile=lambda: advanced(local_store, B, A, writer="w2"))
    assert found == advance(None, [A, B], 2).assignment
    assert generations(local_store) == ["assignment-00000000"]


@pytest.mark.parametrize(
    ("kind", "requests"),
    [(FaultKind.LOST_REPLY, 3), (FaultKind.LOST_REPLY_THEN_RETRIED, 2), (FaultKind.TIMEOUT, 1)],
)
def test_fault_56_a_lost_reply_is_settled_by_reading_back(store: ObjectStore, kind: FaultKind, requests: int) -> None:
    counting = CountingStore(store)
    faulty = FaultyStore(counting, [Fault(Verb.PUT_IF_ABSENT, kind, key="assignment-")])
    assert advanced(faulty, A, B) == advance(None, [A, B], 2).assignment
    assert generations(store) == ["assignment-00000000"]
    assert counting.count(Verb.PUT_IF_ABSENT) + counting.count(Verb.GET) == requests


def test_subtasks_of_two_versions_of_the_code_do_not_take_each_other_s_homes(local_store: LocalStore) -> None:
    advanced(local_store, A, B, C, D, parallelism=2)
    four = advanced(local_store, A, B, C, D, parallelism=4)
    assert [len(four.of(index)) for index in range(4)] == [1, 1, 1, 1]

    def other_code() -> None:
        for parallelism in (2, 4):
            advanced(local_store, A, B, C, D, writer="w2", parallelism=parallelism)

    with fails_with("two-code-versions"):
        advanced(local_store, A, B, C, D, parallelism=3, meanwhile=other_code)


def test_it_costs_two_requests_where_nothing_has_changed(local_store: LocalStore) -> None:
    advanced(local_store, A, B)
    counting = CountingStore(local_store)
    advanced(counting, A, B)
    assert {verb: times for verb, times in counting.counts().items() if times} == {Verb.LIST: 1, Verb.GET: 1}


def test_a_copied_record_is_refused(local_store: LocalStore) -> None:
    advanced(local_store, A, B)
    layout = JournalLayout(IDENTITY)
    body = local_store.get(layout.assignment("raw", 0)).body
    local_store.put(layout.assignment("raw", 7), body)
    with fails_with("assignment-copied"):
        advanced(local_store, A, B)
