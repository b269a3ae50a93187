"""One-shot service of docker-compose.yaml: the journal's bucket, and the demo's input data."""

from __future__ import annotations

import os
from pathlib import Path

import boto3
from botocore.config import Config

from scripts.demo.lake import fill_lake

MAX_ATTEMPTS = 30


def create_bucket(name: str) -> None:
    """Create the bucket unless it is there. Tries `MAX_ATTEMPTS` times while the server starts (minutes)."""
    config = Config(retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS}, s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=config)
    if name not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=name)


def main() -> None:
    """Everything that has to be there before Airflow starts."""
    create_bucket(os.environ["JOURNAL_BUCKET"])
    lake = Path(os.environ["FLIGHTS_LAKE"].removeprefix("file://"))
    if not lake.exists():
        fill_lake(lake)


if __name__ == "__main__":
    main()
