"""The product's state backend, and for some runs one with a protection switched off: negative controls.

A run says so by its id. ``client-off``: there is no clear client, and the call is stored as Airflow's default backend
would. ``compare-off``: producers are cleared whatever they do now, and nobody else is. ``unblock-off``: what is blocked
stays blocked. ``indexes-off``: all indexes of a mapped task are cleared.
"""

from __future__ import annotations

import json
from typing import Any

from airflow.state import TaskScope
from airflow.state.metastore import MetastoreBackend

from airflow_recovery.api_server.compare_and_clear import observe
from airflow_recovery.api_server.state_backend import RecoveryStateBackend, answer
from airflow_recovery.attempt.clear_protocol import CALL_KEY


class PerRunBackend(RecoveryStateBackend):
    """The Execution API calls `set`."""

    def set(self, scope: Any, key: str, value: str, *, session: Any = None, **arguments: Any) -> None:
        if session is not None and key == CALL_KEY and isinstance(scope, TaskScope) and "-off" in scope.run_id:
            value = weakened_answer(session, scope, value)
            MetastoreBackend.set(self, scope, key, value, session=session, **arguments)
        else:
            super().set(scope, key, value, session=session, **arguments)


def weakened_answer(session: Any, scope: TaskScope, value: str) -> str:
    if "compare-off" in scope.run_id:
        return answer(session, scope, without_comparison(session, scope, value))
    if "indexes-off" in scope.run_id:
        return answer(session, scope, without_indexes(session, scope, value))
    if "unblock-off" in scope.run_id:
        return answer(session, scope, without_unblock(value))
    assert "client-off" in scope.run_id, scope.run_id
    return value


def without_comparison(session: Any, scope: TaskScope, value: str) -> str:
    call = json.loads(value)
    if call.get("request"):
        now = observe(session, scope.dag_id, scope.run_id).tries
        wanted = call["request"]["producers"]
        # A consumer is cleared in whatever state it is: so the producers are named as consumers.
        call["request"] |= {"producers": {}, "consumers": {key: now[key].ti_id for key in wanted}}
    return json.dumps(call)


def without_indexes(session: Any, scope: TaskScope, value: str) -> str:
    call = json.loads(value)
    if call.get("request"):
        now = observe(session, scope.dag_id, scope.run_id).tries.values()
        for asked in ("producers", "consumers"):
            tasks = {key.partition("|")[0] for key in call["request"][asked]}
            # Running ones too, which are cleared as consumers only.
            call["request"]["consumers"] |= {
                task_try.key: task_try.ti_id for task_try in now if task_try.task_id in tasks
            }
    return json.dumps(call)


def without_unblock(value: str) -> str:
    call = json.loads(value)
    if call.get("request"):
        call["request"]["unblock"] = False
    return json.dumps(call)
