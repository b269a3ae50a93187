"""What a request needs of IAM, and what a policy allows: as S3 has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from s3_policy import Statement, documented, statements

from scripts.s3_proxy import S3Request

DELETE = b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>a/1</Key></Object></Delete>'


def request(
    method: str,
    bucket: str,
    key: str = "",
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> S3Request:
    return S3Request(method, bucket, key, query or {}, headers or {}, body)


@pytest.mark.parametrize(
    ("sent", "needed"),
    [
        (request("GET", "b", "a/1"), [("s3:GetObject", "b/a/1"), ("s3:ListBucket", "b")]),
        (request("HEAD", "b", "a/1"), [("s3:GetObject", "b/a/1"), ("s3:ListBucket", "b")]),
        (request("PUT", "b", "a/1"), [("s3:PutObject", "b/a/1")]),
        (
            request("PUT", "b", "a/1", headers={"x-amz-copy-source": "/other/x%20y?versionId=1"}),
            [("s3:PutObject", "b/a/1"), ("s3:GetObject", "other/x y")],
        ),
        (request("POST", "b", "a/1", {"uploads": ""}), [("s3:PutObject", "b/a/1")]),
        (request("PUT", "b", "a/1", {"partNumber": "1", "uploadId": "u"}), [("s3:PutObject", "b/a/1")]),
        (request("DELETE", "b", "a/1"), [("s3:DeleteObject", "b/a/1")]),
        (request("DELETE", "b", "a/1", {"uploadId": "u"}), [("s3:AbortMultipartUpload", "b/a/1")]),
        (request("POST", "b", "", {"delete": ""}, body=DELETE), [("s3:DeleteObject", "b/a/1")]),
        (request("GET", "b", "", {"list-type": "2", "prefix": "a/"}), [("s3:ListBucket", "b")]),
        (request("GET", "b", "", {"uploads": ""}), [("s3:ListBucketMultipartUploads", "b")]),
        (request("GET", "b", "", {"lifecycle": ""}), [("s3:GetLifecycleConfiguration", "b")]),
        (request("PUT", "b"), [("s3:CreateBucket", "b")]),
    ],
)
def test_what_a_request_needs(sent: S3Request, needed: list[tuple[str, str]]) -> None:
    assert list(sent.actions()) == needed


def test_who_signed() -> None:
    signed = {"authorization": "AWS4-HMAC-SHA256 Credential=worker/20260101/us-east-1/s3/aws4_request, Signature=1"}
    assert request("GET", "b", headers=signed).access_key == "worker"
    assert request("GET", "b").access_key == ""


def test_what_a_statement_allows() -> None:
    listing = Statement(("s3:ListBucket",), ("b",), ("a/*",))
    assert listing.allows("s3:ListBucket", "b", "a/x")
    assert listing.allows("s3:ListBucket", "b", None)  # ...IfExists
    assert not listing.allows("s3:ListBucket", "b", "")
    assert not listing.allows("s3:ListBucket", "b", "other/")
    assert not listing.allows("s3:ListBucket", "bb", "a/x")
    objects = Statement(("s3:GetObject",), ("b/a/*", "b/[x]?.y"))
    assert objects.allows("s3:GetObject", "b/a/1/2", None)
    assert objects.allows("s3:GetObject", "b/[x]1.y", None)
    assert not objects.allows("s3:GetObject", "b/a", None)
    assert not objects.allows("s3:GetObject", "b/x1.y", None)
    assert not objects.allows("s3:PutObject", "b/a/1", None)


ALLOW = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::b/*"]}


@pytest.mark.parametrize(
    "changed",
    [
        {"Effect": "Deny"},
        {"Action": ["s3:*"]},
        {"NotAction": ["s3:GetObject"]},
        {"Condition": {"StringLike": {"s3:prefix": ["a"]}}},
        {"Condition": {"StringLikeIfExists": {"aws:SourceIp": ["10.0.0.1"]}}},
    ],
)
def test_what_is_not_understood_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected an Allow"):
        statements({"Statement": [{**ALLOW, **changed}]})


def test_documents_are_found_by_their_name() -> None:
    page = '<!-- policy: a-b -->\n```json\n{"Statement": []}\n```\n\n```json\n{"not": "one"}\n```\n'
    assert documented(page) == {"a-b": ()}
