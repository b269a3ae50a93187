"""What may be cached, and what is refused with advice."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_recovery import BLOCKING, CACHED, CACHED_MEMORY_ONLY, Job, JobDefinitionError, files, job
from airflow_recovery.job import declared_job
from airflow_recovery.job.cached import cached_results

FILES = files("/lake/*.csv")


def declared(*, cached: Any = "verify", raw: Any = "verify", splits: Any = FILES, result: Any = CACHED) -> Job:
    """raw --> routes (cached) --> delays (a sink)."""
    flights = job("flights")

    def from_files(splits: Any) -> Any:
        return splits

    def from_anywhere() -> Any:
        return None

    function = from_files if splits is not None else from_anywhere
    flights.source(splits=splits, deterministic=raw, name="raw")(function)

    @flights.vertex(result=result, deterministic=cached)
    def routes(raw: Any) -> Any:
        return raw

    @flights.sink
    def delays(routes: Any) -> Any:
        return routes

    return flights


def refused(flights: Job) -> str:
    with pytest.raises(JobDefinitionError) as error:
        flights.regions()
    return str(error.value)


@pytest.mark.parametrize("result", [CACHED, CACHED_MEMORY_ONLY, "CACHED"])
def test_a_cached_result_cuts_regions_as_a_written_one_does(result):
    flights = declared(result=result, raw="assume")
    assert flights.regions().names == ("routes", "delays")
    assert [cached_results(region, flights.vertices) for region in flights.regions().regions] == [("routes",)] * 2


@pytest.mark.parametrize("mode", ["always", None])
def test_a_cached_vertex_must_be_declared_deterministic(mode):
    said = refused(declared(cached=mode))
    assert said.startswith("job 'flights', vertex 'routes': is CACHED, and nothing says that it gives the same rows")
    assert "Declare 'routes' with deterministic='verify' or 'assume'" in said


def test_and_so_must_what_is_pipelined_into_it():
    said = refused(declared(raw="always"))
    assert "nothing says that 'raw', of which it is made, gives the same rows each time" in said
    assert "Declare 'raw' with deterministic=" in said
    assert "'routes' with result=BLOCKING" in said


def test_but_not_what_is_written_to_files_between():
    flights = job("flights")

    @flights.source(result=BLOCKING)
    def raw() -> Any:
        return None

    @flights.vertex(result=CACHED, deterministic="assume")
    def routes(raw: Any) -> Any:
        return raw

    @flights.sink
    def delays(routes: Any) -> Any:
        return routes

    assert flights.regions().names == ("raw", "routes", "delays")


def test_the_lineage_begins_at_registered_files():
    said = refused(declared(splits=None))
    assert re.search(r"'raw', of which it is made, reads something that is not registered.*splits=files", said)


def test_a_cached_result_is_not_made_of_another():
    flights = declared()

    @flights.vertex(result=CACHED_MEMORY_ONLY, deterministic="verify")
    def early(routes: Any) -> Any:
        return routes

    @flights.sink
    def count(early: Any) -> Any:
        return early

    said = refused(flights)
    assert "'early': is CACHED_MEMORY_ONLY, and it is made of 'routes', which is CACHED too" in said
    assert "Declare one of the two with result=BLOCKING" in said


def test_a_sink_has_no_result_type_to_choose():
    with pytest.raises(TypeError, match="result"):
        job("flights").sink(result=CACHED)  # type: ignore[call-overload]


def test_control_without_the_check_whatever_gives_other_rows_may_be_cached(monkeypatch):
    monkeypatch.setattr(declared_job, "check_cached", lambda regions, vertices: None)
    assert declared(cached="always").regions().names == ("routes", "delays")
