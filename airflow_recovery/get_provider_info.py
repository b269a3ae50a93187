"""Airflow's entry point into this provider. Runs in many processes, so it reads one file and imports nothing else."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def get_provider_info() -> dict[str, Any]:
    """``provider.yaml`` as a dictionary: what Airflow shows of this provider, its settings and connection type."""
    import yaml

    # The C loader where there is one: ten times as fast, and every Airflow process waits for this.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files(__package__).joinpath("provider.yaml").read_text(encoding="utf-8")
    info: dict[str, Any] = yaml.load(text, Loader=loader)
    return info
