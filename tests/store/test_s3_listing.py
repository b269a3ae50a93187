"""Pages of listings and dates of objects are read as the SDK reads them; what is not understood is left to the SDK."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse, HeadersDict

from airflow_recovery.store import s3_listing
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_clients import S3Clients, new_session
from airflow_recovery.testing import S3Server

ENTRY = (
    b"<Contents><Key>a &amp; b</Key><LastModified>%b</LastModified><ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
)
PAGE = b"<ListBucketResult><Name>n</Name>%b<IsTruncated>true</IsTruncated></ListBucketResult>"


def read(body: bytes, status: int = 200) -> tuple[bytes, dict[str, Any]]:
    """What is left to the SDK, and what was read."""
    answer: dict[str, Any] = {"status_code": status, "body": body}
    customized: dict[str, Any] = {}
    s3_listing._read_objects(response_dict=answer, customized_response_dict=customized, operation_model=None)
    return answer["body"], customized


def test_a_page_is_listed_as_the_sdk_lists_it(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed() -> list[object]:
        store = S3Store("s3://sdk-bucket/base", endpoint_url=s3_server.endpoint_url, session=s3_server.session())
        return [*store.list()]

    s3_server.create_bucket("sdk-bucket")
    store = S3Store("s3://sdk-bucket/base", endpoint_url=s3_server.endpoint_url, session=s3_server.session())
    for key in ("a&b", "a b", "<c>", "d/e~5B0~5D"):
        store.put(key, b"x")
    ours = listed()
    monkeypatch.setattr("airflow_recovery.store.s3_clients.read_answers_fast", lambda client: None)
    assert ours == listed()
    assert len(ours) == 4


def test_a_blank_that_the_server_writes_as_a_plus_sign_is_a_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """As AWS writes it (both servers of the tests write %20), and as the SDK reads it."""
    entries = [GOOD.replace(b"a &amp; b", key) for key in (b"base/city=New+York/x", b"base/city=a%2Bb/x")]
    page = PAGE.replace(b"true", b"false") % b"".join([*entries, b"<EncodingType>url</EncodingType>"])

    def listed() -> list[str]:
        store = S3Store("s3://bucket/base", endpoint_url="http://127.0.0.1:9", session=new_session("a", "b"))
        client: Any = store._clients.sending(4)
        headers: Any = HeadersDict({})
        answer = AWSResponse("", 200, headers, SimpleNamespace(stream=lambda: iter([page])))
        client.meta.events.register("before-send.s3", lambda request, **of: answer)
        return [info.key for info in store.list()]

    ours = listed()
    monkeypatch.setattr("airflow_recovery.store.s3_clients.read_answers_fast", lambda client: None)
    assert ours == listed() == ["city=New York/x", "city=a+b/x"]


def test_an_object_is_read_as_the_sdk_reads_it(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def store() -> S3Store:
        return S3Store("s3://sdk-dates/base", endpoint_url=s3_server.endpoint_url, session=s3_server.session())

    s3_server.create_bucket("sdk-dates")
    written = store().put("a", b"x")
    ours = store().get("a")
    monkeypatch.setattr("airflow_recovery.store.s3_clients.read_answers_fast", lambda client: None)
    assert ours == store().get("a")
    assert ours.info.etag == written.etag
    assert ours.info.modified_s


def dated(text: str, status: int = 200) -> tuple[bool, dict[str, Any]]:
    """Whether the date is left to the SDK, and what was read."""
    headers, customized = HeadersDict({"Last-Modified": text, "ETag": "e"}), dict[str, Any]()
    answer = {"status_code": status, "headers": headers}
    s3_listing._read_date(response_dict=answer, customized_response_dict=customized, operation_model=None)
    assert headers["etag"] == "e"
    return "last-modified" in headers, customized


def test_a_date_is_read_once_and_only_as_http_writes_it() -> None:
    moment = datetime(2026, 11, 24, 19, 45, 37, tzinfo=timezone.utc)
    assert dated("Tue, 24 Nov 2026 19:45:37 GMT") == (False, {"LastModified": moment})
    for other in ("2026-11-24T19:45:37Z", "1764013537", "yesterday", "", "Tue, 24 Nov 2026 19:45:37 -0000"):
        assert dated(other) == (True, {})
    assert dated("Tue, 24 Nov 2026 19:45:37 GMT", status=404) == (True, {})


@pytest.mark.parametrize("app_id", ["", "my-app"])
def test_requests_name_the_sdk_and_the_application(app_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SDK_UA_APP_ID", app_id)
    session = new_session("a", "b")
    client = S3Clients(session, endpoint_url="http://127.0.0.1:9", region_name="us-east-1").sending(1)
    sent: list[object] = []

    def refuse(request: Any, **of: Any) -> None:
        sent.append(request.headers["User-Agent"])
        raise InterruptedError

    client.meta.events.register("before-send.s3", refuse)
    for _ in range(2):
        with pytest.raises(InterruptedError):
            client.get_object(Bucket="b", Key="k")
    assert "Botocore/" in str(sent[0])
    assert ("app/my-app" in str(sent[0])) == bool(app_id)


def test_what_is_not_an_object_is_left_to_the_sdk() -> None:
    left, read_ = read(PAGE % (ENTRY % b"2026-01-01T00:00:00.123Z"))
    assert left == PAGE % b""
    assert list(s3_listing.listed_objects(read_, "a") or ()) == [ObjectInfo(" & b", 7, "e", 1_767_225_600.123)]


def test_a_page_has_fields_in_any_order_and_fields_that_nobody_asks_for() -> None:
    class_ = b"<StorageClass>STANDARD</StorageClass>"
    owner = b"<Owner><ID>i</ID><DisplayName/></Owner>"
    fields = b"<ETag>e</ETag><Key>a</Key>%b<Size>7</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
    entries = (owner + fields % class_, fields % b"", fields % class_)
    _, read_ = read(PAGE % b"".join(b"<Contents>%b</Contents>" % entry for entry in entries))
    assert list(s3_listing.listed_objects(read_, "") or ()) == [ObjectInfo("a", 7, "e", 1_767_225_600.0)] * 3


def test_keys_that_the_server_has_encoded_are_decoded() -> None:
    _, read_ = read(PAGE % (ENTRY % b"2026-01-01T00:00:00Z").replace(b"a &amp; b", b"base/a%25%20b"))
    for encoding, key in ((None, "a%25%20b"), ("url", "a% b")):
        listed = s3_listing.listed_objects({**read_, "EncodingType": encoding}, "base/")
        assert [info.key for info in listed or ()] == [key]


GOOD = ENTRY % b"2026-01-01T00:00:00Z"
OWNED = GOOD.replace(b"<Contents>", b"<Contents><Owner><ID>i</ID></Owner>")


def test_a_page_of_unlike_objects_with_fields_that_nobody_asks_for_is_given_up_at_once() -> None:
    fields = b"".join(b"<F%d>f</F%d>" % (number, number) for number in range(9))
    owned, other = (GOOD.replace(b"<Key>", fields + b"<Key>").replace(b"7", size) for size in (b"7", b"-7"))
    body = PAGE % (owned + 1000 * other)
    assert read(body) == (body, {})


def test_a_quotation_mark_may_be_written_by_its_number() -> None:
    left, read_ = read(PAGE % GOOD.replace(b"&quot;", b"&#34;"))
    assert left == PAGE % b""
    assert [info.etag for info in s3_listing.listed_objects(read_, "") or ()] == ["e"]


@pytest.mark.parametrize(
    "body",
    [
        PAGE % b"",
        PAGE % (ENTRY % b"Thu, 1 Jan 2026"),
        PAGE % b"<Contents><Key></Contents>",
        PAGE % (GOOD + b"lost" + GOOD),
        PAGE % (GOOD + GOOD.replace(b"<Size>7</Size>", b"")),
        PAGE % (GOOD + GOOD.replace(b"<Size>7</Size>", b"<Size>-7</Size>")),
        PAGE % (GOOD + GOOD.replace(b"<Size>7</Size>", b"<Size>7</Size><Size>8</Size>")),
        PAGE % (OWNED + OWNED.replace(b"<Size>7</Size>", b"") + OWNED),
        PAGE % (GOOD + GOOD.replace(b"&quot;e&quot;", b"")),
        PAGE % (GOOD + GOOD.replace(b"a &amp; b", b"a&#13;b")),
        PAGE % (GOOD + GOOD.replace(b"a &amp; b", b"\xff")),
    ],
)
def test_what_is_not_understood_is_left_to_the_sdk(body: bytes) -> None:
    assert read(body) == (body, {})


def test_an_error_is_left_to_the_sdk() -> None:
    body = PAGE % (ENTRY % b"2026-01-01T00:00:00Z")
    assert read(body, status=403) == (body, {})


def test_a_page_is_read_before_the_sdk_looks_through_it_for_an_error(s3_server: S3Server) -> None:
    s3_server.create_bucket("looked-through")
    store = S3Store("s3://looked-through/base", endpoint_url=s3_server.endpoint_url, session=s3_server.session())
    store.put("a", b"x")
    seen: list[bytes] = []

    def look(response_dict: dict[str, Any], **of: Any) -> None:
        seen.append(response_dict["body"])

    # Where the SDK's own handler is registered, and before it.
    store._clients.sending(store._max_read_attempts).meta.events.register_first("before-parse.s3.*", look)
    assert [info.key for info in store.list()] == ["a"]
    assert [b"<Contents>" in body for body in seen] == [False]
