"""Which locations are opened for whom: what a record says of a place is not believed."""

from __future__ import annotations

import pytest
from expected_errors import fails_with

from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results.places import Asker, Look, ResultPlaces, declares

RUN = RunIdentity("flights", "date-2026-01-01T000000Z", "group")
BASE = "s3://data/results"
OWN = f"{BASE}/flights/date-2026-01-01T000000Z/group/raw/00000001/raw"


def look(
    asker: Asker, location: str, *declared: str, managed: bool = False, results: str = BASE, result: str = "raw"
) -> Look:
    plans = [
        PlanRecord("j", (RegionPlan("raw", ("raw",), ("raw",), (), True, None, fixed=(("raw", each),)),))
        for each in declared
    ]
    places = ResultPlaces.of(results, RUN, asker, plans)
    return places.look_at(PartitionManifest(result, location, (), managed=managed))


@pytest.mark.parametrize("asker", Asker)
@pytest.mark.parametrize("location", [OWN, OWN.replace("s3://", "s3a://"), f"{BASE}/_shared/abc/raw/00000001/raw"])
def test_what_lies_below_the_results_of_its_run_is_opened(asker: Asker, location: str) -> None:
    assert look(asker, location, managed=True) is Look.OPEN


@pytest.mark.parametrize("asker", Asker)
@pytest.mark.parametrize(
    "location",
    [
        "file:///etc",
        "/etc",
        "s3://other/results/flights/date-2026-01-01T000000Z/group/raw/00000001/raw",
        f"{BASE}2/flights/date-2026-01-01T000000Z/group/raw/00000001/raw",
        f"{BASE}/payroll/date-2026-01-01T000000Z/group/raw/00000001/raw",
        f"{BASE}/flights/date-2026-01-01T000000Z/group2/raw",
        BASE,
    ],
)
def test_fault_86_a_managed_result_elsewhere_is_refused_for_everybody(asker: Asker, location: str) -> None:
    with fails_with("result-elsewhere"):
        look(asker, location, location, managed=True)


def test_a_fixed_location_is_opened_where_it_is_declared() -> None:
    lake = "s3://lake/flights/clean"
    assert look(Asker.TASK, lake, lake) is Look.OPEN
    assert look(Asker.API_SERVER, lake, lake) is Look.OPEN_AND_TELL_NOTHING
    assert look(Asker.PERSON, lake) is Look.OPEN


@pytest.mark.parametrize("location", ["s3://payroll/clean", "s3://lake/flights/cleaner", "s3://lake/flights", "/etc"])
def test_and_nowhere_else(location: str) -> None:
    assert look(Asker.TASK, location, "s3://lake/flights/clean") is Look.NOT_DECLARED
    assert look(Asker.API_SERVER, location, "s3://lake/flights/clean") is Look.TAKEN_TO_BE_THERE


def test_a_location_that_is_declared_of_another_result_counts_for_that_one_alone() -> None:
    assert look(Asker.API_SERVER, "s3://lake/x", "s3://lake/x", result="other") is Look.TAKEN_TO_BE_THERE


def test_a_plan_of_an_earlier_version_declares_nothing() -> None:
    assert look(Asker.API_SERVER, "s3://lake/flights") is Look.TAKEN_TO_BE_THERE


def test_the_api_server_opens_files_only_where_the_results_are_files() -> None:
    assert look(Asker.API_SERVER, "file:///lake", "/lake") is Look.TAKEN_TO_BE_THERE
    assert look(Asker.API_SERVER, "file:///lake", "{{ var.value.lake }}") is Look.TAKEN_TO_BE_THERE
    assert look(Asker.API_SERVER, "file:///lake", "/lake", results="/results") is Look.OPEN_AND_TELL_NOTHING


@pytest.mark.parametrize(
    ("declared", "is_opened"),
    [("s3://lake/{{ ds }}", True), ("s3://{{ b }}/x", False), ("{{ uri }}", False), ("s3://la{{ b }}/x", False)],
)
def test_a_template_must_name_its_bucket(declared: str, is_opened: bool) -> None:
    wanted = Look.OPEN_AND_TELL_NOTHING if is_opened else Look.TAKEN_TO_BE_THERE
    assert look(Asker.API_SERVER, "s3://lake/x", declared) is wanted


@pytest.mark.parametrize(
    ("declared", "location"),
    [
        ("s3://lake/x", "s3a://lake/x"),
        ("file:///lake", "/lake"),
        ("s3://lake/{{ ds }}/", "s3://lake/2026-01-01"),
        ("s3a://lake/{{ ds }}/out", "s3://lake/2026-01-01/out"),
        ("{{ var.value.lake }}/out", "s3://lake/out"),
        ("s3://lake/{% if a %}b{% else %}c{% endif %}/out", "s3://lake/c/out"),
        ("s3://lake/{{ {'a': {'b': 1}}['a'] }}", "s3://lake/1"),
        ("file://{{ folder }}/out", "file:///lake/out"),
        ("iceberg://lake/db.t_{{ ds_nodash }}?branch=main", "iceberg://lake/db.t_20260101"),
        ("iceberg://lake/db.t?branch={{ var.value.branch }}", "iceberg://lake/db.t"),
        ("iceberg://lake/db.t?branch={{ var.value.branch }}", "iceberg://lake/db.t?branch=audit"),
    ],
)
def test_what_a_template_may_come_to(declared: str, location: str) -> None:
    assert declares(declared, location)


@pytest.mark.parametrize(
    ("declared", "location"),
    [
        ("s3://lake/{{ ds }}", "s3://lakes/x"),
        ("s3://lake/{{ ds }}/out", "s3://lake/x/in"),
        ("s3://lake/x", "s3://lake"),
        ("iceberg://lake/db.t_{{ ds_nodash }}?branch=main", "iceberg://lake/db.t_20260101?branch=audit"),
        ("iceberg://lake/db.t_{{ ds_nodash }}?branch=audit", "iceberg://lake/db.t_20260101"),
        ("s3://lake/{{ ds }}?branch=main", "s3://lake/2026-01-01"),
    ],
)
def test_and_what_not(declared: str, location: str) -> None:
    assert not declares(declared, location)
