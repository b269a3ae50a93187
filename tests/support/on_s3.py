"""A `fakes.World` whose journal and results are on an S3 server, so that a test of it runs again over HTTP.

A module that imports tests of worlds and the fixture `on_s3` of this module runs them there. Airflow and Spark are
fakes still; every request of the journal and of the results goes to the server.
"""

from __future__ import annotations

import uuid

import fakes
import pytest

from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server

BUCKET = "recovery-tests"


class StoreOnS3(S3Store):
    """In place of a `fakes.MemoryStore`."""

    @property
    def objects(self) -> dict[str, bytes]:
        """All of them, as they are now."""
        return {info.key: self.get(info.key).body for info in self.list()}


@pytest.fixture(autouse=True)
def on_s3(one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a world has its stores on the server."""
    session = one_s3_server.session()

    def store(base_uri: str) -> StoreOnS3:
        name = base_uri.partition("://")[2]
        uri = f"s3://{BUCKET}/{uuid.uuid4().hex}/{name}"
        return StoreOnS3(uri, endpoint_url=one_s3_server.endpoint_url, session=session)

    monkeypatch.setattr(fakes, "MemoryStore", store)
