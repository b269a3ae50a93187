"""``objects get URI`` prints all objects below a place; ``objects put URI`` writes one there: S3 for shell commands."""

from __future__ import annotations

import os
import sys
from typing import Any
from urllib.parse import urlsplit


def client() -> Any:
    import boto3

    return boto3.client("s3", endpoint_url=os.environ["SOAK_S3"])


def get(uri: str) -> bytes:
    parts = urlsplit(uri)
    listed = client().list_objects_v2(Bucket=parts.netloc, Prefix=parts.path.lstrip("/"))
    keys = sorted(found["Key"] for found in listed.get("Contents", ()))
    return b"".join(client().get_object(Bucket=parts.netloc, Key=key)["Body"].read() for key in keys)


def put(uri: str, body: bytes) -> None:
    parts = urlsplit(uri)
    client().put_object(Bucket=parts.netloc, Key=f"{parts.path.strip('/')}/part-0", Body=body)


if __name__ == "__main__":
    verb, where = sys.argv[1:]
    if verb == "get":
        sys.stdout.buffer.write(get(where))
    else:
        put(where, sys.stdin.buffer.read())
