"""The plugin's entry point. Every Airflow process loads it, task processes included, so it imports nothing heavy."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_recovery import scheduler_start
from airflow_recovery.attempt.clear_protocol import API_PREFIX

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LazyApp:
    """An ASGI application that is imported when the first request comes, hence in the API server alone.

    FastAPI and Airflow's security modules take seconds to import; a task process must not pay for them.
    """

    def __init__(self, module: str, attribute: str) -> None:
        self._module = module
        self._attribute = attribute
        self._app: Any = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass one ASGI connection on to the application, which the first one imports."""
        if self._app is None:
            self._app = getattr(importlib.import_module(self._module), self._attribute)
        await self._app(scope, receive, send)


def _tab(page: str, destination: str, parameters: str) -> dict[str, str]:
    """A page of ours as a tab. Airflow encodes the ids that it puts in; relative, for an Airflow below another path."""
    return {
        "name": "Recovery",
        "href": f"{API_PREFIX.lstrip('/')}/ui/{page}?{parameters}",
        "destination": destination,
        "url_route": f"recovery-{destination.replace('_', '-')}",
    }


class RecoveryPlugin(AirflowPlugin):
    """Mounts the recovery endpoint in the API server, and its pages as tabs of a DAG and of a DAG run.

    In the scheduler, its listener waits at the start (`airflow_recovery.scheduler_start`).
    """

    name = "airflow_recovery"
    fastapi_apps = [  # noqa: RUF012 - declared as an instance attribute by Airflow
        {"app": LazyApp("airflow_recovery.api_server.app", "app"), "url_prefix": API_PREFIX, "name": "Airflow Recovery"}
    ]
    external_views = [  # noqa: RUF012 - as above
        _tab("run.html", "dag_run", "dag_id={DAG_ID}&run_id={RUN_ID}"),
        _tab("dag.html", "dag", "dag_id={DAG_ID}"),
    ]
    listeners = [scheduler_start]  # noqa: RUF012 - as above
