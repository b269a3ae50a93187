"""Names and locations of cached results: nobody else's, and without secrets."""

from __future__ import annotations

import re
from itertools import product

import pytest
from expected_errors import fails_with

from airflow_recovery.model.cached_location import CachedLocation
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.result_type import ResultType, kept_by
from airflow_recovery.results.cached import VIEW_PREFIX, cached_view_name

HERE = "s3://bucket/journal"
RUN = RunIdentity("dag", "date 2026-01-01", "g")


def test_every_attempt_result_run_and_deployment_has_a_name_of_its_own():
    journals = ("s3://bucket/journal", "s3://bucket/journa", "file:///journal")
    runs = (RUN, RunIdentity("dag", "date 2026-01-02", "g"), RunIdentity("da", "g date 2026-01-01", "g"))
    regions, attempts, results = ("r", "r[1]", "R"), (1, 2, 11), ("r", "r-1", "r_1", "R")
    names = {cached_view_name(*each) for each in product(journals, runs, regions, attempts, results)}
    assert len(names) == 3 * 3 * 3 * 3 * 4
    assert all(re.fullmatch(rf"{VIEW_PREFIX}[a-z0-9_]+", name) for name in names)


def test_a_name_is_the_same_on_every_machine():
    name = cached_view_name(HERE, RUN, "by_route", 3, "by_route")
    assert name == "airflow_recovery_by_route_3_bc07445ae8e14f5d0bfaddbf77d67a5b"
    assert {cached_view_name(each, RUN, "by_route", 3, "by_route") for each in (HERE, f"{HERE}/")} == {name}
    assert cached_view_name("s3a://bucket/journal", RUN, "by_route", 3, "by_route") == name


def test_a_location_names_server_incarnation_and_view():
    location = CachedLocation("spark:15002", "app-20260101-0001", "airflow_recovery_a_1_00")
    assert location.uri == "spark-connect://spark:15002/app-20260101-0001/airflow_recovery_a_1_00"
    assert CachedLocation.parse(location.uri) == location
    assert kept_by(location.uri) == ResultType.CACHED.kept_by
    assert kept_by("s3://bucket/spark-connect") == ""


@pytest.mark.parametrize("text", ["spark-connect://host:1/app", "s3://a/b/c", "spark-connect://h:1/app/view;token=x"])
def test_anything_else_is_no_location(text):
    with fails_with("cached-location-unfit"):
        CachedLocation.parse(text)
