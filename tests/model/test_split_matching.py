"""Listings beside each other: order never counts, names and contents do (fault 55)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import ListingMatch, match, names

A, B, C, D = (Split.of_file(f"s3://lake/{name}.csv", 10, "e1") for name in "abcd")
B2 = Split.of_file("s3://lake/b.csv", 11, "e2")


def test_fault_55_another_order_is_the_same_listing() -> None:
    found = match([A, B, C], [C, A, B])
    assert found == ListingMatch(kept=(A, B, C), added=(), overwritten=(), vanished=())
    assert found.text() == "3 as before"


def test_fault_55_what_came_went_and_was_overwritten_is_told_apart() -> None:
    found = match([A, B, C], [D, B2, A])
    assert (found.kept, found.added, found.overwritten, found.vanished) == ((A,), (D,), (B2,), (C,))
    assert found.text() == (
        "1 as before, 1 new (s3://lake/d.csv), 1 overwritten (s3://lake/b.csv), 1 vanished (s3://lake/c.csv)"
    )


def test_listed_twice_is_told_and_is_no_change() -> None:
    found = match([A, B], [B, A, A])
    assert found == ListingMatch(kept=(A, B), added=(), overwritten=(), vanished=(), repeated=(A,))
    assert "1 listed twice, and counted once (s3://lake/a.csv)" in found.text()


def test_many_names_are_not_all_told() -> None:
    many = [Split.of(f"{at:02}") for at in range(9)]
    assert names(reversed(many)) == "00, 01, 02, 03, 04 and 4 more"


SPLITS = st.lists(st.builds(Split.of, st.sampled_from("abcdef"), st.integers(0, 1)), unique_by=lambda each: each.uri)


@given(SPLITS, SPLITS)
def test_every_split_is_in_exactly_one_kind(before: list[Split], today: list[Split]) -> None:
    found = match(before, today)
    assert sorted([*found.kept, *found.added, *found.overwritten], key=str) == sorted(today, key=str)
    replaced = [split for split in before if any(split.uri == now.uri for now in found.overwritten)]
    assert sorted([*found.kept, *replaced, *found.vanished], key=str) == sorted(before, key=str)
    assert (len(found.kept) == len(before) == len(today)) is (set(before) == set(today))
