"""What is really sent, and to whom: attacks on the deployment's credentials, before a server that writes all down."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.param import process_params
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import VariableAccessor
from paths import CODE
from recording_server import RecordingServer, content, redirect
from tries import run_try, task_context

from airflow_recovery.errors import LocationNotAllowed, RecoveryError
from airflow_recovery.hooks import code_sources, stores
from airflow_recovery.hooks.code_sources import CodeUnseen, HadoopFiles, WebFiles
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.sinks import AirflowSinkResources
from airflow_recovery.hooks.stores import Stores, Timeouts, open_stores
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.store import azure, open_store
from airflow_recovery.store.azure import AzureStore
from airflow_recovery.store.cloud import CloudStore
from airflow_recovery.store.google import GoogleStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_clients import new_session
from airflow_recovery.store.scheme import StoreAccess
from airflow_recovery.task import written_places
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.code_places import APPLICATION, Place
from airflow_recovery.task.externals import list_external

SECRET = "THESECRET"
BOX = "abfss://box@acc.dfs.core.windows.net"
EVIL = (
    "abfss://box@acc.dfs.evil.example/x",
    "abfss://box@acc.dfs.core.windows.net.evil.example/x",
    "abfss://box@acc.dfs.evilcore.windows.net/x",
    "abfss://box@acc.dfs.core.windows.net@evil.example/x",
    "abfss://box@other.dfs.core.windows.net/x",
    "abfss://other@acc.dfs.core.windows.net/x",
    "abfss://box@acc.dfs.core.chinacloudapi.cn/x",
)
TABLES = ("delta+", "iceberg://")
QUICK = Timeouts(connect_s=5.0, read_s=10.0, read_attempts=1)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingServer]:
    """Every host leads to it, by the proxy variables that botocore and obstore read; all trust its certificates."""
    with RecordingServer(tmp_path) as recorder:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, recorder.url)
        for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name, raising=False)
        for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.setenv(name, str(recorder.authority))
        yield recorder


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch, server: RecordingServer) -> None:
    """A deployment with results on Azure and a connection for S3, whose secrets are `SECRET`."""
    azure_fields = {"conn_type": "wasb", "login": "acc", "extra": {"sas_token": f"?sv=2022-11-02&sig={SECRET}"}}
    monkeypatch.setenv("AIRFLOW_CONN_BOX", json.dumps(azure_fields))
    aws = {"conn_type": "aws", "login": SECRET, "password": "p", "extra": {"region_name": "eu-west-1"}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS", json.dumps(aws))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "p")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


def stores_of(*allowed: str, **more: Any) -> Stores:
    fixed = {"aws_conn_id": "aws", "wasb_conn_id": "box", "allowed_locations": allowed}
    return open_stores(RecoverySettings("file:///journal", f"{BOX}/results", **{**fixed, **more}), QUICK)


def send_to(opened: Stores, location: str) -> None:
    """What a task does with a location of an input."""
    with suppress(RecoveryError):
        list(opened.open_external(location).list())


@pytest.mark.usefixtures("deployment")
def test_the_rig_sends_the_token_to_the_deployments_own_container(server: RecordingServer) -> None:
    with suppress(RecoveryError):
        list(stores_of().results.list())
    assert {each.host for each in server.sent} == {"acc.blob.core.windows.net"}
    assert SECRET in server.secrets


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("location", EVIL[:4] + EVIL[6:])
def test_fault_365_a_location_of_a_run_sends_no_token_to_another_host(server: RecordingServer, location: str) -> None:
    for opened in (stores_of(), stores_of("abfss://box@acc.dfs.core.windows.net")):
        with pytest.raises(LocationNotAllowed):
            opened.open_external(location)
    assert (server.sent, server.asked_for) == ([], [])


@pytest.mark.control
@pytest.mark.usefixtures("deployment")
def test_fault_365_control_without_the_function_the_token_goes_to_evil_example(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "decide", lambda *_: None)
    monkeypatch.setattr(azure, "AZURE_CLOUDS", ("evil.example",))
    send_to(stores_of(), EVIL[0])
    assert {each.host for each in server.sent} == {"acc.blob.evil.example"}
    assert SECRET in server.secrets


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("location", [*EVIL[4:6], "s3://evil/x"])
def test_fault_367_nor_to_a_bucket_that_the_run_has_chosen(server: RecordingServer, location: str) -> None:
    with pytest.raises(RecoveryError, match=r"storage account 'other'|allowed_locations"):
        stores_of().open_external(location)
    assert (server.sent, server.asked_for) == ([], [])


@pytest.mark.control
@pytest.mark.usefixtures("deployment")
def test_fault_367_control_without_the_function_any_bucket_is_asked_with_our_key(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "decide", lambda *_: None)
    send_to(stores_of(), "s3://evil/x")
    assert {each.host for each in server.sent} == {"evil.s3.eu-west-1.amazonaws.com"}
    assert SECRET in server.secrets


@pytest.mark.usefixtures("deployment")
def test_an_allowed_bucket_is_asked(server: RecordingServer) -> None:
    send_to(stores_of("s3://landing/in"), "s3://landing/in/x")
    assert {each.host for each in server.sent} == {"landing.s3.eu-west-1.amazonaws.com"}


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("location", EVIL)
def test_fault_365_delta_rs_gets_no_options_and_is_not_asked(server: RecordingServer, location: str) -> None:
    with pytest.raises(RecoveryError):
        AirflowSinkResources(stores_of()).storage_options(location)
    assert server.asked_for == []


@pytest.mark.usefixtures("deployment")
def test_fault_367_a_run_chooses_no_catalog(server: RecordingServer) -> None:
    with pytest.raises(LocationNotAllowed):
        AirflowSinkResources(stores_of()).catalog_properties("box")
    assert AirflowSinkResources(stores_of("iceberg://lake")).catalog_properties("lake")


OF_THE_PROCESS = "KEYOFTHEPROCESS"


def keys_that_list(server: RecordingServer, monkeypatch: pytest.MonkeyPatch, pattern: str) -> set[str]:
    """Which of the two keys the requests have that list ``pattern``."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OF_THE_PROCESS)
    with pytest.raises(RecoveryError, match="403"):
        list_external(stores_of("s3://landing"), pattern, "raw")
    return {key for key in (SECRET, OF_THE_PROCESS) if key in server.secrets}


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("pattern", ["s3://landing/in/*.csv", "s3a://landing/in", "s3://landing/in/{a,b}/x.csv"])
def test_fault_404_inputs_are_listed_with_the_key_of_the_connection(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    assert keys_that_list(server, monkeypatch, pattern) == {SECRET}


@pytest.mark.control
@pytest.mark.usefixtures("deployment")
def test_fault_404_control_without_the_connection_the_key_of_the_process_lists_them(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stores, "opener_of", lambda self, pattern: open_store)
    assert keys_that_list(server, monkeypatch, "s3://landing/in/*.csv") == {OF_THE_PROCESS}


class Kept(logging.Handler):
    """All lines that are logged, as a log file has them."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.mark.parametrize("protected", [True, pytest.param(False, marks=pytest.mark.control)])
def test_no_token_and_no_secret_is_in_a_log_at_any_level(
    web: tuple[RecordingServer, RecordingServer], *, protected: bool
) -> None:
    one, _ = web
    root, auth = logging.getLogger(), [logging.getLogger(f"botocore.{name}") for name in ("auth", "endpoint")]
    kept, level, filters = Kept(), root.level, [list(each.filters) for each in auth]
    s3 = S3Store(
        "s3://lake/x", endpoint_url=one.url, region_name="eu-west-1", session=new_session("ID", "THEKEY", SECRET)
    )
    azure_store = AzureStore(BOX, StoreAccess({"sas_key": "sv=1&sig=THEKEY"}, f"{one.url}/acc"), max_read_attempts=1)
    root.addHandler(kept)
    root.setLevel(logging.NOTSET)
    try:
        for each in auth:
            each.filters = each.filters if protected else []
        for opened in (s3, azure_store):
            for ask in (lambda of: list(of.list()), lambda of: of.get("k"), lambda of: of.put("k", b"")):
                with pytest.raises(RecoveryError):
                    ask(opened)
    finally:
        root.removeHandler(kept)
        root.setLevel(level)
        for each, own in zip(auth, filters, strict=True):
            each.filters = own
    text = "\n".join(kept.lines)
    assert (SECRET in one.secrets, "x-amz-security-token:" in text) == (True, True)
    assert (SECRET in text, "THEKEY" in text) == (not protected, False)


# --- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent"])
@pytest.mark.parametrize("region", ["evil.example", "evil.example/", "x@evil.example", "us-east-1"])
def test_fault_368_s3s_redirect_leads_to_hosts_of_s3_alone(server: RecordingServer, status: str, region: str) -> None:
    server.answers["GET /"] = redirect("https://evil.example/x", status, x_amz_bucket_region=region)
    server.answers["HEAD /"] = server.answers["GET /"]
    send_to(stores_of("s3://landing"), "s3://landing/x")
    assert server.sent
    assert {each.host.rpartition(".s3")[2].partition(".")[2] for each in server.sent} <= {
        "eu-west-1.amazonaws.com",
        "us-east-1.amazonaws.com",
        "amazonaws.com",
    }
    assert not [host for host in server.asked_for if not host.endswith(".amazonaws.com")]


@pytest.mark.parametrize("protected", [True, pytest.param(False, marks=pytest.mark.control)])
def test_fault_368_obstore_follows_no_redirect_to_another_host(
    web: tuple[RecordingServer, RecordingServer], monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    one, two = web
    if not protected:
        monkeypatch.setattr(CloudStore, "_no_other_host", lambda self: {})
    one.answers["GET /"] = redirect(f"http://localhost:{two.port}/x")
    azure_store = AzureStore(BOX, StoreAccess({"sas_key": f"sv=1&sig={SECRET}"}, f"{one.url}/acc"), max_read_attempts=1)
    google = GoogleStore("gs://box", StoreAccess({"skip_signature": "true"}, one.url), max_read_attempts=1)
    for opened in (azure_store, google):
        with pytest.raises(RecoveryError):
            list(opened.list())
    assert len(one.sent) == 2
    assert (SECRET in two.secrets, len(two.sent)) == ((False, 0) if protected else (True, 2))


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RecordingServer, RecordingServer]]:
    """Two web servers of this machine: one is named, one is not."""
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with RecordingServer(tmp_path / "one") as one, RecordingServer(tmp_path / "two") as two:
        yield one, two


def test_fault_368_a_web_servers_redirect_is_followed_on_the_same_server(
    web: tuple[RecordingServer, RecordingServer],
) -> None:
    one, two = web
    one.answers = {"/old.py": redirect(f"{one.url}/new.py"), "/new.py": content(b"1", ETag="e")}
    assert WebFiles().read(f"{one.url}/old.py").version[0] == "e"
    one.answers["/out.py"] = redirect(f"{two.url}/x.py")
    for ask in (WebFiles().read, WebFiles().version):
        with pytest.raises(CodeUnseen, match="redirects"):
            ask(f"{one.url}/out.py")
    assert two.sent == []
    two.answers["/x.py"] = content(b"2")
    assert WebFiles(lambda url: url == f"{two.url}/x.py").read(f"{one.url}/out.py")


@pytest.mark.control
def test_fault_368_control_without_the_function_it_is_followed_to_any_server(
    web: tuple[RecordingServer, RecordingServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = web
    one.answers["/out.py"] = redirect(f"{two.url}/x.py")
    monkeypatch.setattr(code_sources, "decide", lambda *_: None)
    with pytest.raises(OSError, match="403"):
        WebFiles().read(f"{one.url}/out.py")
    assert [each.line for each in two.sent] == ["GET /x.py HTTP/1.1"]


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "http://2852039166/", "file:///etc/passwd", "ftp://x/y"]
)
def test_fault_366_no_redirect_leads_to_a_machines_metadata(
    web: tuple[RecordingServer, RecordingServer], target: str
) -> None:
    one, _ = web
    one.answers["/out.py"] = redirect(target)
    with pytest.raises((CodeUnseen, HTTPError)):
        WebFiles(lambda url: False).read(f"{one.url}/out.py")


@pytest.mark.parametrize("protected", [True, pytest.param(False, marks=pytest.mark.control)])
def test_fault_366_a_name_that_stands_for_such_an_address_gets_nothing(
    web: tuple[RecordingServer, RecordingServer], monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    one, _ = web
    one.answers["/x.py"] = content(b"1")
    monkeypatch.setattr(code_sources, "is_never", lambda address: address == "127.0.0.1")
    if not protected:
        monkeypatch.setattr(code_sources, "_check_peer", lambda connected: None)
    with nullcontext() if not protected else pytest.raises(CodeUnseen, match="stands for 127"):
        WebFiles().read(f"http://localhost:{one.port}/x.py")
    assert len(one.sent) == (0 if protected else 1)


def test_fault_368_a_name_node_redirects_to_data_nodes_that_are_named(
    web: tuple[RecordingServer, RecordingServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, data = web
    status = {"FileStatus": {"type": "FILE", "length": 1, "modificationTime": 1, "fileId": 2}}
    name.answers = {"GETFILESTATUS": content(json.dumps(status).encode())}
    name.answers["op=OPEN"] = redirect(f"http://localhost:{data.port}/webhdfs/v1/x?op=OPEN")
    data.answers["op=OPEN"] = content(b"1")

    def connect(**extra: str) -> None:
        fields = {"conn_type": "webhdfs", "host": "127.0.0.1", "port": name.port, "login": "me", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_WEBHDFS_DEFAULT", json.dumps(fields))

    connect()
    with pytest.raises(CodeUnseen, match="redirects"):
        HadoopFiles().read("hdfs:///x")
    assert data.sent == []
    connect(data_nodes="d1.example, localhost")
    assert HadoopFiles().read("hdfs:///x")
    assert len(data.sent) == 1


# --- a task -----------------------------------------------------------------------------------------------------------


def read_by_a_task(location: str, conf: dict[str, str] | None = None, *, recovers: bool = True) -> None:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        task = RecoverableSparkSubmitOperator(
            task_id="t",
            application="/app.py",
            outputs=["out"],
            inputs={"in": location},
            application_args=["{input:in}", "{output:out}", *(["{version:in}"] if location.startswith(TABLES) else [])],
            job_recovery={"execution.batch.job-recovery.enabled": recovers},
        )
    context = task_context("t", conf=conf or {}, params=conf or {})
    run_try(task, {**context, "var": {"value": VariableAccessor(deserialize_json=False)}})


@pytest.mark.usefixtures("deployment", "recovery")
@pytest.mark.parametrize("recovers", [True, False])
@pytest.mark.parametrize(
    "location",
    [
        "s3://{{ params.box }}/x",
        "{{ params.uri }}",
        "{{ dag_run.conf.uri }}",
        "s3://la{{ params.box }}/x",
        "s3://{{ params.box }}.lake/x",
        "abfss://box@acc.dfs.{{ params.host }}/x",
        "abfss://{{ params.box }}@acc.dfs.core.windows.net/x",
        "delta+abfss://box@acc.dfs.{{ params.host }}/x",
        "iceberg://{{ params.box }}/db.t",
        "{{ params.get('uri') or var.value.lake }}",
        "{{ var.value.lake }}{{ params.box }}/x",
        "{{ var.value.scheme }}//{{ params.box }}/x",
    ],
)
def test_fault_367_a_template_over_conf_or_params_chooses_no_bucket(
    server: RecordingServer, submitted: Path, monkeypatch: pytest.MonkeyPatch, location: str, *, recovers: bool
) -> None:
    conf = {"box": "evil", "uri": "s3://evil/x", "host": "evil.example"}
    monkeypatch.setenv("AIRFLOW_VAR_LAKE", "s3://lake-")
    monkeypatch.setenv("AIRFLOW_VAR_SCHEME", "s3:")
    with pytest.raises((LocationNotAllowed, AirflowFailException), match="Nothing was sent"):
        read_by_a_task(location, conf, recovers=recovers)
    assert (server.sent, server.asked_for, submitted.exists()) == ([], [], False)


@pytest.mark.usefixtures("deployment", "recovery", "submitted")
@pytest.mark.parametrize(
    ("location", "settings"),
    [
        ("s3://lake/{{ params.path }}", {}),
        ("s3://lake/day={{ ds }}", {}),
        ("{{ var.value.lake }}/x", {"AIRFLOW_VAR_LAKE": "s3://lake"}),
        ("{{ var.value.lake }}/{{ params.path }}", {"AIRFLOW_VAR_LAKE": "s3://lake"}),
        ("{{ params.uri }}", {"AIRFLOW__RECOVERY__ALLOWED_LOCATIONS": "s3://lake/x"}),
        ("s3://{{ params.box }}/x", {"AIRFLOW__RECOVERY__ALLOWED_LOCATIONS": "s3://lake"}),
    ],
)
def test_a_bucket_of_the_dag_file_or_of_the_setting_is_asked(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch, location: str, settings: dict[str, str]
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AirflowFailException, match="the server answered 403"):
        read_by_a_task(location, {"path": "x", "uri": "s3://lake/x", "box": "lake"})
    assert {each.host for each in server.sent} == {"lake.s3.eu-west-1.amazonaws.com"}


@pytest.mark.usefixtures("deployment", "recovery", "submitted")
@pytest.mark.parametrize(("lake", "asked"), [("s3://lake", {"lake.s3.eu-west-1.amazonaws.com"}), ("s3://evil", set())])
def test_fault_367_the_default_of_a_param_is_written_in_the_dag_file_and_its_value_is_not(
    server: RecordingServer, lake: str, asked: set[str]
) -> None:
    with DAG(
        "d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), params={"lake": "s3://lake"}
    ) as dag:
        task = RecoverableSparkSubmitOperator(
            task_id="t",
            application="/app.py",
            outputs=["out"],
            inputs={"in": "{{ params.lake }}/x"},
            application_args=["{input:in}", "{output:out}"],
        )
    task.resolve_template_files()
    params = process_params(dag, task, {"lake": lake}, suppress_exception=False)  # as Airflow's task runner
    assert task.params["lake"] == lake  # Airflow replaces the default in the task itself
    with pytest.raises((RecoveryError, AirflowFailException)):
        run_try(task, task_context("t", conf={"lake": lake}, params=params))
    assert {each.host for each in server.sent} == asked


def submit_with(chosen: str, **settings: dict[str, str]) -> Any:
    """Submit an application with these settings for a run that has chosen ``{{ params.chosen }}``."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        task: Any = RecoverableSparkSubmitOperator(
            task_id="t",
            application=str(CODE / "writer.py"),
            outputs=["out"],
            application_args=["--say", "rows", "--out", "{output:out}"],
            **settings,  # type: ignore[arg-type]
        )
    task.resolve_template_files()
    return run_try(task, params={"chosen": chosen})


ENDPOINT = "spark.hadoop.fs.s3a.endpoint"


@pytest.mark.usefixtures("deployment", "recovery")
@pytest.mark.parametrize(
    ("host", "is_refused"),
    [
        ("https://evil.example", True),
        ("evil.example:443", True),
        ("http://169.254.169.254", True),
        ("ok.example", False),
    ],
)
def test_fault_365_a_run_chooses_no_endpoint_for_sparks_own_credentials(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, host: str, *, is_refused: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", "https://ok.example")
    conf = {ENDPOINT: "{{ params.chosen }}", "spark.app.name": "{{ params.chosen }}"}
    if is_refused:
        with pytest.raises(AirflowFailException, match="Nothing was sent"):
            submit_with(host, conf=conf)
        assert not submitted.exists()
    else:
        assert submit_with(host, conf=conf)["decision"] == "ran"


@pytest.mark.usefixtures("deployment", "recovery")
@pytest.mark.parametrize(
    ("field", "name", "chosen"),
    [
        *(
            ("conf", ENDPOINT, chosen)
            for chosen in (
                " https://evil.example",  # Hadoop removes blanks
                "\thttps://evil.example",
                "HTTPS://evil.example",
                "ftp://evil.example",
                "//evil.example",
                "https://ok.example@evil.example",
                "https://evil.example/://ok.example",
                "https://evil.example?x=://ok.example",
                "https://ok.example,https://evil.example",
                "https://ok.example.evil.example",
                "https://ok.example\\@evil.example",
                "https://[::ffff:169.254.169.254]",
                "2852039166",
                "metadata.google.internal.",
            )
        ),
        ("conf", "spark.hadoop.google.cloud.token.server.url", "https://evil.example"),
        ("conf", "spark.hadoop.hive.metastore.uris", "thrift://ok.example:9083,thrift://evil.example:9083"),
        ("conf", "spark.sql.catalog.lake.uri", "https://evil.example"),
        ("conf", "spark.sql.catalog.lake.s3.endpoint", "https://evil.example"),
        ("conf", "spark.executorEnv.AWS_ENDPOINT_URL_S3", "https://evil.example"),
        ("env_vars", "AWS_ENDPOINT_URL_S3", "https://evil.example"),
        ("env_vars", "AZURE_AUTHORITY_HOST", "evil.example"),
        ("env_vars", "https_proxy", "http://evil.example:3128"),
    ],
)
def test_fault_405_no_setting_and_no_variable_of_a_run_names_a_server(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, field: str, name: str, chosen: str
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", "https://ok.example")
    with pytest.raises(AirflowFailException, match="Nothing was sent"):
        submit_with(chosen, **{field: {name: "{{ params.chosen }}"}})
    assert not submitted.exists()


@pytest.mark.control
@pytest.mark.usefixtures("deployment", "recovery")
@pytest.mark.parametrize(("field", "name"), [("conf", ENDPOINT), ("env_vars", "AWS_ENDPOINT_URL_S3")])
def test_fault_405_control_without_the_look_it_reaches_spark_submit(
    submitted: Path, monkeypatch: pytest.MonkeyPatch, field: str, name: str
) -> None:
    monkeypatch.setattr(written_places, "check_settings", lambda task, check: None)
    assert submit_with(" https://evil.example", **{field: {name: "{{ params.chosen }}"}})["decision"] == "ran"
    assert submitted.exists()


@pytest.mark.usefixtures("deployment", "recovery", "submitted")
@pytest.mark.parametrize(
    ("field", "name", "chosen"),
    [
        ("env_vars", "INPUT_URI", "s3://anything/x"),
        ("conf", "spark.mine.url", "s3://anything/x"),
        ("conf", "spark.hadoop.hive.metastore.uris", "thrift://ok.example"),
        ("conf", ENDPOINT, ""),
    ],
)
def test_an_applications_own_settings_and_allowed_servers_are_taken(
    monkeypatch: pytest.MonkeyPatch, field: str, name: str, chosen: str
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", "https://ok.example")
    assert submit_with(chosen, **{field: {name: "{{ params.chosen }}"}})["decision"] == "ran"


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("uri", ["s3://evil/x.py", EVIL[0], "http://169.254.169.254/x.py", "https://evil.example/x.py"])
def test_fault_367_code_at_a_location_that_is_not_allowed_is_unseen(server: RecordingServer, uri: str) -> None:
    operator = SimpleNamespace(aws_conn_id="aws")
    (found,) = ApplicationCode(operator, stores_of()).components([Place(APPLICATION, uri)])
    assert not found.seen
    assert (server.sent, server.asked_for) == ([], [])


@pytest.mark.usefixtures("deployment")
def test_code_at_an_allowed_location_is_read(server: RecordingServer) -> None:
    server.answers["GET /x.py"] = content(b"print()", ETag="e", Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT")
    opened = stores_of("s3://code/x.py", "https://code.example/x.py")
    for uri in ("s3://code/x.py", "https://code.example/x.py"):
        ApplicationCode(SimpleNamespace(aws_conn_id="aws"), opened).components([Place(APPLICATION, uri)])
    assert {each.host for each in server.sent} == {"code.s3.eu-west-1.amazonaws.com", "code.example"}
