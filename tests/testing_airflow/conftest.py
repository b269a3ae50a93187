from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow

DAGS = Path(__file__).parent / "dags"


def api_connection(url: str, login: str, password: str) -> str:
    return json.dumps({"conn_type": "airflow_recovery", "host": url, "login": login, "password": password})


def launch(home: Path, *, recovery_backend: bool, env: Mapping[str, str] | None = None) -> LocalAirflow:
    env = {
        "CLEAR_CLIENTS_OUT": str(home / "out"),
        "AIRFLOW__RECOVERY__JOURNAL": (home / "journal").as_uri(),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        **(env or {}),
    }
    airflow = LocalAirflow(home, DAGS, env=env, recovery_backend=recovery_backend)
    airflow.env["AIRFLOW_CONN_AIRFLOW_RECOVERY_DEFAULT"] = api_connection(
        airflow.url, airflow.admin.user, airflow.admin.password
    )
    return airflow


@pytest.fixture(scope="session")
def launching() -> Callable[..., LocalAirflow]:
    """`launch`, for who has more to say about the environment."""
    return launch


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    with launch(tmp_path_factory.mktemp("airflow"), recovery_backend=True) as started:
        yield started


@pytest.fixture(scope="module")
def airflow_without_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    with launch(tmp_path_factory.mktemp("airflow"), recovery_backend=False) as started:
        yield started
