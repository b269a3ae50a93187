"""What a deployment lends to sinks."""

from __future__ import annotations

import json

import pytest
from expected_errors import fails_with

from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.sinks import AirflowSinkResources, open_committers
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.sinks import DatabaseAddress, PostgresTable, spec_of


@pytest.fixture
def resources(tmp_path, monkeypatch) -> AirflowSinkResources:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", f"file://{tmp_path}/journal")
    monkeypatch.setenv("AIRFLOW__RECOVERY__RESULTS", f"file://{tmp_path}/results")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return AirflowSinkResources(open_stores(RecoverySettings.load()))


def test_a_connection_is_an_address_that_does_not_show_its_password(resources, monkeypatch):
    given = {
        "conn_type": "postgres",
        "host": "db",
        "port": 5433,
        "schema": "mart",
        "login": "ann",
        "password": "s3cret",
    }
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({**given, "extra": {"sslmode": "require", "cursor": 1}}))
    found = resources.database("warehouse")
    assert found == DatabaseAddress("db", 5433, "mart", "ann", "s3cret", (("cursor", "1"), ("sslmode", "require")))
    assert "s3cret" not in repr(found)


def test_a_connection_that_is_not_there_is_named(resources):
    with fails_with("sink-connection-missing", connection="nowhere"):
        resources.database("nowhere")


def test_results_are_opened_as_results(resources, tmp_path):
    assert resources.open_location(f"file://{tmp_path}/results/d/x").base_uri == f"file://{tmp_path}/results"
    assert resources.open_location(f"file://{tmp_path}/other").base_uri == f"file://{tmp_path}/other"


def test_delta_is_told_what_the_environment_says(resources, monkeypatch):
    assert resources.storage_options("/lake") == {}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", "s3://lake, s3://x")
    resources = AirflowSinkResources(open_stores(RecoverySettings.load()))
    assert resources.storage_options("s3://lake/delays") == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
    } | {name: value for name, value in resources.storage_options("s3://x").items() if name == "AWS_SECRET_ACCESS_KEY"}


def test_a_committer_is_opened_from_what_an_outcome_holds(resources):
    spec = spec_of(PostgresTable(conn_id="warehouse", table="mart.delays"), "delays")
    assert hasattr(open_committers(open_stores(RecoverySettings.load()))(spec), "probe")
