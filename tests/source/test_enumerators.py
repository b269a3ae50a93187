"""Enumerators: key ranges, days, and one's own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from airflow_recovery import Split
from airflow_recovery.errors import JobDefinitionError, SplitIdentityError
from airflow_recovery.source import SupportsBatchSnapshot, enumerators
from airflow_recovery.source.enumerators import date_splits, day_moment, key_range_splits, yielded_splits


def ranges(**changes: Any) -> list[Any]:
    given: dict[str, Any] = {"table": "t", "column": "id", "lower": 0, "upper": 25, "width": 10, "as_of": None}
    return [each.payload for each in key_range_splits(**{**given, **changes})]


def test_key_ranges_are_half_open_and_leave_nothing_out() -> None:
    assert [(each["lower"], each["upper"]) for each in ranges()] == [(0, 10), (10, 20), (20, 25)]
    assert ranges(lower=-5, upper=5)[0]["predicate"] == "id >= -5 AND id < 5"
    numbers = [number for each in ranges(lower=-7, upper=31, width=4) for number in range(each["lower"], each["upper"])]
    assert numbers == list(range(-7, 31))


def test_a_table_that_grows_keeps_its_ranges_but_for_the_last() -> None:
    def keys(**changes: Any) -> list[str]:
        given: dict[str, Any] = {"table": "t", "column": "id", "lower": 0, "width": 10, "as_of": None}
        return [each.key for each in key_range_splits(**{**given, **changes})]

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
    assert [each.payload for each in date_splits(day_moment(start), day_moment(end))] == expected


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
    assert [(each.name, each.payload) for each in found] == [("order-3", 3), ("order-4", 4)]


def test_a_class_may_take_snapshots() -> None:
    assert isinstance(Orders(1), SupportsBatchSnapshot)
    assert not isinstance(orders(1), SupportsBatchSnapshot)


def test_what_is_no_split_is_refused_and_one_s_own_error_passes_through() -> None:
    with pytest.raises(SplitIdentityError, match=r"^w: expected .*strange to yield Split.of\(name, payload\), found 7"):
        yielded_splits(strange, {}, where="w")
    with pytest.raises(ZeroDivisionError):
        yielded_splits(lambda: [1 / 0], {}, where="w")  # type: ignore[list-item]


def strange() -> Iterator[Any]:
    yield 7


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumerators, "MAX_SPLITS", 3)
    with pytest.raises(JobDefinitionError, match=r"at most 3 key ranges of t\.id, found 4 or more: use a larger"):
        ranges(upper=40)
    with pytest.raises(JobDefinitionError, match="at most 3 days from"):
        date_splits(day_moment("2013-01-01"), day_moment("2013-02-01"))

    def endless() -> Iterator[Split]:
        at = 0
        while True:
            yield Split.of(str(at := at + 1))

    with pytest.raises(JobDefinitionError, match=r"at most 3 splits of .*endless, found 4 or more"):
        yielded_splits(endless, {}, where="w")
