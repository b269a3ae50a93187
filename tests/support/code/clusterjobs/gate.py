"""Objects of S3 that a driver leaves, or waits for: wherever it runs, it shares no disk with the tests."""

from __future__ import annotations

import time
from typing import Any


def leave(uri: str, body: bytes = b"") -> None:
    """Write an object."""
    client, place = _place_of(uri)
    client.put_object(**place, Body=body)


def is_there(uri: str) -> bool:
    client, place = _place_of(uri)
    try:
        client.head_object(**place)
    except client.exceptions.ClientError:
        return False
    return True


def delete(uri: str) -> None:
    client, place = _place_of(uri)
    client.delete_object(**place)


def wait_at(gate: str, application_id: str) -> None:
    """Leave ``GATE.<application id>``, and wait for ``GATE``."""
    leave(f"{gate}.{application_id}")
    while not is_there(gate):
        time.sleep(0.1)


def _place_of(uri: str) -> tuple[Any, dict[str, str]]:
    import boto3

    bucket, _, key = uri.partition("://")[2].partition("/")
    return boto3.client("s3"), {"Bucket": bucket, "Key": key}
