"""What is installed and configured in the API server, for who asks from elsewhere. API server only.

A worker's own settings don't say what the API server has, and the state store back end is the API server's.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from airflow_recovery.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def describe(session: Session) -> dict[str, Any]:
    """Plain JSON. No secret, and of the stores no more than their URIs; asks nobody but the database.

    ``now_s`` and ``database_s``: the time here and in the database, seconds since the epoch. ``wrong``: what can't be
    used of the settings, if anything.
    """
    return {
        "version": _version("airflow-recovery"),
        "airflow": _version("apache-airflow"),
        "python": sys.version.split()[0],
        **_backend(),
        **_settings(),
        "now_s": time.time(),
        "database_s": _database_s(session),
        "database": session.get_bind().dialect.name,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _backend() -> dict[str, Any]:
    """The state store back end, and whether it answers the calls of tasks."""
    from airflow_recovery.airflow_compat import get_state_backend

    try:
        backend = type(get_state_backend())
    except Exception as error:  # a class of somebody else's
        return {"state_store_backend": f"{type(error).__name__}: {error}", "answers_calls": False}
    return {
        "state_store_backend": f"{backend.__module__}.{backend.__qualname__}",
        "answers_calls": getattr(backend, "answers_calls", False),
    }


def _settings() -> dict[str, Any]:
    from airflow_recovery.hooks.settings import RecoverySettings

    try:
        settings = RecoverySettings.load()
    except ConfigurationError as error:
        return {"wrong": str(error)}
    return {"journal": settings.journal, "results": settings.results, "deployment": settings.deployment}


def _database_s(session: Session) -> float | None:
    moment = session.scalar(select(func.now()))
    if not isinstance(moment, datetime):
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).timestamp()
