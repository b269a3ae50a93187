"""What people, and tasks in their name, have Airflow do goes into its audit log. API server, or its database."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Any

from airflow_recovery.airflow_compat import Log
from airflow_recovery.journal.scrub import scrubbed

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_EXTRA_CHARS = 4000


def audit(session: Session, who: str, event: str, dag_id: str, run_id: str, extra: dict[str, Any]) -> None:
    """Put an action into Airflow's audit log, for good, before it is done: as Airflow does with its own."""
    text = json.dumps(extra)
    session.add(
        Log(
            event=event,
            task_instance=None,
            owner=who,
            owner_display_name=who,
            extra=text if len(text) <= MAX_EXTRA_CHARS else json.dumps({"cut": text[:MAX_EXTRA_CHARS]}),
            dag_id=dag_id,
            run_id=run_id,
        )
    )
    session.commit()


def audit_command(session: Session, who: str, event: str, dag_id: str, run_id: str, extra: dict[str, Any]) -> None:
    """The same of a command that writes into the database itself, with what Airflow says of its own: `action_cli`."""
    command = {"host_name": socket.gethostname(), "full_command": scrubbed(str(sys.argv))}
    audit(session, who, f"cli_{event}", dag_id, run_id, command | extra)
