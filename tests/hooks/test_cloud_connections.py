"""Airflow's connections to Google's and Azure's clouds: what of them reaches a store, a task's and a driver's."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.driver.submit import store_conf
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores, read_access
from airflow_recovery.store import azure, google
from airflow_recovery.store.azure import AzureStore
from airflow_recovery.store.cloud import CloudStore
from airflow_recovery.store.google import GoogleStore
from airflow_recovery.store.scheme import StoreAccess, StoreSpec, options_variable

KEY = {"type": "service_account", "client_email": "me@p.iam", "private_key": "-----BEGIN", "private_key_id": "1"}
BOX = "abfss://box@acc.dfs.core.windows.net"


def google_access(conn_id: str) -> StoreAccess:
    return read_access(google.SCHEME, conn_id, "gcp_conn_id", "gs://b")


def azure_access(conn_id: str, uri: str) -> StoreAccess:
    return read_access(azure.SCHEME, conn_id, "wasb_conn_id", uri)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def define(conn_type: str, **fields: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_CLOUD", json.dumps({"conn_type": conn_type, **fields}))

    return define


@pytest.mark.parametrize(
    "extra",
    [{"keyfile_dict": KEY}, {"keyfile_dict": json.dumps(KEY)}, {"extra__google_cloud_platform__keyfile_dict": KEY}],
)
def test_a_service_accounts_key_is_taken_from_googles_connection(connect: Any, extra: dict[str, Any]) -> None:
    connect("google_cloud_platform", extra=extra)
    access = google_access("cloud")
    assert json.loads(access.options["service_account_key"]) == KEY
    assert access.endpoint_url is None


def test_a_key_file_is_read(connect: Any, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    connect("google_cloud_platform", extra={"key_path": str(path)})
    with fails_with("key-file-unreadable", connection="cloud"):
        google_access("cloud")
    path.write_text(json.dumps(KEY))
    assert json.loads(google_access("cloud").options["service_account_key"]) == KEY


def test_without_a_key_the_machine_has_an_identity_of_its_own(connect: Any) -> None:
    connect("google_cloud_platform", extra={"endpoint_url": "http://127.0.0.1:1"})
    assert google_access("cloud") == StoreAccess({}, "http://127.0.0.1:1")
    connect("wasb", login="acc")
    assert azure_access("cloud", BOX) == StoreAccess({})


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"impersonation_chain": "you@p.iam"}, "key-of-other-kind"),
        ({"key_secret_name": "s"}, "key-of-other-kind"),
        ({"is_anonymous": True}, "key-of-other-kind"),
        ({"keyfile_dict": {"type": "external_account"}}, "service-account-key-unfit"),
        ({"keyfile_dict": "private and no JSON"}, "service-account-key-unfit"),
        ({"keyfile_dict": KEY, "endpoint_url": "storage:9000"}, "endpoint-unfit"),
    ],
)
def test_what_is_not_read_of_googles_connection_is_refused_by_name(
    connect: Any, extra: dict[str, Any], code: str
) -> None:
    connect("google_cloud_platform", extra=extra)
    with fails_with(code) as refused:
        google_access("cloud")
    assert "private" not in str(refused.value)


AZURES = "https://acc.blob.core.windows.net"


@pytest.mark.parametrize(
    ("fields", "options", "endpoint"),
    [
        ({"login": "acc", "password": "k"}, {"account_key": "k"}, None),
        ({"login": "acc", "host": "acc", "password": "k"}, {"account_key": "k"}, None),
        ({"host": AZURES, "password": "k"}, {"account_key": "k"}, AZURES),
        ({"host": "acc.blob.core.windows.net", "password": "k"}, {"account_key": "k"}, AZURES),
        ({"host": "http://127.0.0.1:1/acc", "password": "k"}, {"account_key": "k"}, "http://127.0.0.1:1/acc"),
        ({"login": "acc", "password": "x", "extra": {"shared_access_key": "k"}}, {"account_key": "k"}, None),
        ({"login": "acc", "extra": {"extra__wasb__sas_token": "?sv=1&sig=2"}}, {"sas_key": "sv=1&sig=2"}, None),
        ({"login": "acc", "extra": {"sas_token": f"{AZURES}/?sv=1&sig=2"}}, {"sas_key": "sv=1&sig=2"}, None),
        (
            {"login": "app", "password": "s", "host": AZURES, "extra": {"tenant_id": "t"}},
            {"tenant_id": "t", "client_id": "app", "client_secret": "s"},
            AZURES,
        ),
        ({"login": "acc", "extra": {"managed_identity_client_id": "me"}}, {"client_id": "me"}, None),
        (
            {"extra": {"connection_string": f"AccountName=acc;AccountKey=k==;BlobEndpoint={AZURES}/;X=1"}},
            {"account_key": "k=="},
            f"{AZURES}/",
        ),
    ],
)
def test_azures_connection_is_read_as_airflows_hook_reads_it(
    connect: Any, fields: dict[str, Any], options: dict[str, str], endpoint: str | None
) -> None:
    connect("wasb", **fields)
    assert azure_access("cloud", f"{BOX}/x") == StoreAccess(options, endpoint)


@pytest.mark.parametrize(
    "fields",
    [
        {"login": "other", "password": "k"},
        {"host": "https://other.blob.core.windows.net", "password": "k"},
        {"extra": {"connection_string": "AccountName=other;AccountKey=k"}},
    ],
)
def test_a_connection_of_another_account_is_refused(connect: Any, fields: dict[str, Any]) -> None:
    connect("wasb", **fields)
    with fails_with("connection-of-other-account", connection="cloud", found="other"):
        azure_access("cloud", BOX)


@dataclass
class Clients:
    """In place of obstore's store of Azure: the endpoints that clients were made for."""

    endpoints: list[str] = field(default_factory=list)

    def __call__(self, container: str, *, config: dict[str, str], **_: Any) -> None:
        self.endpoints.append(config["endpoint"])


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    made = Clients()
    monkeypatch.setitem(sys.modules, "obstore.store", SimpleNamespace(AzureStore=made))
    return made


HOSTS = ("dfs.evil.example", "dfs.core.windows.net.evil.example", "dfs.evilcore.windows.net", "dfs.localhost")


@pytest.mark.parametrize("host", HOSTS)
def test_the_credentials_go_to_no_host_that_a_location_names(connect: Any, clients: Clients, host: str) -> None:
    connect("wasb", login="acc", extra={"sas_token": "?sv=1&sig=2"})
    location = f"abfss://box@acc.{host}/x"
    with fails_with("cloud-options-unfit"):
        AzureStore(location, azure_access("cloud", location)).prepare()
    assert clients.endpoints == []


def test_control_every_host_is_taken(connect: Any, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure, "AZURE_CLOUDS", ("evil.example",))
    connect("wasb", login="acc", extra={"sas_token": "?sv=1&sig=2"})
    location = "abfss://box@acc.dfs.evil.example/x"
    AzureStore(location, azure_access("cloud", location)).prepare()
    assert set(clients.endpoints) == {"https://acc.blob.evil.example"}


@pytest.mark.parametrize("cloud", azure.AZURE_CLOUDS)
def test_each_cloud_of_azure_is_reached(connect: Any, clients: Clients, cloud: str) -> None:
    connect("wasb", login="acc", password="k")
    location = f"abfss://box@acc.dfs.{cloud}/x"
    AzureStore(location, azure_access("cloud", location)).prepare()
    assert set(clients.endpoints) == {f"https://acc.blob.{cloud}"}


def test_an_endpoint_of_the_connection_gets_all_requests(connect: Any, clients: Clients) -> None:
    connect("wasb", login="acc", password="k", extra={"endpoint_url": "https://storage.mine.example"})
    location = "abfss://box@acc.dfs.evil.example/x"
    AzureStore(location, azure_access("cloud", location)).prepare()
    assert set(clients.endpoints) == {"https://storage.mine.example"}


@pytest.mark.parametrize("uri", ["gs://b/journal", f"{BOX}/journal"])
def test_a_connection_of_the_wrong_type_is_refused(connect: Any, uri: str) -> None:
    connect("aws", login="k", password="s")
    settings = RecoverySettings(uri, "file:///r", gcp_conn_id="cloud", wasb_conn_id="cloud")
    option = "gcp_conn_id" if uri.startswith("gs") else "wasb_conn_id"
    with fails_with("connection-of-other-cloud", option=option, found="aws"):
        _ = open_stores(settings).journal


@pytest.mark.parametrize("uri", ["gs://b/journal", f"{BOX}/journal"])
def test_a_connection_that_is_missing_is_named(uri: str) -> None:
    settings = RecoverySettings(uri, "file:///r", gcp_conn_id="no_such", wasb_conn_id="no_such")
    with fails_with("connection-unknown", connection="no_such"):
        _ = open_stores(settings).journal


def options_of(store: object) -> dict[str, str]:
    assert isinstance(store, CloudStore)
    return dict(store._access.options)


def test_task_and_driver_reach_the_stores_with_the_connections_credentials(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("google_cloud_platform", extra={"keyfile_dict": KEY, "endpoint_url": "http://127.0.0.1:1"})
    monkeypatch.setenv("AIRFLOW_CONN_BOX", json.dumps({"conn_type": "wasb", "login": "acc", "password": "k"}))
    stores = open_stores(RecoverySettings("gs://b/journal", f"{BOX}/data", gcp_conn_id="cloud", wasb_conn_id="box"))
    journal, results = stores.journal, stores.results

    assert (type(journal), type(results)) == (GoogleStore, AzureStore)
    assert (journal.base_uri, results.base_uri) == ("gs://b/journal", f"{BOX}/data")
    assert stores.journal_spec == StoreSpec("gs://b/journal", "http://127.0.0.1:1", has_own_credentials=True)
    assert stores.results_spec == StoreSpec(f"{BOX}/data", has_own_credentials=True)
    found = stores.driver_env()
    assert {name.startswith("AIRFLOW_RECOVERY_") and name.endswith("_SECRET") for name in found} == {True}
    for name, text in found.items():
        monkeypatch.setenv(name, text)
    specs = (stores.journal_spec, stores.results_spec)
    assert [options_of(open_spec_store(spec)) for spec in specs] == [options_of(journal), options_of(results)]
    assert "k" not in (json.dumps([vars(spec) for spec in specs]).split('"'))
    assert store_conf(stores.results_spec, {}) == {}


def test_an_input_in_another_bucket_is_reached_by_the_same_connection(connect: Any) -> None:
    connect("google_cloud_platform", extra={"keyfile_dict": KEY})
    settings = RecoverySettings("file:///j", "file:///r", gcp_conn_id="cloud", allowed_locations=("gs://lake",))
    stores = open_stores(settings)
    assert options_of(stores.open_external("gs://lake/in")).keys() == {"service_account_key"}
    assert stores.driver_env() == {}


def test_two_buckets_have_variables_of_their_own_and_one_has_one() -> None:
    assert options_variable("gs://b/x") == options_variable("gs://b/y") != options_variable("gs://c/x")
    assert options_variable("abfs://box@acc.dfs.core.windows.net/x") == options_variable(BOX)


def test_without_connections_the_machine_has_an_identity_in_the_driver_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = open_stores(RecoverySettings("gs://b/journal", f"{BOX}/data"))
    assert stores.driver_env() == {}
    assert stores.journal_spec == StoreSpec("gs://b/journal")
    assert options_of(open_spec_store(stores.journal_spec)) == {}
    # In cluster mode a driver has nothing of the task's environment.
    monkeypatch.delenv(options_variable("gs://b"), raising=False)
    assert options_of(open_spec_store(StoreSpec("gs://b/j", "http://h", has_own_credentials=True))) == {}


def test_what_the_connection_says_now_is_asked_for_when_it_was_refused(connect: Any) -> None:
    connect("wasb", login="acc", password="old")
    store = open_stores(RecoverySettings(BOX, "/r", wasb_conn_id="cloud")).journal
    assert isinstance(store, AzureStore)
    assert options_of(store) == {"account_key": "old"}
    connect("wasb", login="acc", password="new")
    assert store._renew is not None
    assert store._renew().options == {"account_key": "new"}
