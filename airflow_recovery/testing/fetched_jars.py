"""Jars that the set-up fetches into the virtual environment."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_recovery.errors import ConfigurationError


def fetched_jars(name: str, what: str, artifact: str, option: str) -> Path:
    """The folder ``<name>-jars`` in this virtual environment: ``what`` is fetched by ``scripts/setup.sh <option>``.

    Raises `ConfigurationError` where there is no jar of ``artifact`` in it.
    """
    folder = Path(sys.prefix) / f"{name}-jars"
    if not any(folder.glob(f"{artifact}-*.jar")):
        raise ConfigurationError(
            f"Expected {what} in {folder}, found no {artifact} there. Run scripts/setup.sh {option}."
        )
    return folder
