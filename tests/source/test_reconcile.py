"""What counts after the process of a coordinator is gone: the table of SPLITS.md section 5, row by row."""

from __future__ import annotations

import pytest

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.source.reconcile import Fate, SubtaskOutcome, Support, reconcile, reset_together
from airflow_recovery.source.split import Split
from airflow_recovery.source.split_log import Assign, CoordinatorState, Discovered, fold

SPLITS = tuple(Split.of(name) for name in "abcd")
A, B, C, D = (each.key for each in SPLITS)
LISTED = Discovered(SPLITS)

# Subtask 0 has read A and finished before the snapshot. 1 has finished after it: it was given B before, C behind it.
# 2 has not finished.
BOOK = fold([LISTED, Assign(0, 1, 0, (A,)), Assign(1, 1, 0, (B,)), Assign(2, 1, 0, (D,))])
SNAPSHOT = CoordinatorState(BOOK.to_json(), ((0, 1),), enumerator="so far")
OUTCOMES = (SubtaskOutcome(0, 1, (A,)), SubtaskOutcome(1, 1, (B, C)), SubtaskOutcome(2, 1))


def fates(support: Support, snapshot: CoordinatorState | None = SNAPSHOT) -> list[Fate]:
    return [each.fate for each in reconcile(snapshot, OUTCOMES, support, LISTED).decisions]


def test_stable_keys_a_finish_behind_the_snapshot_is_kept_since_it_names_its_splits():
    plan = reconcile(SNAPSHOT, OUTCOMES, Support.STABLE_KEYS, LISTED)
    assert fates(Support.STABLE_KEYS) == [Fate.KEEP, Fate.KEEP, Fate.ADOPT]
    assert [plan.book.held_by(each) for each in range(3)] == [(A,), (B, C), ()]
    assert plan.book.next_batch(2, 1) == (D,)
    assert not plan.resets_consumers


def test_stable_keys_need_no_snapshot_at_all():
    plan = reconcile(None, OUTCOMES, Support.STABLE_KEYS, LISTED)
    assert fates(Support.STABLE_KEYS, None) == [Fate.KEEP, Fate.KEEP, Fate.ADOPT]
    assert [plan.book.held_by(each) for each in range(3)] == [(A,), (B, C), ()]


def test_snapshots_without_stable_keys_a_finish_behind_the_snapshot_is_reset():
    plan = reconcile(SNAPSHOT, OUTCOMES, Support.BATCH_SNAPSHOT)
    assert fates(Support.BATCH_SNAPSHOT) == [Fate.KEEP, Fate.RESET, Fate.START_ANEW]
    assert plan.book.held_by(0) == (A,)
    assert plan.book.next_batch(1, 1) == (B,)
    assert plan.enumerator == "so far"
    assert plan.resets_consumers


def test_neither_and_some_unfinished_everything_is_reset_and_so_are_the_consumers():
    plan = reconcile(SNAPSHOT, OUTCOMES, Support.NONE, LISTED)
    assert fates(Support.NONE) == [Fate.RESET, Fate.RESET, Fate.START_ANEW]
    assert all(plan.book.held_by(each) == () for each in range(3))
    assert plan.resets_consumers
    assert "subtask 2 has not finished" in plan.text()


def test_neither_and_all_finished_everything_is_kept_until_one_is_reset():
    finished = (*OUTCOMES[:2], SubtaskOutcome(2, 1, (D,)))
    plan = reconcile(None, finished, Support.NONE, LISTED)
    assert plan.with_fate(Fate.KEEP) == {0: 1, 1: 1, 2: 1}
    assert not plan.resets_consumers
    assert reset_together(finished, Support.NONE) == {0: 1, 1: 1, 2: 1}
    assert reset_together(finished, Support.STABLE_KEYS) == {}


def test_a_finish_of_an_attempt_that_is_newer_than_the_one_in_the_snapshot_is_a_newer_finish():
    plan = reconcile(SNAPSHOT, [SubtaskOutcome(0, 2, (A, C))], Support.BATCH_SNAPSHOT)
    assert [each.fate for each in plan.decisions] == [Fate.RESET]


def test_every_decision_says_why():
    for support in Support:
        assert all(each.why for each in reconcile(SNAPSHOT, OUTCOMES, support, LISTED).decisions)


def test_two_finishes_that_name_one_split_are_refused_and_not_counted_twice():
    with pytest.raises(RecordInvalid, match="expected one reader"):
        reconcile(None, [SubtaskOutcome(0, 1, (A,)), SubtaskOutcome(1, 1, (A,))], Support.STABLE_KEYS, LISTED)


@pytest.mark.parametrize("support", [Support.STABLE_KEYS, Support.BATCH_SNAPSHOT])
def test_reconciling_changes_nothing_in_the_snapshot(support: Support):
    before = fold([], BOOK).to_json()
    reconcile(SNAPSHOT, OUTCOMES, support)
    assert BOOK.to_json() == before == SNAPSHOT.book
