"""The log of a dynamic assignment, and the book that it folds to."""

from __future__ import annotations

import json
import time

import pytest
from expected_errors import fails_with

from airflow_recovery.model.split import Split
from airflow_recovery.splits.log import (
    LOG_RECORD,
    Assign,
    Discovered,
    End,
    LogRecord,
    Rescaled,
    Return,
    SplitBook,
    fold,
)
from airflow_recovery.splits.mode import CommittedBatchRef

SPLITS = tuple(Split.of_file(f"s3://lake/{name}", 10, "e") for name in "abcd")
A, B, C, D = (split.key for split in SPLITS)
LISTED = Discovered(SPLITS)


def test_who_asks_is_given_what_nobody_has_in_the_order_of_the_listing():
    book = fold([LISTED])
    assert book.message_for(0, 1, 20) == Assign(0, 1, 0, (A, B))
    assert book.message_for(1, 1, 1) == Assign(1, 1, 0, (A,))
    assert book.held_by(0) == ()


def test_a_split_that_is_larger_than_a_batch_is_given_alone():
    book = fold([Discovered((Split.of_file("s3://lake/huge", 1000, "e"), *SPLITS))])
    assert len(book.next_batch(0, 20)) == 1


def test_when_nothing_is_left_the_next_message_is_the_last():
    book = fold([LISTED, Assign(0, 1, 0, (A, B, C, D))])
    assert book.message_for(0, 1, 1) == End(0, 1, 1)
    book.add(End(0, 1, 1))
    assert book.has_end(0, 1)
    assert not book.has_end(0, 2)


def test_what_comes_back_goes_to_the_subtask_that_had_it_and_to_no_other():
    book = fold([LISTED, Assign(0, 1, 0, (A, B)), Assign(1, 1, 0, (C, D)), Return(0, 1, (B,))])
    assert book.held_by(0) == (A,)
    assert book.next_batch(1, 100) == ()
    assert book.message_for(0, 2, 100) == Assign(0, 2, 0, (B,))


def test_fault_55_what_is_listed_again_is_not_given_again():
    book = fold([LISTED, Assign(0, 1, 0, (A, B)), Discovered(tuple(reversed(SPLITS)))])
    assert book.next_batch(1, 100) == (C, D)


def test_fault_55_what_has_vanished_is_given_to_nobody_and_what_is_new_is():
    new = Split.of_file("s3://lake/new", 10, "e")
    book = fold([LISTED, Discovered((new,), vanished=(A,))])
    assert book.next_batch(0, 100) == (B, C, D, new.key)
    assert A not in book.known


def test_fault_55_what_vanished_while_it_was_held_does_not_come_back():
    book = fold([LISTED, Assign(0, 1, 0, (A, B)), Discovered((), vanished=(A,))])
    assert (book.held_by(0), book.vanished()) == ((A, B), frozenset({A}))
    book.add(Return(0, 1, (A, B)))
    assert book.next_batch(0, 100) == (B, C, D)


def test_what_is_listed_again_has_not_vanished():
    book = fold([LISTED, Assign(0, 1, 0, (A,)), Discovered((), vanished=(A,)), LISTED, Return(0, 1, (A,))])
    assert book.next_batch(0, 10) == (A,)


def test_fault_91_with_fewer_subtasks_what_the_others_had_is_anybody_s():
    book = fold([LISTED, Assign(0, 1, 0, (A,)), Assign(3, 1, 0, (B, C)), Return(3, 1, (C,)), Rescaled(2)])
    assert book.held_by(3) == ()
    assert book.next_batch(1, 100) == (D, B, C)
    assert book.is_over(3, 2)
    with fails_with("split-attempt-fenced", attempt=2, subtask=3):
        book.pull(3, 2, 0, 10)
    book.add(Rescaled(4))
    assert book.is_over(3, 1) is True  # what it had, it was given by an attempt that is over
    assert book.is_over(3, 2) is False


def test_fault_92_a_split_is_an_attempt_s_until_it_is_given_back_and_never_again():
    book = fold([LISTED, Assign(0, 1, 0, (A, B))])
    assert book.has(0, 1, (A, B))
    assert not book.has(1, 1, (A,))
    book.add(Return(0, 1, (A,)))
    book.add(Assign(0, 2, 0, (A,)))
    assert (book.has(0, 1, (A,)), book.has(0, 1, (B,)), book.has(0, 2, (A,))) == (False, True, True)


def test_fault_92_a_finish_stands_for_as_long_as_its_splits_are_those_of_its_subtask():
    records: list[LogRecord] = [
        LISTED,
        Rescaled(2),
        Assign(0, 1, 0, (A, B)),
        Assign(1, 1, 0, (C, D)),
        End(0, 1, 1),
        End(1, 1, 1),
    ]
    mine = (CommittedBatchRef(1, 0, (A,)), CommittedBatchRef(1, 1, (B,)))

    def why(*more: LogRecord, subtasks: int = 2, batches: tuple[CommittedBatchRef, ...] = mine) -> str | None:
        return fold([*records, *more]).invalid_because(0, subtasks, batches)

    assert why() is None
    assert why(Return(1, 1, (D,))) is None  # it is the other one that has to read it again
    assert why(Discovered((), (A,))) is None  # its own try alone knows what becomes of it
    given_back = "1 splits were given back (s3://lake/b), 1 splits are still to be read (s3://lake/b)"
    assert why(Return(0, 1, (B,))) == given_back
    again = "1 splits were given back (s3://lake/b)"
    assert why(Return(0, 1, (B,)), Assign(0, 2, 0, (B,))) == again  # by another attempt than its batch's
    assert why(batches=mine[:1]) == "1 splits were given to it since (s3://lake/b)"
    new = Split.of_file("s3://lake/new", 10, "e")
    assert why(Discovered((new,))) == "1 splits are still to be read (s3://lake/new)"
    assert why(subtasks=1) == "2 splits are with a subtask that there is no more (s3://lake/c, s3://lake/d)"


@pytest.mark.parametrize(
    ("records", "refused"),
    [
        ([Assign(0, 1, 0, (A,))], Assign(1, 1, 0, (A,))),
        ([Assign(0, 1, 0, (A,))], Assign(0, 1, 2, (B,))),
        ([Assign(0, 1, 0, (A,))], Assign(0, 1, 0, (B,))),
        ([Assign(0, 1, 0, (A,)), Return(0, 1, (A,))], Assign(1, 1, 0, (A,))),
        ([Assign(0, 1, 0, (A,)), Return(0, 1, (A,))], Assign(0, 1, 1, (B,))),
        ([Assign(0, 1, 0, (A,)), Return(0, 1, (A,)), Assign(0, 2, 0, (A,))], Assign(0, 1, 1, (B,))),
        ([End(0, 1, 0)], Assign(0, 1, 1, (A,))),
        ([Rescaled(2)], Assign(2, 1, 0, (A,))),
        ([Assign(0, 1, 0, (A,))], Return(1, 1, (A,))),
        ([], Assign(0, 1, 0, ("unknown",))),
    ],
)
def test_a_record_that_nobody_who_has_read_the_log_could_have_written_is_refused(
    records: list[LogRecord], refused: LogRecord
):
    book = fold([LISTED, *records])
    before = book.to_json()
    with fails_with("split-log-refuses"):
        book.add(refused)
    assert book.to_json() == before


RECORDS: list[LogRecord] = [
    LISTED,
    Assign(0, 1, 0, (A, B)),
    Assign(1, 1, 0, (C,)),
    Discovered((), vanished=(C,)),
    Return(0, 1, (B,)),
    Assign(0, 2, 0, (B, D)),
    End(0, 2, 1),
    Rescaled(2),
    Discovered((), (), {"of": "orders", "state": 3}),
    Assign(1, 2, 0, ()),
    Rescaled(1),
]


@pytest.mark.parametrize("cut", range(len(RECORDS) + 1))
def test_a_snapshot_at_any_record_stands_for_all_before_it(cut: int):
    snapshot = SplitBook.from_json(json.loads(json.dumps(fold(RECORDS[:cut]).to_json())))
    assert fold(RECORDS[cut:], snapshot).to_json() == fold(RECORDS).to_json()


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: type(each).__name__)
def test_records_survive_json(record: LogRecord):
    assert LOG_RECORD.from_json(json.loads(json.dumps(LOG_RECORD.to_json(record))), exact=True) == record


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "assign", "subtask": -1, "attempt": 1, "seq": 0, "splits": []},
        {"kind": "assign", "subtask": True, "attempt": 1, "seq": 0, "splits": []},
        {"kind": "assign", "subtask": 0, "attempt": 1, "seq": 0, "splits": "ab"},
        {"kind": "assign", "subtask": 0, "attempt": 1, "seq": 0, "splits": [], "more": 1},
        {"kind": "end", "subtask": 0},
        {"kind": "other"},
        {"kind": "discovered", "added": [["s3://a", "10", "e"]], "vanished": []},
    ],
)
def test_anything_else_is_refused(value: dict[str, object]):
    with pytest.raises((ValueError, KeyError, TypeError)):
        LOG_RECORD.from_json(value, exact=True)


def test_many_records_take_linear_time():
    # Taking the first of many, again and again, is where a fold becomes quadratic.
    def seconds(count: int) -> float:
        splits = tuple(Split.of_file(f"s3://lake/{number}", 10, "e") for number in range(count))
        records: list[LogRecord] = [Discovered(splits)]
        records += [Assign(at % 4, 1, at // 4, (each.key,)) for at, each in enumerate(splits)]
        begun = time.process_time()
        book = SplitBook()
        for each in records:
            if isinstance(each, Assign):
                assert book.next_batch(each.subtask, 1) == each.splits
            book.add(each)
        return time.process_time() - begun

    small, large = min(seconds(1_000) for _ in range(3)), min(seconds(8_000) for _ in range(3))
    assert large < 8 * small * 4
