"""A task's write to its own state store becomes a call, answered inside Airflow's API server.

    [state_store]
    backend = airflow_recovery.api_server.state_backend.RecoveryStateBackend

A worker needs no credentials for it: Airflow itself authenticates the task instance, limits it to its own run, and
refuses a zombie (404). Everything but the one reserved key behaves as in Airflow's default backend.

It asks the database and nothing else: no store can keep it, and with it the Execution API, waiting.

What it does not do: it is one backend per deployment. A site that has its own backend mixes `RecoveryCallsMixin` in, or
uses the endpoint (`app`). `[workers] state_store_backend` (payloads offloaded by the worker) hides the call from it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_recovery.airflow_compat import MetastoreBackend, StoreScope, TaskScope
from airflow_recovery.attempt.clear_protocol import CALL_KEY, Answer, Call, Caller, Operation
from airflow_recovery.errors import RecoveryError
from airflow_recovery.model.codec import to_json
from airflow_recovery.model.keys import TaskKey

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session


def answer(session: Session, scope: TaskScope, value: str) -> str:
    """Carry out the call in ``value`` for the task instance ``scope``; both are JSON.

    A call that is wrong in itself is answered with its error. A database error is raised: Airflow's client repeats the
    request, and everything of this attempt is rolled back with the session.
    """
    from airflow_recovery.api_server.compare_and_clear import clear, observe
    from airflow_recovery.api_server.dags import has_dag
    from airflow_recovery.api_server.description import describe
    from airflow_recovery.api_server.notes import leave_note
    from airflow_recovery.api_server.pools import pool_slots

    call_id = ""
    try:
        body = json.loads(value)
        call_id = str(body.get("call_id", "")) if isinstance(body, dict) else ""
        call = Call.read(body)
        if call.operation is Operation.POOL:
            reply = Answer(call_id, slots=pool_slots(session, scope, call.text or ""))
        elif call.operation is Operation.DAG:
            reply = Answer(call_id, has_dag=has_dag(session, call.text or ""))
        elif call.operation is Operation.NOTE:
            leave_note(session, scope, call.text or "")
            reply = Answer(call_id)
        elif call.operation is Operation.DESCRIBE:
            reply = Answer(call_id, description=describe(session))
        elif call.operation is Operation.OBSERVE or call.request is None:
            reply = Answer(call_id, observation=observe(session, scope.dag_id, scope.run_id))
        else:
            own = TaskKey(scope.task_id, scope.map_index)
            done = clear(session, scope.dag_id, scope.run_id, call.request, caller=Caller(str(own)))
            reply = Answer(call_id, result=done)
    except (ValueError, RecursionError, RecoveryError) as error:
        reply = Answer(call_id, error=str(error))
    return json.dumps(to_json(reply))


class RecoveryCallsMixin:
    """Answers calls; put it before any `airflow.state.BaseStoreBackend` that is handed the API server's session."""

    answers_calls = True
    """What `airflow_recovery.api_server.description` asks a back end for."""

    def set(
        self,
        scope: StoreScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: Session | None = None,
    ) -> None:
        """Store ``value``, or the answer where it is a call. Without a session there is no API server: no call."""
        arguments: dict[str, Any] = {"expires_at": expires_at}
        if session is not None:
            arguments["session"] = session
            if key == CALL_KEY and isinstance(scope, TaskScope):
                value = answer(session, scope, value)
        super().set(scope, key, value, **arguments)  # type: ignore[misc]

    async def aset(
        self,
        scope: StoreScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: AsyncSession | None = None,
    ) -> None:
        """As `set`, for the asynchronous session that Airflow's Execution API has."""
        if session is not None and key == CALL_KEY and isinstance(scope, TaskScope):
            call, task = value, scope
            value = await session.run_sync(lambda sync: answer(sync, task, call))
        await super().aset(scope, key, value, expires_at=expires_at, session=session)  # type: ignore[misc]


class RecoveryStateBackend(RecoveryCallsMixin, MetastoreBackend):
    """Airflow's default backend (values in the metadata database), with calls."""
