"""Enumerators: key ranges, days, and one's own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import Split
from airflow_recovery.job import enumerators
from airflow_recovery.job.batch_snapshot import MAX_STATE_BYTES, SupportsBatchSnapshot
from airflow_recovery.job.enumerators import (
    Enumeration,
    ResumedEnumerator,
    date_splits,
    day_moment,
    key_range_splits,
    yielded_splits,
)


def ranges(**changes: Any) -> list[Any]:
    given: dict[str, Any] = {"table": "t", "column": "id", "lower": 0, "upper": 25, "width": 10, "as_of": None}
    return [split.payload for split in key_range_splits(**{**given, **changes})]


def test_key_ranges_are_half_open_and_leave_nothing_out() -> None:
    assert [(range_["lower"], range_["upper"]) for range_ in ranges()] == [(0, 10), (10, 20), (20, 25)]
    assert ranges(lower=-5, upper=5)[0]["predicate"] == "id >= -5 AND id < 5"
    numbers = [
        number for range_ in ranges(lower=-7, upper=31, width=4) for number in range(range_["lower"], range_["upper"])
    ]
    assert numbers == list(range(-7, 31))


def test_more_key_ranges_than_a_machine_counts_are_refused_like_others() -> None:
    with fails_with("too-many-splits", expected=200000):
        ranges(upper=10**30, width=1)


def test_a_table_that_grows_keeps_its_ranges_but_for_the_last() -> None:
    def keys(**changes: Any) -> list[str]:
        given: dict[str, Any] = {"table": "t", "column": "id", "lower": 0, "width": 10, "as_of": None}
        return [split.key for split in key_range_splits(**{**given, **changes})]

    assert keys(upper=25)[:2] == keys(upper=47)[:2]
    assert keys(upper=25)[2] not in keys(upper=47)
    assert set(keys(upper=25)).isdisjoint(keys(upper=25, as_of="2013-01-01"))
    assert set(keys(upper=25)).isdisjoint(keys(upper=25, table="u"))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("2013-01-30", "2013-02-02", ["2013-01-30", "2013-01-31", "2013-02-01"]),
        ("2013-01-01", "2013-01-02", ["2013-01-01"]),
        ("2013-01-01T06:00:00+00:00", "2013-01-02T06:00:00+00:00", ["2013-01-01", "2013-01-02"]),
        ("2013-01-01T00:00:00+00:00", "2013-01-01T00:00:00+00:00", ["2013-01-01"]),
    ],
)
def test_days_of_an_interval(start: str, end: str, expected: list[str]) -> None:
    assert [split.payload for split in date_splits(day_moment(start), day_moment(end))] == expected


def test_zulu_is_understood() -> None:
    assert day_moment("2013-01-01T00:00:00Z") == datetime.fromisoformat("2013-01-01T00:00:00+00:00")


def orders(first: int) -> Iterator[Split]:
    yield Split.of(f"order-{first + 1}", first + 1)
    yield Split.of(f"order-{first}", first)
    yield Split.of(f"order-{first}", first)


class Orders:
    def __init__(self, first: int) -> None:
        self.first = first

    def __iter__(self) -> Iterator[Split]:
        return orders(self.first)

    def snapshot_state(self) -> Any:
        return self.first

    def restore(self, state: Any) -> None:
        self.first = state


@pytest.mark.parametrize("enumerator", [orders, Orders])
def test_one_s_own_may_be_a_function_or_a_class(enumerator: Any) -> None:
    found = yielded_splits(enumerator, {"first": 3}, where="w")
    assert [(split.name, split.payload) for split in found] == [("order-3", 3), ("order-4", 4)]


def test_a_class_may_take_snapshots() -> None:
    assert isinstance(Orders(1), SupportsBatchSnapshot)
    assert not isinstance(orders(1), SupportsBatchSnapshot)


class Numbered:
    """Tells of one order after the other, up to ``until``, from where the one before it was."""

    def __init__(self, until: int) -> None:
        self.until, self.told = until, 0

    def __iter__(self) -> Iterator[Split]:
        while self.told < self.until:
            self.told += 1
            yield Split.of(f"order-{self.told}", self.told)

    def snapshot_state(self) -> Any:
        return {"told": self.told}

    def restore(self, state: Any) -> None:
        self.told = state["told"]


def resumed(until: int, of: str = "orders") -> ResumedEnumerator:
    return ResumedEnumerator(lambda: Numbered(until), of, where="w")


def names_of(enumeration: Enumeration) -> list[str]:
    return [split.name for split in enumeration.splits.values()]


def test_a_new_enumerator_goes_on_where_the_one_before_it_was() -> None:
    first = resumed(2).goes_on(None, {})
    assert names_of(first) == ["order-1", "order-2"]
    then = resumed(3).goes_on(first.state, first.splits)
    assert names_of(then) == ["order-1", "order-2", "order-3"]
    assert then.state == {"of": "orders", "state": {"told": 3}}
    # What it is restored from is what tells it what it has told of: without the known ones only the new one is there.
    assert names_of(resumed(3).goes_on(first.state, {})) == ["order-3"]


def test_the_state_of_other_parameters_is_passed_over() -> None:
    first = resumed(2).goes_on(None, {})
    assert names_of(resumed(1, "other orders").goes_on(first.state, first.splits)) == ["order-1"]


@pytest.mark.parametrize("state", [object(), {1: 2}, float("nan"), "x" * MAX_STATE_BYTES])
def test_a_state_that_json_does_not_give_back_is_refused(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbered, "snapshot_state", lambda self: state)
    with fails_with("state-unfit", where="w"):
        resumed(1).goes_on(None, {})


def test_what_is_no_split_is_refused_and_one_s_own_error_passes_through() -> None:
    with fails_with("split-not-made-by-of", where="w", found="7"):
        yielded_splits(strange, {}, where="w")
    with pytest.raises(ZeroDivisionError):
        yielded_splits(lambda: [1 / 0], {}, where="w")  # type: ignore[list-item]


def strange() -> Iterator[Any]:
    yield 7


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerators, "MAX_SPLITS", 3)
    with fails_with("too-many-splits", expected=3, found=4):
        ranges(upper=40)
    with fails_with("too-many-splits", expected=3):
        date_splits(day_moment("2013-01-01"), day_moment("2013-02-01"))

    def endless() -> Iterator[Split]:
        at = 0
        while True:
            yield Split.of(str(at := at + 1))

    with fails_with("too-many-splits", expected=3, found=4):
        yielded_splits(endless, {}, where="w")
