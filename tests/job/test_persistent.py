"""What may be shared between runs, and what is refused with advice."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_recovery import BLOCKING, BLOCKING_PERSISTENT, Job, JobDefinitionError, files, job
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.region_spec import RunFacts

FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {}, {})


def declared(*, source: Any = BLOCKING_PERSISTENT, vertex: Any = BLOCKING_PERSISTENT, **options: Any) -> Job:
    """raw --> airports --> daily (a sink)."""
    flights = job("flights")

    def raw(splits: Any) -> Any:
        return splits

    flights.source(splits=files("/lake/*.csv"), result=source, **options)(raw)

    @flights.vertex(result=vertex)
    def airports(raw: Any) -> Any:
        return raw

    @flights.sink
    def daily(airports: Any) -> Any:
        return airports

    return flights


def test_regions_whose_results_all_outlive_the_run_are_marked_in_the_plan():
    persistents = {
        region.name: region.persistent for region in plan_job(declared(), "tests.job:flights", FACTS).record.regions
    }
    assert persistents == {"raw": True, "airports": True, "daily": False}


def test_a_result_of_a_run_cannot_be_read_by_a_shared_one():
    with pytest.raises(JobDefinitionError, match=r"'airports': is BLOCKING_PERSISTENT and reads 'raw'.*Declare 'raw'"):
        declared(source=BLOCKING).regions()


def test_a_shared_result_may_be_read_by_any():
    assert declared(vertex=BLOCKING).regions().names == ("raw", "airports", "daily")


def test_one_application_does_not_make_shared_and_other_results():
    flights = declared(source="PIPELINED")

    @flights.sink
    def count(raw: Any) -> Any:
        return raw

    with pytest.raises(JobDefinitionError, match="its region also makes count, which belongs to the run"):
        flights.regions()


def test_a_source_that_hides_what_it_reads_cannot_be_shared_without_a_version():
    def shared(**options: Any) -> Job:
        flights = job("flights")

        def raw(spark: Any) -> Any:
            return spark.table("flights")

        flights.source(result=BLOCKING_PERSISTENT, **options)(raw)
        flights.sink(name="daily")(lambda raw: raw)
        return flights

    with pytest.raises(JobDefinitionError, match=r"reads something that is not declared.*splits=files.*version="):
        shared().regions()
    assert shared(version="2026-01").regions().names == ("raw", "daily")


def test_a_vertex_that_knows_its_run_cannot_be_shared():
    flights = declared(source="PIPELINED", vertex="PIPELINED")

    @flights.vertex(result=BLOCKING_PERSISTENT)
    def dated(airports: Any, context: Any) -> Any:
        return airports

    flights._declared.pop("daily")

    @flights.sink
    def report(dated: Any) -> Any:
        return dated

    with pytest.raises(JobDefinitionError, match=r"takes context.*runs that share it have different ones"):
        flights.regions()


def test_a_date_among_the_parameters_makes_results_of_their_own():
    def fingerprint(day: str) -> str | None:
        flights = job("flights")
        flights.source(name="raw", splits=files("/lake/*.csv"), result=BLOCKING_PERSISTENT, params={"day": "{{ ds }}"})(
            _dated
        )
        flights.sink(name="daily")(_daily)
        facts = RunFacts(f"{day}T00:00:00+00:00", None, None, {}, {})
        return plan_job(flights, "tests.job:flights", facts).record.regions[0].fingerprint

    assert fingerprint("2026-01-01") != fingerprint("2026-01-02")


def _dated(splits: Any, day: str) -> Any:
    return splits


def _daily(raw: Any) -> Any:
    return raw
