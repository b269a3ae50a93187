"""How many subtasks share one task instance, and which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.job.chains import batch_label, batch_size, batches, number_of_batches


@pytest.mark.parametrize(
    ("count", "limit", "size", "number"),
    [
        (1, 1024, 1, 1),
        (1023, 1024, 1, 1023),
        (1024, 1024, 1, 1024),
        (1025, 1024, 2, 513),
        (2048, 1024, 2, 1024),
        (2049, 1024, 3, 683),
        (100_000, 1024, 98, 1021),
        (5, 1, 5, 1),
    ],
)
def test_a_batch_is_as_small_as_the_limit_lets_it_be(count: int, limit: int, size: int, number: int) -> None:
    assert batch_size(count, limit=limit) == size
    assert number_of_batches(count, size) == number <= limit


def test_a_declared_size_is_taken_as_it_is() -> None:
    assert batch_size(100_000, limit=10, declared=7) == 7


@given(st.integers(1, 2000), st.integers(1, 700), st.one_of(st.none(), st.integers(1, 300)))
def test_every_subtask_is_in_one_batch_with_its_neighbours(count: int, limit: int, declared: int | None) -> None:
    keys = [str(at) for at in range(count)]
    size = batch_size(count, limit=limit, declared=declared)
    found = batches(keys, size)
    assert [key for batch in found for key in batch] == keys
    assert all(len(batch) == size for batch in found[:-1])
    assert len(found) == number_of_batches(count, size)
    assert declared is not None or len(found) <= limit
    # Where a subtask is, as the plan has it.
    assert all(int(key) // size == at for at, batch in enumerate(found) for key in batch)


def test_no_limit_of_airflow_is_no_batch_of_nothing() -> None:
    assert batch_size(3, limit=0) == 3


def test_what_stands_for_a_batch_where_people_look() -> None:
    assert batch_label(["2013-01", "2013-02", "2013-03"]) == "2013-01..2013-03 (3)"
    assert batch_label(["2013-12"]) == "2013-12"
