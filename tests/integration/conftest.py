from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dataproc_server import DataprocServer, google_provider, use_google_provider
from pipeline import Pipeline
from shared_airflow import PER_RUN_BACKEND, open_pipeline

from airflow_recovery.testing import S3Server


@pytest.fixture
def dataproc(
    tmp_path: Path, s3_server_names: list[str], start_s3_server: Callable[[str], S3Server]
) -> Iterator[tuple[Pipeline, DataprocServer]]:
    """An Airflow of its own that has the provider of Google; and where that finds Google."""
    provider = google_provider()
    if provider is None:
        pytest.skip("Airflow's provider of Google is not installed: scripts/setup.sh --drill")
    use_google_provider(provider)
    path = os.pathsep.join([PER_RUN_BACKEND["PYTHONPATH"], str(provider)])
    with DataprocServer(tmp_path) as server:
        extra = {"PYTHONPATH": path, **server.environment()}
        s3 = start_s3_server(s3_server_names[-1])
        with open_pipeline(tmp_path / "pipeline", s3, "sc://127.0.0.1:1", extra, ("dataproc",)) as pipeline:
            yield pipeline, server
