"""What goes from a process of Airflow to where others read it goes through here first."""

from __future__ import annotations

from airflow_recovery.journal.scrub import scrubbed


def mask_secrets(text: str) -> str:
    """``text`` without the secrets that Airflow knows in this process, and without what looks like one.

    Airflow knows those of its settings, and of the connections and variables that this process has asked for.
    """
    from airflow_recovery.airflow_compat import redact

    return scrubbed(str(redact(text)))


def mask_secret(secret: str) -> None:
    """From now on Airflow knows ``secret`` in this process: its logs, and `mask_secrets`, leave it out."""
    from airflow_recovery.airflow_compat import mask_secret

    mask_secret(secret)
