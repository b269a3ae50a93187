"""Homes: they stay; and whatever becomes of a listing, what is read equals a fresh run on it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from expected_errors import fails_with
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import MAX_BATCH_SPLITS, Assignment, advance, batches
from airflow_recovery.model.split_matching import Vanished

SPLITS = st.lists(
    st.builds(Split.of, st.sampled_from("abcdefghij"), st.integers(0, 1), size=st.integers(0, 9)),
    unique_by=lambda each: each.uri,
    max_size=10,
)


def file(name: str, size: int = 10, etag: str = "e1") -> Split:
    return Split.of_file(f"s3://lake/{name}.csv", size, etag)


def assigned(splits: list[Split], parallelism: int = 2) -> Assignment:
    return advance(None, splits, parallelism).assignment


A, B, C, D = map(file, "abcd")


def test_the_largest_go_first_and_each_to_the_lightest() -> None:
    big, small = file("z", 100), [file(name, 30) for name in "abcd"]
    found = assigned([*small, big])
    assert (found.of(0), found.of(1)) == ((big,), tuple(small))


def test_equal_ones_are_dealt_out_by_name() -> None:
    assert assigned([C, A, B]).of(0) == (A, C)
    assert assigned([C, A, B]).of(1) == (B,)
    empty = [file(name, 0) for name in "abc"]
    assert [len(assigned(empty).of(index)) for index in (0, 1)] == [2, 1]


def test_fault_55_another_order_changes_no_home() -> None:
    before = assigned([A, B, C, D])
    assert not advance(before, [D, B, A, C], 2).is_new(before)


def test_fault_55_what_is_new_goes_to_the_lightest_and_the_others_stay() -> None:
    before = assigned([A, B])
    found = advance(before, [file("0", 15), A, B, C, D], 2).assignment
    assert {each: found.homes[each] for each in (A, B)} == before.homes
    assert found.homes[file("0", 15)] == 0
    assert (found.of(0), found.of(1)) == ((file("0", 15), A), (B, C, D))


def test_fault_55_control_dealing_out_by_position_moves_what_stood() -> None:
    """As it was before splits had homes: one file in front, and every subtask has other files than before."""
    before, after = [A, B, C, D], [file("0"), A, B, C, D]
    assert all(set(before[index::2]) - set(after[index::2]) for index in (0, 1))


def test_an_overwritten_split_is_another_one_in_the_same_home() -> None:
    before = assigned([A, B, C, D])
    newer = file("b", 99, "e2")
    found = advance(before, [A, newer, C, D], 2)
    assert found.match.overwritten == (newer,)
    assert found.assignment.homes[newer] == before.homes[B]
    assert B not in found.assignment.homes
    assert all(found.assignment.homes[each] == before.homes[each] for each in (A, C, D))


def test_fault_55_what_vanished_is_dropped_by_default() -> None:
    before = assigned([A, B, C, D])
    found = advance(before, [A, C, D], 2)
    assert found.match.vanished == (B,)
    assert found.assignment.in_order == (A, C, D)


def test_fault_93_what_vanished_has_its_home_when_it_is_back_whatever_came_meanwhile() -> None:
    """Its subtask may have it in its finish, and not have looked since."""
    before = assigned([A, B, C, D])
    heavy = file("e", 1000)
    without = advance(before, [A, C, D, heavy], 2).assignment
    assert without.homes[heavy] == before.homes[B]  # which is the lightest now
    assert advance(without, [A, B, C, D, heavy], 2).assignment.homes[B] == before.homes[B]


def test_fault_93_control_where_it_is_forgotten_another_subtask_reads_it_as_well() -> None:
    before = assigned([A, B, C, D])
    without = replace(advance(before, [A, C, D, file("e", 1000)], 2).assignment, gone={})
    assert advance(without, [A, B, C, D, file("e", 1000)], 2).assignment.homes[B] != before.homes[B]


def test_fault_92_subtasks_down_and_up_again_have_the_homes_that_they_had() -> None:
    four = advance(assigned([D, C, B], 4), [A, B, C, D, file("e")], 4).assignment
    two = advance(four, [*four.homes], 2).assignment
    again = advance(two, [*four.homes], 4, earlier=four).assignment
    assert again.homes == four.homes
    assert advance(two, [*four.homes], 4).assignment.homes != four.homes  # the control: dealt out anew


def test_with_other_subtasks_nothing_is_kept_of_what_has_vanished_and_that_is_said() -> None:
    before = assigned([A, B, C, D])
    with fails_with("kept-splits-other-subtasks", found=3, expected=2):
        advance(before, [A, C, D], 3, vanished=Vanished.KEEP)


def test_what_vanished_is_kept_where_it_was_until_it_is_back() -> None:
    before = assigned([A, B, C, D])
    gone = advance(before, [A, C, D], 2, vanished=Vanished.KEEP).assignment
    assert gone.gone_of(before.homes[B]) == (B,)
    assert gone.gone_of(1 - before.homes[B]) == ()
    still = advance(gone, [A, C], 2, vanished=Vanished.KEEP).assignment
    assert set(still.gone) == {B, D}
    back = advance(still, [A, B, C], 2, vanished=Vanished.KEEP).assignment
    assert back.homes[B] == before.homes[B]
    assert set(back.gone) == {D}
    assert set(advance(still, [A, C], 2, vanished=Vanished.DROP).assignment.gone) == {B, D}


def test_what_vanished_fails_where_that_is_said() -> None:
    before = assigned([A, B, C, D])
    with fails_with("splits-gone", found=2):
        advance(before, [B, D], 2, vanished=Vanished.FAIL)
    assert advance(before, [A, B, C, D, file("e")], 2, vanished=Vanished.FAIL).assignment.homes.keys() > {A, B}


def test_another_number_of_subtasks_gives_new_homes() -> None:
    found = advance(assigned([A, B, C, D], 1), [A, B, C, D], 2).assignment
    assert [len(found.of(index)) for index in (0, 1)] == [2, 2]


@pytest.mark.slow
@given(st.lists(SPLITS, min_size=1, max_size=5), st.integers(1, 4))
def test_fault_55_after_any_changes_what_is_read_is_what_a_fresh_run_reads(
    listings: list[list[Split]], parallelism: int
) -> None:
    found = None
    for today in listings:
        before, found = found, advance(found, today, parallelism).assignment
        read = [each for index in range(parallelism) for each in found.of(index)]
        assert sorted(read, key=str) == sorted(today, key=str)
        if before is not None:
            assert all(found.homes[each] == home for each, home in before.homes.items() if each in found.homes)
        assert Assignment.of_record(found.record("raw", 3, "w")) == found


@given(SPLITS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_an_assignment_is_a_function_of_the_splits(splits: list[Split], parallelism: int, rng: random.Random) -> None:
    mixed = list(splits)
    rng.shuffle(mixed)
    one, other = assigned(splits, parallelism), assigned(mixed, parallelism)
    assert one.record("raw", 0, "w") == other.record("raw", 0, "w")


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_holds_so_many_bytes_and_one_split_at_least() -> None:
    sizes = [("a", 5), ("b", 5), ("c", 20), ("d", 1), ("e", 9), ("f", 1)]
    found = batches([file(name, size) for name, size in reversed(sizes)], batch_bytes=10)
    assert [[each.name[-5] for each in batch] for batch in found] == [["a", "b"], ["c"], ["d", "e"], ["f"]]


def test_a_batch_has_a_bounded_number_of_splits() -> None:
    found = batches([file(f"{at:05}", 0) for at in range(MAX_BATCH_SPLITS + 1)], batch_bytes=10)
    assert [len(batch) for batch in found] == [MAX_BATCH_SPLITS, 1]


def test_fault_57_suspects_travel_alone_and_last() -> None:
    found = batches([A, B, C, D], batch_bytes=1000, suspects={A.key, C.key})
    assert found == [(B, D), (A,), (C,)]


@given(SPLITS, st.integers(1, 30))
def test_fault_57_batches_are_a_function_of_what_is_left(splits: list[Split], batch_bytes: int) -> None:
    found = batches(splits, batch_bytes=batch_bytes)
    assert found == batches(reversed(splits), batch_bytes=batch_bytes)
    assert sorted((each for batch in found for each in batch), key=str) == sorted(splits, key=str)
    assert all(len(batch) == 1 or sum(one.weight for one in batch) <= batch_bytes for batch in found)
