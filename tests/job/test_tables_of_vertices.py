"""A vertex whose result is a table's snapshot: what is declared, planned and refused. No Spark runs."""

from __future__ import annotations

from typing import Any

import pytest
from dagjobs.tabled import tabled
from expected_errors import fails_with

from airflow_recovery import BLOCKING, BLOCKING_PERSISTENT, CACHED, PIPELINED, Job, job
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.sinks import DeltaTable

TABLE = "delta+s3://lake/cleaned"


def facts(lake: str = "s3a://lake") -> RunFacts:
    return RunFacts("2024-01-02T00:00:00+00:00", None, None, {}, {"lake": lake})


def declared(**options: Any) -> Job:
    found = job("flights")

    @found.source(result=BLOCKING)
    def raw() -> Any: ...

    found.vertex(name="cleaned", **options)(_cleaned)

    @found.sink
    def report(cleaned: Any) -> Any: ...

    return found


def _cleaned(raw: Any) -> Any:
    return raw


def test_it_is_blocking_and_its_rendered_table_is_in_the_plan() -> None:
    assert tabled.vertices["cleaned"].result is BLOCKING
    plan = plan_job(tabled, "dagjobs.tabled:tabled", facts()).record
    assert {region.name: region.fixed for region in plan.regions} == {
        "cleaned": (("cleaned", "delta+s3://lake/cleaned"),),
        "report": (),
        "total": (("total", "delta+s3://lake/total"),),
    }


def test_another_table_is_another_result() -> None:
    found = [vertex_fingerprint(each, "cleaned", {}) for each in (declared(table=TABLE), declared(table=f"{TABLE}2"))]
    assert len({*found, vertex_fingerprint(declared(result=BLOCKING), "cleaned", {})}) == 3


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"table": "s3://lake/t"}, "table-unfit"),
        ({"table": f"{TABLE}?as_of=3"}, "output-as-of"),
        ({"table": "delta+{{ subtask }}/t"}, "template-names-subtask"),
        (
            {"table": TABLE, "result": PIPELINED},
            "table-not-as-a-whole",
        ),
        ({"table": TABLE, "result": CACHED, "deterministic": "assume"}, "table-not-as-a-whole"),
        ({"table": TABLE, "result": BLOCKING_PERSISTENT}, "persistent-reads-other"),
        ({"table": TABLE, "parallelism": 2}, "table-not-as-a-whole"),
        ({"table": TABLE, "commit": "split"}, "table-not-as-a-whole"),
    ],
)
def test_what_can_not_be_is_refused(options: dict[str, Any], code: str) -> None:
    with fails_with(code):
        declared(**options).regions()


def test_two_vertices_would_overwrite_one_table() -> None:
    found = declared(table=TABLE)
    found.sink(name="other", inputs={"raw": "cleaned"}, table=TABLE)(_cleaned)
    with fails_with("table-of-two", vertex="other", other="cleaned"):
        found.regions()


def test_two_templates_that_a_run_makes_one_table_are_refused() -> None:
    found = declared(table="delta+{{ params.lake }}/t")
    found.sink(name="other", inputs={"raw": "cleaned"}, table="delta+s3://lake/t/")(_cleaned)
    assert plan_job(found, "jobs:flights", facts("s3a://elsewhere"))
    with fails_with("table-of-two", vertex="other", table="delta+s3://lake/t"):
        plan_job(found, "jobs:flights", facts("s3a://lake"))


def test_a_sink_that_commits_elsewhere_is_no_snapshot() -> None:
    found = declared(result=BLOCKING)
    found.sink(name="other", inputs={"raw": "cleaned"}, table=TABLE, commit=DeltaTable(uri="s3://lake/x"))(_cleaned)
    with fails_with("table-not-as-a-whole", found="commit="):
        found.regions()


def test_a_location_that_a_run_makes_wrong_is_refused() -> None:
    with fails_with("location-unfit", where="job 'tabled', vertex 'cleaned': table="):
        plan_job(tabled, "dagjobs.tabled:tabled", facts("lake"))
