from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from folder_end import is_last_of

from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.patience import NEVER_S

DAGS = Path(__file__).parent / "dags"
NEXT_LOOK = {
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": str(NEVER_S),
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
}
"""A scheduler looks for orphans when it begins, and never again. So one that is slow never counts as dead: the only
scheduler that lives is the one that looks."""
SHARED = pytest.StashKey[ExitStack]()


def api_connection(url: str, login: str, password: str) -> str:
    return json.dumps({"conn_type": "airflow_recovery", "host": url, "login": login, "password": password})


def launch(home: Path, *, recovery_backend: bool, env: Mapping[str, str] | None = None) -> LocalAirflow:
    env = {
        "CLEAR_CLIENTS_OUT": str(home / "out"),
        "AIRFLOW__RECOVERY__JOURNAL": (home / "journal").as_uri(),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        **(env or {}),
    }
    airflow = LocalAirflow(home, DAGS, database="postgresql", env=env, recovery_backend=recovery_backend)
    airflow.env["AIRFLOW_CONN_AIRFLOW_RECOVERY_DEFAULT"] = api_connection(
        airflow.url, airflow.admin.user, airflow.admin.password
    )
    return airflow


@pytest.fixture(scope="session")
def launching() -> Callable[..., LocalAirflow]:
    """`launch`, for who has more to say about the environment."""
    return launch


@pytest.fixture(scope="session")
def airflow_without_backend(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalAirflow]:
    """For several files, which one worker runs one after the other: `SHARE_AN_AIRFLOW` in `tests/conftest.py`."""
    with ExitStack() as stack:
        pytestconfig.stash[SHARED] = stack
        yield stack.enter_context(launch(tmp_path_factory.mktemp("airflow"), recovery_backend=False, env=NEXT_LOOK))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if SHARED in item.config.stash and is_last_of(sharing(item), item, nextitem):
        item.config.stash[SHARED].close()


def sharing(item: pytest.Item) -> tuple[Path, ...]:
    """The files whose tests share an Airflow."""
    conftest = item.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    return tuple(Path(__file__).parents[2] / name for name in conftest.SHARE_AN_AIRFLOW)
