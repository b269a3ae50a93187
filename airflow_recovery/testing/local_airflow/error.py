"""The one error of a local Airflow."""

from __future__ import annotations


class LocalAirflowError(RuntimeError):
    """A component died, did not become ready, or the API refused. The message ends with the component's log."""
