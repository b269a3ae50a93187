"""What ended a region's query: our own errors come as text inside Spark's, from processes that have died of them."""

from __future__ import annotations

import re

from airflow_recovery import errors
from airflow_recovery.errors import AttemptLost, ChannelEvicted, RecoveryError

_OURS = re.compile(r"airflow_recovery\.errors\.(\w+): ([^\n]*)")


def cause_of(error: BaseException, raised_here: BaseException | None = None) -> BaseException:
    """``error``, or what it says that one of our classes was raised with; `AttemptLost` for an evicted attempt.

    ``raised_here``: by our own function in this process, where it is known as it is.
    """
    here = raised_here if isinstance(raised_here, RecoveryError) else None
    cause = here or _named(error) or (_named(raised_here) if raised_here is not None else None) or raised_here or error
    if isinstance(cause, ChannelEvicted):
        return AttemptLost(f"This attempt was evicted from its channel: {cause}. It has committed nothing since.")
    return cause


def _named(error: BaseException) -> RecoveryError | None:
    # The last one: a chain of Python errors ends with the one that was raised in the end.
    for name, message in reversed(_OURS.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, RecoveryError):
            return kind(message)
    return None
