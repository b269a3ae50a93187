"""The objects of a listing's page are read as the SDK reads them; what is not understood is left to the SDK."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_recovery.store import s3_listing
from airflow_recovery.store.s3 import S3Store
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
    monkeypatch.setattr("airflow_recovery.store.s3_clients.read_pages_fast", lambda client: None)
    assert ours == listed()
    assert len(ours) == 4


def test_what_is_not_an_object_is_left_to_the_sdk() -> None:
    left, read_ = read(PAGE % (ENTRY % b"2026-01-01T00:00:00.123Z"))
    assert left == PAGE % b""
    [entry] = read_["Contents"]
    assert (entry["Key"], entry["ETag"], entry["Size"]) == ("a & b", '"e"', 7)
    assert entry["LastModified"].timestamp() == 1_767_225_600.123


@pytest.mark.parametrize(
    "body", [PAGE % b"", PAGE % (ENTRY % b"Thu, 1 Jan 2026"), PAGE % b"<Contents><Key></Contents>"]
)
def test_what_is_not_understood_is_left_to_the_sdk(body: bytes) -> None:
    assert read(body) == (body, {})


def test_an_error_is_left_to_the_sdk() -> None:
    body = PAGE % (ENTRY % b"2026-01-01T00:00:00Z")
    assert read(body, status=403) == (body, {})
