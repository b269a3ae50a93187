"""The doors against a server that answers in this process; `tests/testing_airflow` has the real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_recovery import errors
from airflow_recovery.execution.scheduler import ClearRequest, ClearResult, Observation, TaskTry
from airflow_recovery.hooks.doors import OwnTaskInstance, StateStoreDoor, open_door
from airflow_recovery.plugins.protocol import ALIVE_KEY, CALL_KEY, Answer, Call, Operation

OBSERVED = Observation({"a": TaskTry("a", -1, 1, "id-a", "success")})


class Store:
    """A task state store: ``installed`` is our backend, ``refuse`` is an HTTP status that every request gets."""

    def __init__(self, *, installed: bool = True, refuse: int | None = None) -> None:
        self.values: dict[str, Any] = {}
        self.installed = installed
        self.refuse = refuse
        self.error: str | None = None

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
        from airflow.sdk.execution_time.comms import ErrorResponse

        if self.refuse is not None:
            detail = {"status_code": self.refuse, "message": "no"}
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))
        if key == CALL_KEY and self.installed:
            call = Call.from_json(value)
            if self.error is not None:
                value = Answer(call.call_id, error=self.error).to_json()
            elif call.operation is Operation.OBSERVE:
                value = Answer(call.call_id, observation=OBSERVED).to_json()
            else:
                assert call.request is not None
                value = Answer(call.call_id, result=ClearResult(tuple(call.request.producers))).to_json()
        self.values[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)


def context(store: Store) -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="g.me", map_index=-1, id="id-me")
    return {"ti": ti, "task_state_store": store}


def test_the_state_store_door_observes_and_clears() -> None:
    door = open_door(context(Store()))

    assert door.observe() == OBSERVED
    assert door.can_clear
    assert door.clear(ClearRequest(producers={"a": "id-a"})).cleared == ("a",)


def test_opening_a_door_and_the_live_check_ask_nothing_of_the_backend() -> None:
    store = Store(installed=False)

    open_door(context(store)).live_check()

    assert set(store.values) == {ALIVE_KEY}


def test_neither_door_names_both_settings() -> None:
    door = open_door(context(Store(installed=False)))

    assert not door.can_clear
    for act in (door.observe, lambda: door.clear(ClearRequest())):
        with pytest.raises(errors.NoDoor, match=r"\[state_store\] backend.*\[recovery\] api_conn_id"):
            act()


@pytest.mark.parametrize("status", [404, 410])
def test_a_zombie_is_told_so(status: int) -> None:
    door = open_door(context(Store(refuse=status)))

    for act in (door.live_check, door.observe, lambda: door.clear(ClearRequest())):
        with pytest.raises(errors.NotMine, match=f"id-me.*HTTP {status}"):
            act()


def test_a_server_that_fails_is_no_verdict_about_the_task() -> None:
    door = open_door(context(Store(refuse=500)))

    with pytest.raises(errors.RecoveryError, match="HTTP 500") as raised:
        door.live_check()
    assert not isinstance(raised.value, errors.NotMine)


def test_a_task_whose_key_is_gone_is_a_zombie() -> None:
    class Emptied(Store):
        def get(self, key: str, default: Any = None) -> Any:
            return default

    with pytest.raises(errors.NotMine, match="not readable"):
        StateStoreDoor(OwnTaskInstance(context(Emptied()))).observe()


def test_the_servers_refusal_is_told() -> None:
    store = Store()
    store.error = "no such run"

    with pytest.raises(errors.RecoveryError, match="refused to observe: no such run"):
        open_door(context(store)).observe()


def test_a_mapped_task_has_its_index_in_its_key() -> None:
    mapped = context(Store())
    mapped["ti"].map_index = 3

    assert OwnTaskInstance(mapped).key == "g.me|3"
