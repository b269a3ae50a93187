"""What Google's and Azure's stores do besides the contract: answers that fail, are cut short, or don't come at all.

All over HTTP, with the library that users have, before Azurite and fake-gcs-server.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from cloud_servers import ACCOUNT_KEY, Answered, Asked, AzuriteServer, CloudServer, Rule

from airflow_recovery.errors import (
    ConfigurationError,
    ObjectExists,
    ObjectMissing,
    ObjectTooLarge,
    StoreAccessDenied,
    StoreCredentialsExpired,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreTimeout,
    StoreUnavailable,
    StoreUnsuitable,
)
from airflow_recovery.store import open_store, probe
from airflow_recovery.store.azure import AzureStore
from airflow_recovery.store.cloud import CloudStore, _without_markers
from airflow_recovery.store.cloud_errors import from_answer, translate
from airflow_recovery.store.google import GoogleStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.store.scheme import StoreAccess
from airflow_recovery.testing.patience import HANG_S

BUCKET = "cloud-tests"
_PRECONDITIONS = ("if-none-match", "x-goog-if-generation-match")


@pytest.fixture(scope="module")
def bucket(cloud_server: CloudServer) -> str:
    return cloud_server.create_bucket(BUCKET)


class Disturbed:
    """A store whose requests go through ``rule``."""

    def __init__(self, server: CloudServer, uri: str) -> None:
        self.rule: Rule = lambda _: None
        self.gateway = server.gateway(lambda asked: self.rule(asked))
        self.store = server.open_through(self.gateway, uri, max_read_attempts=3)

    def asked(self, method: str) -> int:
        return sum(1 for asked in self.gateway.requests if asked.method == method)


@pytest.fixture
def disturbed(cloud_server: CloudServer, bucket: str, request: pytest.FixtureRequest) -> Iterator[Disturbed]:
    disturbed = Disturbed(cloud_server, f"{bucket}/{abs(hash(request.node.nodeid))}")
    yield disturbed
    disturbed.gateway.stop()


def without_preconditions(asked: Asked) -> Asked:
    return replace(asked, headers=_without(asked.headers))


def _without(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name.lower() not in _PRECONDITIONS}


def test_a_store_that_ignores_preconditions_is_refused_by_the_probe_by_name(disturbed: Disturbed) -> None:
    disturbed.rule = without_preconditions
    with pytest.raises(StoreUnsuitable, match="has no conditional writes") as refused:
        probe(disturbed.store)
    assert disturbed.store.base_uri in str(refused.value)
    disturbed.rule = lambda _: None
    probe(disturbed.store)  # the control: nothing else was in its way


def test_a_store_that_looks_before_it_writes_is_refused_by_the_race(disturbed: Disturbed) -> None:
    gate = threading.Barrier(8)

    def look_then_write(asked: Asked) -> Answered | Asked | None:
        if asked.method != "PUT" or "-race-" not in unquote(asked.path):
            return None
        looked = disturbed.gateway.handed_on(Asked("GET", asked.path, {}, b""))
        gate.wait(HANG_S)
        return without_preconditions(asked) if looked.status == 404 else None

    disturbed.rule = look_then_write
    with pytest.raises(StoreUnsuitable, match="not atomic"):
        probe(disturbed.store)


def test_a_bucket_that_is_missing_is_no_missing_object(cloud_server: CloudServer, bucket: str) -> None:
    store = cloud_server.open(bucket.replace(BUCKET, "no-such-bucket") + "/x")
    for use in (
        lambda: store.get("a"),
        lambda: store.put_if_absent("a", b""),
        lambda: store.get_range("a", 0, 1),
        lambda: list(store.list()),
        lambda: store.delete(["a", "b"]),
        lambda: probe(store),
    ):
        with pytest.raises(StoreMisconfigured, match=r"no-such-bucket.*(ContainerNotFound|NoSuchBucket)"):
            use()


def test_a_write_is_sent_once_and_a_read_again(disturbed: Disturbed) -> None:
    disturbed.store.put("a", b"body")
    disturbed.rule = lambda _: Answered(503, {}, b"")
    begun = disturbed.asked("PUT")
    for write in (disturbed.store.put, disturbed.store.put_if_absent):
        with pytest.raises(StoreUnavailable, match="HTTP 503"):
            write("a", b"other")
    assert disturbed.asked("PUT") == begun + 2
    refused: list[Asked] = []

    def once(asked: Asked) -> Answered | None:
        refused.append(asked)
        return Answered(503, {}, b"") if len(refused) == 1 else None

    disturbed.rule = once
    assert disturbed.store.get("a").body == b"body"
    assert len(refused) == 2
    disturbed.rule = lambda _: Answered(503, {}, b"")
    with pytest.raises(StoreUnavailable):
        list(disturbed.store.list())


def test_a_body_that_breaks_off_is_read_to_its_end(disturbed: Disturbed) -> None:
    body = bytes(range(256)) * 1000
    disturbed.store.put("large", body)
    cut: list[Asked] = []

    def once(asked: Asked) -> Answered | None:
        if asked.method != "GET" or cut:
            return None
        cut.append(asked)
        return replace(disturbed.gateway.handed_on(asked), cut=200_000)

    disturbed.rule = once
    assert disturbed.store.get("large").body == body
    assert cut


def test_no_answer_is_no_answer_about_the_object(disturbed: Disturbed) -> None:
    disturbed.rule = lambda _: Answered(0, {}, b"")
    for use in (
        lambda: disturbed.store.put_if_absent("a", b""),
        lambda: disturbed.store.get("a"),
        lambda: list(disturbed.store.list("a")),
    ):
        with pytest.raises(StoreTimeout, match="try again"):
            use()
    assert disturbed.asked("PUT") == 1


def test_an_answer_that_does_not_come_is_not_waited_for(cloud_server: CloudServer, disturbed: Disturbed) -> None:
    store = cloud_server.open_through(disturbed.gateway, disturbed.store.base_uri, read_timeout_s=0.5)
    ended = threading.Event()

    def never(_: Asked) -> Answered:
        ended.wait(HANG_S)
        return Answered(0, {}, b"")

    disturbed.rule = never
    try:
        with pytest.raises(StoreTimeout):
            store.put_if_absent("a", b"")
    finally:
        ended.set()


def test_nobody_at_the_address_is_said(cloud_server: CloudServer, bucket: str) -> None:
    gateway = cloud_server.gateway(lambda _: None)
    store = cloud_server.open_through(gateway, bucket, max_read_attempts=1)
    gateway.stop()
    with pytest.raises(StoreTimeout, match=r"no connection.*Check the endpoint"):
        store.get("a")


def test_a_page_of_html_is_no_store(disturbed: Disturbed) -> None:
    disturbed.rule = lambda _: Answered(200, {"Content-Type": "text/html"}, b"<html><br>Welcome")
    for use in (lambda: disturbed.store.get("a"), lambda: list(disturbed.store.list())):
        with pytest.raises(StoreMisconfigured, match="the answer is not one of"):
            use()


def test_new_credentials_are_asked_for_once(disturbed: Disturbed) -> None:
    disturbed.store.put("a", b"body")
    refused, renewed = Answered(401, {}, b""), []

    def renew() -> StoreAccess:
        renewed.append("")
        disturbed.rule = lambda _: None
        return disturbed.store._access

    disturbed.store._renew = renew
    disturbed.rule = lambda _: refused
    assert disturbed.store.get("a").body == b"body"
    disturbed.rule = lambda _: refused
    assert [info.key for info in disturbed.store.list()] == ["a"]
    disturbed.store._renew = lambda: disturbed.store._access
    disturbed.rule = lambda _: refused
    with pytest.raises(StoreCredentialsExpired, match="HTTP 401"):
        disturbed.store.put("a", b"other")
    assert len(renewed) == 2


def test_an_object_that_is_too_large_is_not_read(cloud_server: CloudServer, bucket: str) -> None:
    store = cloud_server.open(f"{bucket}/large")
    store.put("a", b"x" * 1000)
    with pytest.raises(ObjectTooLarge, match="1000"):
        store.get("a", 999)
    assert store.get("a", 1000).info.size == 1000


def test_more_objects_than_one_request_takes_are_deleted_with_some_that_are_missing(
    cloud_server: CloudServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.store.cloud._DELETED_AT_ONCE", 4)
    store = cloud_server.open(f"{bucket}/deleted")
    keys = [f"{number:03}" for number in range(10)]
    for key in keys[::3]:
        store.put(key, b"")
    store.delete(keys)
    assert [*store.list()] == []


def test_folder_markers_are_no_objects(cloud_server: CloudServer, bucket: str) -> None:
    store = cloud_server.open(f"{bucket}/marked")
    for key in ("t", "t/day=1", "t/day=1-x", "t/day=1/part-0", "t/empty", "t/part-1"):
        store.put(key, b"" if key in ("t", "t/day=1", "t/empty") else b"x")
    assert [info.key for info in store.list("t/")] == ["t/day=1-x", "t/day=1/part-0", "t/empty", "t/part-1"]
    assert next(iter(store.list("t/part"))).key == "t/part-1"
    at_the_marker = cloud_server.open(f"{bucket}/marked/t/day=1")
    assert [info.key for info in at_the_marker.list()] == ["part-0"]


def listed(*names: str) -> Iterator[ObjectInfo]:
    return (ObjectInfo(name.strip("!"), int("!" not in name), "e") for name in names)


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["a!"], ["a"]),
        (["a!", "a/b"], ["a/b"]),
        (["a!", "a/b!", "a/b/c"], ["a/b/c"]),
        (["a!", "a-1", "a-2!", "a/b", "b"], ["a-1", "a-2", "a/b", "b"]),
        (["a-1", "a!", "a/b"], ["a-1", "a/b"]),
        (["a!", "a-1", "b"], ["a", "a-1", "b"]),
        (["a!", "b!", "b/c", "c!"], ["a", "b/c", "c"]),
    ],
)
def test_what_is_a_marker(names: list[str], kept: list[str]) -> None:
    assert [info.key for info in _without_markers(listed(*names))] == kept


class Unordered:
    """A client of the library, of an account whose listings are in the order of folders."""

    def list(self, *of: object, **options: object) -> Iterator[list[dict[str, Any]]]:
        from datetime import datetime, timezone

        now = datetime.now(timezone.utc)
        yield [{"path": name, "size": 1, "e_tag": "e", "last_modified": now} for name in ("t/a/1", "t/a-2/1")]


def test_a_listing_in_another_order_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    store = AzureStore("abfss://box@acc.dfs.core.windows.net")
    monkeypatch.setattr(store, "_client", lambda attempts: Unordered())
    with pytest.raises(StoreUnsuitable, match="Use a bucket, or an Azure account without a hierarchical namespace"):
        list(store.list("t/"))


LISTED_BY_GOOGLE = b"""<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated><Contents>
<Key>base/a//b</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag><Size>1</Size></Contents></ListBucketResult>"""


class OddBucket(BaseHTTPRequestHandler):
    """A bucket in which somebody has written ``a//b``."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(LISTED_BY_GOOGLE)))
        self.end_headers()
        self.wfile.write(LISTED_BY_GOOGLE)

    def log_message(self, *said: object) -> None:
        pass


def test_a_name_that_the_library_cannot_list_is_named() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), OddBucket) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        access = StoreAccess({"skip_signature": "true"}, f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(StoreMisconfigured, match=r'"base/a//b" contained .* Rename that object, or delete it'):
            list(GoogleStore("gs://bucket/base", access).list())
        server.shutdown()


@pytest.mark.parametrize(
    "uri",
    [
        "gs://",
        "gs:///x",
        "gs://b//x",
        "gs://b/../x",
        "abfss://box/x",
        "abfss://box@/x",
        "abfss://@acc.dfs.core.windows.net/x",
        "abfss://box@acc.blob.core.windows.net/x",
        "abfss://box@acc.dfs.core.windows.net/a/./x",
        "wasbs://box@acc.blob.core.windows.net/x",
        "hdfs://host/x",
    ],
)
def test_a_uri_that_names_no_store_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"gs://<bucket>|abfss://<container>"):
        open_store(uri)


def test_each_uri_has_its_store() -> None:
    opened = {
        uri: open_store(uri)
        for uri in (
            "gs://b",
            "gs://b/x/",
            "abfs://box@acc.dfs.core.windows.net/x",
            "abfss://box@acc.dfs.core.windows.net",
        )
    }
    assert [type(store) for store in opened.values()] == [GoogleStore, GoogleStore, AzureStore, AzureStore]
    assert [store.base_uri for store in opened.values()] == [
        "gs://b",
        "gs://b/x",
        "abfss://box@acc.dfs.core.windows.net/x",
        "abfss://box@acc.dfs.core.windows.net",
    ]


def test_a_sibling_lies_in_the_same_bucket() -> None:
    store = GoogleStore("gs://b/x")
    assert store.sibling("gs://b/y").base_uri == "gs://b/y"
    with pytest.raises(ConfigurationError, match="below gs://b"):
        store.sibling("gs://c/y")


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    store = GoogleStore("gs://b/x")
    with pytest.raises(ConfigurationError, match=r"obstore.*airflow-recovery\[google\]"):
        store.put_if_absent("a", b"")


@pytest.mark.parametrize(
    ("kind", "access"),
    [
        (GoogleStore, StoreAccess({"service_account_key": "{"})),
        (GoogleStore, StoreAccess({"no_such_option": "x"})),
        (AzureStore, StoreAccess({"account_key": "not base64!"})),
    ],
)
def test_options_that_the_library_refuses_are_said(kind: type[CloudStore], access: StoreAccess) -> None:
    uri = "gs://b" if kind is GoogleStore else "abfss://box@acc.dfs.core.windows.net"
    with pytest.raises(ConfigurationError, match="Correct the connection"):
        kind(uri, access).get("a")


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "BlobNotFound", ObjectMissing),
        (404, "NoSuchKey", ObjectMissing),
        (404, "ContainerNotFound", StoreMisconfigured),
        (404, "NoSuchBucket", StoreMisconfigured),
        (404, "", StoreMisconfigured),
        (409, "BlobAlreadyExists", ObjectExists),
        (409, "ContainerBeingDeleted", StoreMisconfigured),
        (409, "OperationAborted", StoreUnavailable),
        (409, "", StoreUnavailable),
        (412, "PreconditionFailed", ObjectExists),
        (412, "", ObjectExists),
        (401, "InvalidAuthenticationInfo", StoreCredentialsExpired),
        (403, "AuthenticationFailed", StoreCredentialsExpired),
        (403, "AuthorizationPermissionMismatch", StoreAccessDenied),
        (403, "AccessDenied", StoreAccessDenied),
        (403, "", StoreAccessDenied),
        (408, "", StoreTimeout),
        (429, "SlowDown", StoreUnavailable),
        (500, "InternalError", StoreUnavailable),
        (501, "NotImplemented", StoreUnsuitable),
        (503, "ServerBusy", StoreUnavailable),
        (507, "", StoreFull),
        (400, "InvalidUri", StoreMisconfigured),
    ],
)
def test_what_an_answer_means(status: int, code: str, error: type[StoreError]) -> None:
    meant = from_answer(status, code, before="Could not write gs://b/k:", text="why", cloud="the cloud")
    assert type(meant) is error
    assert str(meant).startswith(
        f"Could not write gs://b/k: the server answered {code or 'no code'} (HTTP {status}): why."
    )


def test_wrong_keys_are_denied(azurite: AzuriteServer) -> None:
    uri = azurite.create_bucket(BUCKET)
    for access in (
        replace(azurite.access(), options={"account_key": "AAAA" + ACCOUNT_KEY[4:]}),
        azurite.sas_access(expires="2001-01-01T00:00:00Z"),
    ):
        with pytest.raises((StoreAccessDenied, StoreCredentialsExpired), match="HTTP 403"):
            AzureStore(uri, access).put_if_absent("a", b"")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("Error performing token request: Error performing GET http://m/token - HTTP error", StoreAccessDenied),
        ("Error performing token request: Server returned non-2xx status code: 403 Forbidden: no", StoreAccessDenied),
        ("Error performing token request: Server returned non-2xx status code: 503 Busy: no", StoreUnavailable),
        ("Error performing GET http://m/b - Server returned non-2xx status code: 403 Forbidden: no", StoreAccessDenied),
    ],
)
def test_a_machine_without_an_identity_is_told_what_to_set(said: str, error: type[StoreError]) -> None:
    from obstore.exceptions import GenericError

    meant = translate(GenericError(f"Generic GCS error: {said}"), cloud="the cloud", action="read", uri="gs://b/k")
    assert type(meant) is error
    assert ("no usable credentials" in str(meant)) == ("token" in said and error is StoreAccessDenied)
