"""Encryption that a connection asks for: the same for what we put and for what Spark writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.encryption import Encryption
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import MotoServer, S3Server
from scripts.s3_proxy import S3Proxy

BUCKET = "recovery-tests"
KEY = "arn:aws:kms:eu-west-1:111122223333:key/journal"


@pytest.mark.parametrize(
    ("given", "put", "s3a"),
    [
        ({}, {}, {}),
        (
            {"ServerSideEncryption": "AES256"},
            {"ServerSideEncryption": "AES256"},
            {"encryption.algorithm": "SSE-S3"},
        ),
        (
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY},
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY},
            {"encryption.algorithm": "SSE-KMS", "encryption.key": KEY},
        ),
        (
            {"ServerSideEncryption": "aws:kms:dsse"},
            {"ServerSideEncryption": "aws:kms:dsse"},
            {"encryption.algorithm": "DSSE-KMS"},
        ),
    ],
)
def test_both_ways_to_write_are_told_the_same(
    given: Mapping[str, str], put: Mapping[str, str], s3a: Mapping[str, str]
) -> None:
    found = Encryption.parse(given)
    assert (found.put_arguments() if found else {}) == put
    assert (found.s3a_settings() if found else {}) == s3a


@pytest.mark.parametrize(
    "given",
    [
        {"ServerSideEncryption": "rot13"},
        {"SSEKMSKeyId": KEY},
        {"ServerSideEncryption": "AES256", "SSEKMSKeyId": KEY},
        {"ServerSideEncryption": "aws:kms", "ACL": "public-read"},
        {"SSECustomerKey": "c2VjcmV0"},
    ],
)
def test_what_can_not_be_kept_is_refused_and_no_value_is_told(given: Mapping[str, str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Encryption.parse(given)
    assert "c2VjcmV0" not in str(raised.value)


@pytest.fixture
def proxy(start_s3_server: Callable[[str], S3Server]) -> Iterator[S3Proxy]:
    with S3Proxy(start_s3_server(MotoServer.name)) as proxy:
        yield proxy


@pytest.mark.s3
def test_every_put_of_the_store_says_it(proxy: S3Proxy) -> None:
    store: ObjectStore = S3Store(
        f"s3://{BUCKET}/encrypted",
        endpoint_url=proxy.endpoint_url,
        session=MotoServer().session(),
        encryption=Encryption("aws:kms", KEY),
    )
    store.put_if_absent("claim", b"1")
    store.put("alive", b"1")
    said = [
        (
            request.headers["x-amz-server-side-encryption"],
            request.headers["x-amz-server-side-encryption-aws-kms-key-id"],
        )
        for request in proxy.requests
        if request.method == "PUT"
    ]
    assert said == [("aws:kms", KEY)] * 2
