"""What a split is known by, and that it comes back from the journal as it went in."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import Split
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.model.split import MAX_PAYLOAD_BYTES, UNKNOWN_BYTES, in_order, listed

A = Split.of_file("s3://lake/a.csv", 3, "e1")


def test_a_file_s_key_is_its_path_etag_and_size() -> None:
    others = [
        Split.of_file("s3://lake/b.csv", 3, "e1"),
        Split.of_file("s3://lake/a.csv", 4, "e1"),
        Split.of_file("s3://lake/a.csv", 3, "e2"),
    ]
    assert len({A.key, *(other.key for other in others)}) == 4
    # It stands in journals: another way to make it would read everything again.
    assert A.key == Split.of_file("s3://lake/a.csv", 3, "e1").key == "ac345396ce8f3ce6de056e71"


@pytest.mark.parametrize("payload", [None, "x", 7, 1.5, True, ["a", {"b": None}], {"from": 0, "to": 10, "ü": "ß"}])
def test_a_split_is_an_external_object_and_comes_back(payload: Any) -> None:
    split = Split.of("orders 7", payload, size=12)
    external = split.external("raw")
    assert external == ExternalObject("raw", "split:orders 7", 12, external.etag)
    back = Split.of_external(external)
    assert (back, back.key, back.payload, back.name, back.is_file) == (split, split.key, payload, "orders 7", False)
    assert Split.of_external(A.external("raw")) == A
    assert (A.payload, A.name, A.is_file) == (None, "s3://lake/a.csv", True)


def test_another_payload_is_another_split() -> None:
    assert Split.of("a", {"x": 1}).key != Split.of("a", {"x": 2}).key != Split.of("b", {"x": 2}).key
    assert Split.of("a", {"x": 1, "y": 2}).key == Split.of("a", {"y": 2, "x": 1}).key


def test_what_says_no_size_weighs_something() -> None:
    assert Split.of("a").weight == UNKNOWN_BYTES
    assert (Split.of("a", size=5).weight, A.weight, Split.of_file("f", 0, "").weight) == (5, 3, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("",), "split-name-no-text"),
        ((7,), "split-name-no-text"),
        (("a", {1: 2}), "split-payload-no-json"),
        (("a", (1, 2)), "split-payload-no-json"),
        (("a", float("nan")), "split-payload-no-json"),
        (("a", object()), "split-payload-no-json"),
        (("a", "x" * MAX_PAYLOAD_BYTES), "split-payload-too-large"),
    ],
)
def test_what_can_not_be_kept_is_refused(arguments: tuple[Any, ...], code: str) -> None:
    with fails_with(code):
        Split.of(*arguments)


@pytest.mark.parametrize("size", [-1, 1.5, True, "7"])
def test_a_size_is_a_number_of_bytes(size: Any) -> None:
    with fails_with("split-size-unfit"):
        Split.of("a", size=size)


def test_a_split_that_is_listed_twice_counts_once() -> None:
    b = Split.of_file("s3://lake/b.csv", 1, "e")
    found = listed([b, A, b, b])
    assert list(found.splits.values()) == [A, b]
    assert found.repeated == (b,)
    assert in_order([b, A]) == [A, b]


def test_fault_55_two_contents_under_one_name_are_refused() -> None:
    with fails_with("split-of-two-contents", split="a"):
        listed([Split.of("a", 1), Split.of("b", 1), Split.of("a", 2)])
