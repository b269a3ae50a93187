"""What goes from a process of Airflow to where others read it goes through here first."""

from __future__ import annotations

import json
from typing import Any

from airflow_recovery.journal.scrub import scrubbed, scrubbed_json

_DEEP = 1000
"""Airflow's masker looks at no more than five levels if it is not told how deep it shall look."""


def mask_secrets(text: str) -> str:
    """``text`` without the secrets that Airflow knows in this process, and without what looks like one.

    Airflow knows those of its settings, and of the connections and variables that this process has asked for.
    """
    from airflow_recovery.airflow_compat import redact

    return scrubbed(str(redact(text)))


def holds_secret(value: Any) -> bool:
    """Whether `mask_secrets` would replace anything in a JSON value, or Airflow's masker hides one by its key."""
    from airflow_recovery.airflow_compat import redact

    redacted = scrubbed_json(redact(value, max_depth=_DEEP))
    return json.dumps(redacted, sort_keys=True) != json.dumps(value, sort_keys=True)


def mask_secret(secret: str) -> None:
    """From now on Airflow knows ``secret`` in this process: its logs, and `mask_secrets`, leave it out."""
    from airflow_recovery.airflow_compat import mask_secret

    mask_secret(secret)
