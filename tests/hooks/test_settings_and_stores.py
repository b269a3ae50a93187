from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.runtime.spec import StoreSpec


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", "s3://bucket/journal/")


def test_defaults() -> None:
    assert RecoverySettings.load() == RecoverySettings(
        journal="s3://bucket/journal",
        results="s3://bucket/journal/_results",
        aws_conn_id=None,
        api_conn_id=None,
        request_timeout=60,
    )


def test_what_is_set_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RESULTS": "file:///data/",
        "AWS_CONN_ID": "aws",
        "API_CONN_ID": "api",
        "REQUEST_TIMEOUT": "5",
    }.items():
        monkeypatch.setenv(f"AIRFLOW__RECOVERY__{name}", value)

    assert RecoverySettings.load() == RecoverySettings("s3://bucket/journal", "file:///data", "aws", "api", 5)


def test_a_missing_journal_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__RECOVERY__JOURNAL")

    with pytest.raises(ConfigurationError, match=r"\[recovery\] journal.*AIRFLOW__RECOVERY__JOURNAL"):
        RecoverySettings.load()


@pytest.mark.parametrize("results", ["s3://bucket/journal", "s3://bucket/journal/results"])
def test_results_among_the_journals_are_refused(monkeypatch: pytest.MonkeyPatch, results: str) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__RESULTS", results)

    with pytest.raises(ConfigurationError, match=r"\[recovery\] results.*prefix of its own"):
        RecoverySettings.load()


@pytest.mark.parametrize("value", ["soon", "0", "-1"])
def test_a_wrong_timeout_names_the_setting(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__REQUEST_TIMEOUT", value)

    with pytest.raises(ConfigurationError, match=r"\[recovery\] request_timeout"):
        RecoverySettings.load()


def test_local_stores_need_no_connection(tmp_path: Path) -> None:
    stores = open_stores(RecoverySettings(tmp_path.as_uri(), f"{tmp_path.as_uri()}/results"))

    stores.journal.put_if_absent("a", b"1")

    assert stores.results.base_uri == f"{tmp_path.as_uri()}/results"
    assert stores.journal_spec == StoreSpec(tmp_path.as_uri())
    assert stores.driver_env() == {}


@pytest.mark.parametrize(
    "extra",
    [
        {"endpoint_url": "http://127.0.0.1:9000", "region_name": "eu-west-1"},
        {"service_config": {"s3": {"endpoint_url": "http://127.0.0.1:9000"}}, "region_name": "eu-west-1"},
    ],
)
def test_airflows_connection_gives_endpoint_and_credentials(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, object], tmp_path: Path
) -> None:
    connection = {"conn_type": "aws", "login": "the-key", "password": "the-secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_AWS", json.dumps(connection))
    stores = open_stores(RecoverySettings("s3://bucket/journal", tmp_path.as_uri(), aws_conn_id="aws"))

    assert stores.journal_spec == StoreSpec("s3://bucket/journal", "http://127.0.0.1:9000", "eu-west-1")
    assert stores.results_spec == StoreSpec(tmp_path.as_uri())
    assert stores.journal.base_uri == "s3://bucket/journal"
    assert stores.driver_env() == {
        "AWS_ACCESS_KEY_ID": "the-key",
        "AWS_SECRET_ACCESS_KEY": "the-secret",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000",
    }


def test_an_endpoint_without_scheme_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "aws", "login": "k", "password": "s", "extra": {"endpoint_url": "minio:9000"}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS", json.dumps(connection))

    with pytest.raises(ConfigurationError, match="begin with http"):
        _ = open_stores(RecoverySettings("s3://bucket/journal", "/tmp", aws_conn_id="aws")).journal


KEYS = {"conn_type": "aws", "login": "the-key", "password": "the-secret"}


@pytest.mark.parametrize(
    ("extra", "factory", "is_light"),
    [
        ({"region_name": "eu-west-1"}, None, True),
        ({"profile_name": "somebody"}, None, False),
        ({"role_arn": "arn:aws:iam::1:role/r"}, None, False),
        ({}, "some.module.Factory", False),
    ],
)
def test_airflows_hook_is_asked_unless_the_connection_is_a_key_and_its_secret(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, object], factory: str | None, is_light: bool
) -> None:
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper
    from airflow.sdk import BaseHook

    from airflow_recovery.hooks.stores import _has_plain_keys

    monkeypatch.setenv("AIRFLOW_CONN_AWS", json.dumps({**KEYS, "extra": extra}))
    if factory:
        monkeypatch.setenv("AIRFLOW__AWS__SESSION_FACTORY", factory)

    assert _has_plain_keys(AwsConnectionWrapper(BaseHook.get_connection("aws"))) is is_light


def test_a_connection_with_keys_imports_neither_boto3_nor_airflows_aws_hook() -> None:
    code = """
import sys
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
stores = open_stores(RecoverySettings("s3://bucket/journal", "s3://bucket/results", aws_conn_id="aws"))
stores.journal.prepare()
assert stores.driver_env()["AWS_ACCESS_KEY_ID"] == "the-key"
assert stores.journal._reader is stores.results._reader
print([each for each in sys.modules if each == "boto3" or each.endswith("aws.hooks.base_aws")])
"""
    connection = json.dumps({**KEYS, "extra": {"region_name": "eu-west-1"}})
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AIRFLOW_CONN_AWS": connection},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
