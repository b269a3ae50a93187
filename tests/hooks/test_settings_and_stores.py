from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from expected_errors import fails_with

from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.driver.submit import store_conf
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing import MotoServer, S3Server
from airflow_recovery.testing.patience import HANG_S


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

    with fails_with("journal-not-set"):
        RecoverySettings.load()


@pytest.mark.parametrize("results", ["s3://bucket/journal", "s3://bucket/journal/results"])
def test_results_among_the_journals_are_refused(monkeypatch: pytest.MonkeyPatch, results: str) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__RESULTS", results)

    with fails_with("results-among-journals"):
        RecoverySettings.load()


@pytest.mark.parametrize("value", ["soon", "0", "-1"])
def test_a_wrong_timeout_names_the_setting(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__REQUEST_TIMEOUT", value)

    with fails_with("request-timeout-not-above-0", "request-timeout-unfit"):
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

    with fails_with("endpoint-unfit"):
        _ = open_stores(RecoverySettings("s3://bucket/journal", "/tmp", aws_conn_id="aws")).journal


def connect(monkeypatch: pytest.MonkeyPatch, name: str, login: str, **extra: object) -> None:
    connection = {"conn_type": "aws", "login": login, "password": f"secret of {login}", "extra": extra}
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


def test_fault_85_journal_and_results_may_have_credentials_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "journal", "j-key", region_name="eu-west-1")
    connect(monkeypatch, "data", "d-key", region_name="eu-west-2", endpoint_url="http://127.0.0.1:9000")
    lake = ("s3://lake",)
    settings = RecoverySettings(
        "s3://journal", "s3://data", aws_conn_id="journal", results_aws_conn_id="data", allowed_locations=lake
    )
    stores = open_stores(settings)

    assert stores.journal_spec == StoreSpec("s3://journal", None, "eu-west-1", has_own_credentials=True)
    assert stores.results_spec == StoreSpec("s3://data", "http://127.0.0.1:9000", "eu-west-2")
    # What Spark looks for, and gives to its executors, are those of the results alone.
    found = stores.driver_env()
    assert {name: each for name, each in found.items() if name.startswith("AWS_")} == {
        "AWS_ACCESS_KEY_ID": "d-key",
        "AWS_SECRET_ACCESS_KEY": "secret of d-key",
        "AWS_DEFAULT_REGION": "eu-west-2",
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    driver = {each: open_spec_store(each) for each in (stores.journal_spec, stores.results_spec)}
    access_keys = {each.uri: signed_by(store) for each, store in driver.items()}
    assert access_keys == {"s3://journal": "j-key", "s3://data": "d-key"}
    assert (signed_by(stores.journal), signed_by(stores.results)) == ("j-key", "d-key")
    assert signed_by(stores.open_external("s3://lake/in")) == "d-key"


def signed_by(store: object) -> str:
    assert isinstance(store, S3Store)
    return str(store._clients.sending(1)._get_credentials().access_key)  # type: ignore[attr-defined]


def test_results_with_credentials_of_their_own_need_those_of_the_journal_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__RESULTS_AWS_CONN_ID", "data")

    with fails_with("journal-connection-missing"):
        RecoverySettings.load()


KMS_KEY = "arn:aws:kms:eu-west-1:111122223333:key/k"


def test_a_connections_encryption_is_for_journal_and_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KMS_KEY}
    connect(monkeypatch, "aws", "key", region_name="eu-west-1", service_config={"s3": {"extra_args": given}})
    stores = open_stores(RecoverySettings("s3://bucket/journal", "s3://bucket/data", aws_conn_id="aws"))

    assert stores.journal._put_arguments == given  # type: ignore[attr-defined]
    assert open_spec_store(stores.journal_spec)._put_arguments == given  # type: ignore[attr-defined]
    conf = store_conf(stores.results_spec, {})
    assert conf["spark.hadoop.fs.s3a.encryption.algorithm"] == "SSE-KMS"
    assert conf["spark.hadoop.fs.s3a.encryption.key"] == KMS_KEY


def test_what_a_connection_can_not_ask_for_names_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "aws", "key", service_config={"s3": {"extra_args": {"ACL": "public-read"}}})

    with fails_with("encryption-arguments-unfit", connection="aws"):
        _ = open_stores(RecoverySettings("s3://bucket/journal", "/tmp", aws_conn_id="aws")).journal


def test_fault_28_new_credentials_come_from_the_connection_as_it_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "aws", "old", region_name="eu-west-1")
    store = open_stores(RecoverySettings("s3://bucket/journal", "/tmp", aws_conn_id="aws")).journal
    assert isinstance(store, S3Store)
    asked: list[str] = []

    def request(client: Any) -> str:
        asked.append(client._get_credentials().access_key)
        if asked[-1] == "old":
            raise ClientError({"Error": {"Code": "ExpiredToken"}}, "PutObject")
        return "done"

    connect(monkeypatch, "aws", "new", region_name="eu-west-1")
    assert store._clients.ask(1, request) == "done"
    assert asked == ["old", "new"]


@pytest.mark.parametrize("extra", [{"profile_name": "somebody"}, {}])
def test_profile_and_session_token_reach_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extra: dict[str, str]
) -> None:
    (tmp_path / "credentials").write_text(
        "[somebody]\naws_access_key_id = p-key\naws_secret_access_key = p-secret\naws_session_token = p-token\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    keys = {} if extra else {"login": "p-key", "password": "p-secret"}
    token = {} if extra else {"aws_session_token": "p-token"}
    connection = {"conn_type": "aws", **keys, "extra": {**extra, **token, "region_name": "eu-west-1"}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS", json.dumps(connection))
    stores = open_stores(RecoverySettings("s3://bucket/journal", "s3://bucket/data", aws_conn_id="aws"))

    assert stores.driver_env() == {
        "AWS_ACCESS_KEY_ID": "p-key",
        "AWS_SECRET_ACCESS_KEY": "p-secret",
        "AWS_SESSION_TOKEN": "p-token",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }


def test_an_assumed_role_reaches_the_driver(
    monkeypatch: pytest.MonkeyPatch, start_s3_server: Callable[[str], S3Server]
) -> None:
    server = start_s3_server(MotoServer.name)  # it answers for STS, too
    connection = {
        "conn_type": "aws",
        "login": "base-key",
        "password": "base-secret",
        "extra": {
            "role_arn": "arn:aws:iam::123456789012:role/recovery",
            "region_name": "us-east-1",
            "endpoint_url": server.endpoint_url,
            "service_config": {"sts": {"endpoint_url": server.endpoint_url}},
        },
    }
    monkeypatch.setenv("AIRFLOW_CONN_AWS", json.dumps(connection))
    found = open_stores(RecoverySettings("s3://b/journal", "s3://b/data", aws_conn_id="aws")).driver_env()

    assert found["AWS_ACCESS_KEY_ID"] != "base-key"
    assert found["AWS_SESSION_TOKEN"]
    assert "base-secret" not in found.values()


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

    from airflow_recovery.hooks.s3_connection import _has_plain_keys

    monkeypatch.setenv("AIRFLOW_CONN_AWS", json.dumps({**KEYS, "extra": extra}))
    if factory:
        monkeypatch.setenv("AIRFLOW__AWS__SESSION_FACTORY", factory)

    assert _has_plain_keys(AwsConnectionWrapper(BaseHook.get_connection("aws"))) is is_light


@pytest.mark.slow
def test_a_connection_with_keys_imports_neither_boto3_nor_airflows_aws_hook() -> None:
    code = """
import sys
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
stores = open_stores(RecoverySettings("s3://bucket/journal", "s3://bucket/results", aws_conn_id="aws"))
stores.journal.prepare()
assert stores.driver_env()["AWS_ACCESS_KEY_ID"] == "the-key"
assert stores.journal._clients is stores.results._clients
print([each for each in sys.modules if each == "boto3" or each.endswith("aws.hooks.base_aws")])
"""
    connection = json.dumps({**KEYS, "extra": {"region_name": "eu-west-1"}})
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "AIRFLOW_CONN_AWS": connection},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.stdout.strip().endswith("[]"), done.stdout + done.stderr
