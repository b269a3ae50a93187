"""A shared result that another run is making, as one who waits for it has seen it. In no journal."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import RecoveryError
from airflow_recovery.model.records import RunAttempt


@dataclass(frozen=True)
class BuildInProgress:
    """Somebody's open attempt at a shared result, as one who waits for it has seen it. In no journal.

    ``beat`` is its last heartbeat.
    """

    key: str
    region: str
    attempt: int
    owner: RunAttempt | None
    beat: str | None = None

    def text(self) -> str:
        """One clause for messages and logs: what is being made, and by which run."""
        who = f"{self.owner.dag_id} / {self.owner.run_key}" if self.owner is not None else "another run"
        return f"{self.region} is shared ({self.key}@{self.attempt}) and is being made by {who}"


class BuiltElsewhere(RecoveryError):
    """Another run is making the shared result that this one needs. ``build`` says which attempt, where it is known."""

    def __init__(self, message: str, build: BuildInProgress | None = None) -> None:
        super().__init__(message)
        self.build = build
