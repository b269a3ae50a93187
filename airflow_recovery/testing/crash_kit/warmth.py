"""What each of thousands of forked processes would import and build for itself, made once before the first fork."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING

from airflow_recovery.store.s3_clients import new_session

if TYPE_CHECKING:
    import botocore.session


def warm_up() -> None:
    """Import what a try and its driver need. With its first array pyarrow imports pandas: the cost of ten drivers."""
    import pendulum  # noqa: F401
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    parquet.write_table(pyarrow.table({"row": ["warm"]}), io.BytesIO())
    shared_session()


@cache
def shared_session() -> botocore.session.Session:
    """A session that has read the SDK's description of S3. It has no credentials yet, and no connection."""
    session = new_session()
    session.create_client("s3", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
    return session
