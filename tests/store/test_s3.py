"""The S3 store: what each answer means. "Missing", "denied" and "timed out" are three different errors."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from boto3.session import Session
from expected_errors import fails_with

from airflow_recovery.errors import (
    ObjectExists,
    ObjectMissing,
    StoreAccessDenied,
    StoreCredentialsExpired,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreTimeout,
    StoreUnavailable,
    StoreUnsuitable,
)
from airflow_recovery.store.lifecycle import ExpiryRule, rule_text
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_errors import from_code
from airflow_recovery.testing import S3Server

SECRET = "wrong-secret-wrong-secret"


@pytest.fixture
def stranger(s3_store: S3Store, s3_server: S3Server) -> Iterator[S3Store]:
    """The same store under credentials that the server does not know. ``there`` exists in it."""
    s3_store.put("there", b"x")
    session = Session("AKIAWRONGWRONGWRONG0", SECRET, region_name="us-east-1")
    with s3_server.refusing_strangers():
        yield S3Store(s3_store.base_uri, endpoint_url=s3_server.endpoint_url, session=session)


@pytest.fixture
def black_hole() -> Iterator[S3Store]:
    """An endpoint that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield S3Store(
            "s3://bucket/base",
            endpoint_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
            session=Session("key", "secret", region_name="us-east-1"),
            connect_timeout_s=0.3,
            read_timeout_s=0.3,
            max_read_attempts=1,
        )


def requests_of(store: S3Store) -> dict[str, Any]:
    return {
        "read": lambda: store.get("there"),
        "read of nothing": lambda: store.get("not there"),
        "list": lambda: list(store.list()),
        "conditional write": lambda: store.put_if_absent("new", b""),
        "write": lambda: store.put("new", b""),
        "delete": lambda: store.delete(["there"]),
    }


REQUESTS = ["read", "read of nothing", "list", "conditional write", "write", "delete"]


@pytest.mark.parametrize("request_", REQUESTS)
def test_fault_27_denied_is_denied_and_never_missing(stranger: S3Store, request_: str) -> None:
    with pytest.raises(StoreAccessDenied) as raised:
        requests_of(stranger)[request_]()
    assert stranger.base_uri in str(raised.value)
    assert SECRET not in str(raised.value)


def test_fault_27_negative_control_a_bare_404_alone_would_say_missing(
    stranger: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers 404 to an unknown access key: only the listing tells the truth."""
    monkeypatch.setattr(S3Store, "_get", _answers_404)
    with pytest.raises(StoreAccessDenied):
        stranger.get("there")
    monkeypatch.setattr(S3Store, "_is_listed", lambda *_: False)
    with pytest.raises(ObjectMissing):
        stranger.get("there")


def test_fault_27_a_404_for_a_listed_object_is_not_missing(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_store.put("there", b"x")
    monkeypatch.setattr(S3Store, "_get", _answers_404)
    with fails_with("listed-and-not-there"):
        s3_store.get("there")


def _answers_404(store: S3Store, key: str, max_bytes: int | None) -> None:
    raise from_code("404", 404, before=f"read {key}", text="Not Found")


@pytest.mark.slow
@pytest.mark.parametrize("request_", REQUESTS)
def test_no_answer_is_a_time_out(black_hole: S3Store, request_: str) -> None:
    with pytest.raises(StoreTimeout, match=r"s3://bucket/base"):
        requests_of(black_hole)[request_]()


def test_a_refused_connection_is_a_time_out_with_advice() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, and nobody listens
        endpoint_url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        session = Session("key", "secret", region_name="us-east-1")
        store = S3Store("s3://bucket/base", endpoint_url=endpoint_url, session=session, max_read_attempts=1)
        with fails_with("no-connection"):
            store.get("key")


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_missing_bucket_is_a_misconfiguration(s3_server: S3Server, request_: str) -> None:
    store = S3Store("s3://no-such-bucket/base", endpoint_url=s3_server.endpoint_url, session=s3_server.session())
    with fails_with("bucket-missing"):
        requests_of(store)[request_]()


def test_no_credentials_at_all_are_denied(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    store = S3Store("s3://recovery-tests", endpoint_url=s3_server.endpoint_url, region_name="us-east-1")
    with fails_with("credentials-missing"):
        store.get("key")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, ObjectMissing),
        ("404", 404, ObjectMissing),
        ("NoSuchBucket", 404, StoreMisconfigured),
        ("PermanentRedirect", 301, StoreMisconfigured),
        ("PreconditionFailed", 412, ObjectExists),
        ("ConditionalRequestConflict", 409, StoreUnavailable),
        ("OperationAborted", 409, StoreUnavailable),
        ("SlowDown", 503, StoreUnavailable),
        ("TooManyRequests", 429, StoreUnavailable),
        ("InternalError", 500, StoreUnavailable),
        ("SlowDown", 200, StoreUnavailable),
        ("502", 502, StoreUnavailable),
        ("RequestTimeout", 400, StoreTimeout),
        ("AccessDenied", 403, StoreAccessDenied),
        ("403", 403, StoreAccessDenied),
        ("", 401, StoreAccessDenied),
        ("ExpiredToken", 400, StoreCredentialsExpired),
        ("InvalidAccessKeyId", 403, StoreAccessDenied),
        ("SignatureDoesNotMatch", 403, StoreAccessDenied),
        ("KMS.DisabledException", 400, StoreCredentialsExpired),
        ("AccessDenied", 0, StoreAccessDenied),
        ("XAdminUserNotFound", 404, StoreAccessDenied),
        ("SomethingElse", 404, StoreMisconfigured),
        ("NotImplemented", 501, StoreUnsuitable),
        ("InvalidRequest", 400, StoreMisconfigured),
        ("EntityTooLarge", 400, StoreMisconfigured),
        ("XMinioStorageFull", 507, StoreFull),
        ("XMinioAdminBucketQuotaExceeded", 400, StoreFull),
        ("InsufficientStorage", 507, StoreFull),
        ("QuotaExceeded", 403, StoreFull),
        ("QuotaExceeded", 0, StoreFull),
        ("507", 507, StoreFull),
    ],
)
def test_every_answer_has_one_meaning(code: str, status: int, expected: type[StoreError]) -> None:
    error = from_code(code, status, before="Could not read s3://b/k:", text="text")
    assert type(error) is expected
    assert "s3://b/k" in str(error)


def test_fault_42_a_full_drive_that_is_told_as_an_internal_error_is_no_room() -> None:
    said = "We encountered an internal error, please try again.: cause(no space left on device)"
    error = from_code("InternalError", 500, before="Could not write s3://b/k:", text=said)
    assert type(error) is StoreFull
    assert "Make room in the bucket, or raise its quota" in str(error)


def refused_for_the_clock() -> StoreError:
    said = "The difference between the request time and the current time is too large."
    return from_code("RequestTimeTooSkewed", 403, before="Could not read s3://b/k:", text=said)


def test_fault_361_a_wrong_clock_is_not_reported_as_wrong_credentials() -> None:
    error = refused_for_the_clock()
    assert type(error) is StoreAccessDenied
    assert "The clock of this machine is wrong by more than the server allows (15 minutes): set it" in str(error)
    assert "credentials" not in str(error)


@pytest.mark.control
def test_fault_361_control_by_the_status_alone_the_advice_is_to_check_the_credentials() -> None:
    error = from_code("", 403, before="Could not read s3://b/k:", text="The difference between the times is too large.")
    assert "Check the credentials" in str(error)


def test_fault_22_a_409_is_never_read_as_exists(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    def conflict(**_: object) -> None:
        metadata: Any = {"HTTPStatusCode": 409}
        answer: Any = {"Error": {"Code": "ConditionalRequestConflict"}, "ResponseMetadata": metadata}
        raise ClientError(answer, "PutObject")

    monkeypatch.setattr(s3_store._clients.sending(1), "put_object", conflict)
    with pytest.raises(StoreUnavailable):
        s3_store.put_if_absent("key", b"")


def test_writes_are_sent_once_and_reads_are_repeated(s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    sending = s3_store._clients.sending
    monkeypatch.setattr(s3_store._clients, "sending", lambda attempts: (sent.append(attempts), sending(attempts))[1])
    s3_store.put("key", b"")
    assert sent == [1]
    s3_store.get("key")
    assert sent == [1, 4]
    for attempts in sent:
        assert cast(Any, sending(attempts).meta.config).retries["total_max_attempts"] == attempts


def test_the_base_is_one_form_whatever_was_given() -> None:
    assert S3Store("s3a://bucket/a/b/").base_uri == "s3://bucket/a/b"
    assert S3Store("s3://bucket").base_uri == S3Store("s3://bucket/").base_uri == "s3://bucket"
    with fails_with("s3-uri-unfit"):
        S3Store("http://bucket/a")


def test_a_store_at_the_root_of_a_bucket(s3_store: S3Store, s3_server: S3Server) -> None:
    s3_store.put("a/b", b"x")
    bucket, _, folder = s3_store.base_uri.removeprefix("s3://").partition("/")
    root = S3Store(f"s3://{bucket}", endpoint_url=s3_server.endpoint_url, session=s3_server.session())
    assert root.get(f"{folder}/a/b").body == b"x"
    assert [each.key for each in root.list(f"{folder}/")] == [f"{folder}/a/b"]


def test_folder_markers_are_no_objects(s3_store: S3Store) -> None:
    bucket, _, folder = s3_store.base_uri.removeprefix("s3://").partition("/")
    s3_store._clients.sending(1).put_object(Bucket=bucket, Key=f"{folder}/marker/", Body=b"")
    s3_store.put("marker/a", b"x")
    assert [each.key for each in s3_store.list()] == ["marker/a"]
    assert [each.key for each in s3_store.sibling(f"{s3_store.base_uri}/marker").list()] == ["a"]


@pytest.mark.slow
def test_a_key_with_an_empty_part_is_deleted_as_it_was_listed(start_s3_server: Callable[[str], S3Server]) -> None:
    """Others may write one; a server over a folder, as versitygw, has none."""
    server = start_s3_server("moto")
    server.create_bucket("empty-parts")
    store = S3Store("s3://empty-parts/base", endpoint_url=server.endpoint_url, session=server.session())
    client = store._clients.sending(1)
    for key in ("base/a//b", "base/a/b"):
        client.put_object(Bucket="empty-parts", Key=key, Body=b"x")
        client.create_multipart_upload(Bucket="empty-parts", Key=key)
    odd, _ = (each.key for each in store.list())
    store.delete([odd])
    assert [each.key for each in store.list()] == ["a/b"]
    for upload in list(store.uploads()):
        store.abort_upload(upload)
    assert list(store.uploads()) == []


def test_opening_a_store_imports_no_boto3() -> None:
    code = "import sys; from airflow_recovery.store import open_store; open_store('s3://b/p'); open_store('/tmp/x')"
    subprocess.run([sys.executable, "-c", f"{code}; assert not {{'boto3', 'botocore'}} & set(sys.modules)"], check=True)


def test_stores_beside_each_other_share_their_clients(s3_store: S3Store) -> None:
    other = s3_store.sibling(f"{s3_store.base_uri}/other")
    other.put("key", b"x")
    assert other._clients is s3_store._clients
    assert [each.key for each in s3_store.list()] == ["other/key"]


def test_our_own_session_knows_s3_without_looking_through_all_services(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_recovery.store.s3_clients import _loader, new_session

    _loader.cache_clear()
    seen: list[str] = []
    listdir = os.listdir

    def seeing(path: str) -> list[str]:
        seen.append(path)
        return listdir(path)

    monkeypatch.setattr("botocore.loaders.os.listdir", seeing)
    client = new_session("key", "secret").create_client("s3", region_name="us-east-1")
    assert client.meta.service_model.service_name == "s3"
    assert all(Path(each).name == "s3" for each in seen), seen


@pytest.mark.parametrize("service", ["sts", "sso", "sso-oidc", "signin"])
def test_a_session_knows_the_services_that_botocore_asks_for_credentials(service: str) -> None:
    """A role of a pod (web identity) is one of `sts`: without it there are no credentials at all."""
    from airflow_recovery.store.s3_clients import new_session

    assert new_session().create_client(service, region_name="us-east-1").meta.service_model.service_name == service


MOVES = [{"Days": 30, "StorageClass": "STANDARD_IA"}, {"Days": 90, "StorageClass": "GLACIER"}]


def test_rules_are_read_from_a_bucket(s3_server: S3Server) -> None:
    if s3_server.name != "moto":
        assert S3Store("s3://recovery-tests/x", endpoint_url=s3_server.endpoint_url).expiry_rules() == ()
        return
    s3_server.create_bucket("expiring")
    store = S3Store("s3://expiring/recovery/results", endpoint_url=s3_server.endpoint_url, session=s3_server.session())
    assert store.expiry_rules() == ()
    rules = [
        {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "recovery/"}, "Expiration": {"Days": 3}},
        {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 2}},
        {"ID": "elsewhere", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 1}},
        {"ID": "cold", "Status": "Enabled", "Filter": {"Prefix": "recovery/"}, "Transitions": MOVES},
    ]
    client: Any = s3_server.session().create_client("s3", endpoint_url=s3_server.endpoint_url)
    client.put_bucket_lifecycle_configuration(Bucket="expiring", LifecycleConfiguration={"Rules": rules})
    cold = ExpiryRule("cold", "recovery/", 90, "GLACIER")
    assert store.expiry_rules() == (ExpiryRule("tidy", "recovery/", 3), cold)
    assert rule_text(cold).endswith("'cold' moves what is older than 90 days below 'recovery/' to GLACIER")
