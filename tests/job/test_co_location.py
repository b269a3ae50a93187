"""Co-location: vertices that are one unit of restart, whatever lies between them."""

from __future__ import annotations

from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery.job import Job, job
from airflow_recovery.model.result_type import BLOCKING


def three_sinks() -> Job:
    #   numbers --> small, tiny, big        (blocking)
    made = job("sinks")

    @made.source(result=BLOCKING)
    def numbers(spark: Any) -> Any: ...

    @made.sink
    def small(numbers: Any) -> Any: ...

    @made.sink
    def tiny(numbers: Any) -> Any: ...

    @made.sink
    def big(numbers: Any) -> Any: ...

    return made


def test_co_located_vertices_are_one_region_and_its_results_stay_apart():
    made = three_sinks()
    assert made.regions().names == ("numbers", "small", "tiny", "big")
    made.co_locate("small", "tiny")
    assert made.regions().names == ("numbers", "small.tiny", "big")
    assert made.regions().region("small.tiny").results == ("small", "tiny")


def test_what_stands_between_two_of_them_comes_along():
    made = job("chain")

    @made.source(result=BLOCKING)
    def first(spark: Any) -> Any: ...

    @made.vertex(result=BLOCKING)
    def between(first: Any) -> Any: ...

    @made.sink
    def last(between: Any, first: Any) -> Any: ...

    made.co_locate("first", "last")
    assert made.regions().names == ("last",)


@pytest.mark.parametrize("names", [(), ("small",), ("small", "small")])
def test_one_vertex_is_no_unit(names: tuple[str, ...]):
    with fails_with("co-location-too-few"):
        three_sinks().co_locate(*names)


def test_an_unknown_vertex_and_a_second_unit_are_refused():
    made = three_sinks()
    made.co_locate("small", "tyni")
    with fails_with("vertex-unknown", found="tyni"):
        made.validate()
    with fails_with("co-located-twice"):
        made.co_locate("small", "big")


def test_other_subtasks_are_refused():
    made = job("parallel")

    @made.source(result=BLOCKING, parallelism=2)
    def two(spark: Any) -> Any: ...

    @made.source(result=BLOCKING, parallelism=3)
    def three(spark: Any) -> Any: ...

    @made.sink
    def both(two: Any, three: Any) -> Any: ...

    made.co_locate("two", "three")
    with fails_with("co-located-other-subtasks"):
        made.validate()
