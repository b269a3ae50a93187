"""The clear clients against a server that answers in this process; `tests/testing_airflow` has the real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from expected_errors import fails_with

from airflow_recovery import errors
from airflow_recovery.attempt.clear_protocol import ALIVE_KEY, CALL_KEY, CLEARS_KEY, Answer, Call, Operation
from airflow_recovery.attempt.task_instances import CLEAR_AT_ONCE, ClearRequest, ClearResult, Observation, TaskTry
from airflow_recovery.hooks.clear_clients import OwnTaskInstance, StateStoreClient, open_clear_client
from airflow_recovery.model.codec import to_json

OBSERVED = Observation({"a": TaskTry("a", -1, 1, "id-a", "success")})


class Store:
    """A task state store: ``installed`` is our backend, ``refuse`` is an HTTP status that every request gets."""

    def __init__(self, *, installed: bool = True, refuse: int | None = None) -> None:
        self.values: dict[str, Any] = {}
        self.calls = 0
        self.installed = installed
        self.refuse = refuse
        self.error: str | None = None
        self.note: str | None = None

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
        from airflow.sdk.execution_time.comms import ErrorResponse

        if self.refuse is not None:
            detail = {"status_code": self.refuse, "message": "no"}
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))
        self.calls += key == CALL_KEY
        if key == CALL_KEY and self.installed:
            call = Call.read(value)
            if self.error is not None:
                value = to_json(Answer(call.call_id, error=self.error))
            elif call.text is not None:
                self.note = call.text
                value = to_json(Answer(call.call_id))
            elif call.operation is Operation.OBSERVE:
                value = to_json(Answer(call.call_id, observation=OBSERVED))
            else:
                assert call.request is not None
                value = to_json(Answer(call.call_id, result=ClearResult(tuple(call.request.producers))))
        self.values[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)


TASKS = {("a", -1): "success", ("a_3", -1): None, ("a", 3): "running", ("a", 4): "failed"}


def get_task_states(*, dag_id: str, map_index: int, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
    """As Airflow answers: a mapped task is named with its index."""
    assert (dag_id, run_ids) == ("d", ["r"])
    chosen = {(task, at): state for (task, at), state in TASKS.items() if task in task_ids and at == map_index}
    return {"r": {task if at < 0 else f"{task}_{at}": state for (task, at), state in chosen.items()}}


def context(store: Store) -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="g.me", map_index=-1, id="id-me")

    ti.get_task_states = get_task_states
    return {"ti": ti, "task_state_store": store}


def test_the_state_store_client_observes_and_clears() -> None:
    store = Store()
    clear_client = open_clear_client(context(store))

    assert clear_client.observe() == OBSERVED
    assert clear_client.clear(ClearRequest(producers={"a": "id-a"})).cleared == ("a",)
    assert store.calls == 2  # each question is asked once: which clear client there is comes with the first answer


def test_a_clear_may_be_the_first_question() -> None:
    store = Store()

    assert open_clear_client(context(store)).clear(ClearRequest(producers={"a": "id-a"})).cleared == ("a",)
    assert store.calls == 1


def test_a_clear_of_very_many_tasks_is_several_calls() -> None:
    store = Store()
    many = {f"a|{at}": f"id-{at}" for at in range(2 * CLEAR_AT_ONCE + 1)}

    open_clear_client(context(store)).clear(ClearRequest(consumers=many))

    assert store.calls == 3


def test_opening_a_clear_client_and_the_live_check_ask_nothing_of_the_backend() -> None:
    store = Store(installed=False)

    open_clear_client(context(store)).live_check()

    assert set(store.values) == {ALIVE_KEY}


def test_neither_clear_client_observes_nothing_and_names_both_settings() -> None:
    store = Store(installed=False)
    clear_client = open_clear_client(context(store))

    assert clear_client.observe() is None
    assert clear_client.observe() is None
    with fails_with("clear-has-no-way"):
        clear_client.clear(ClearRequest(producers={"a": "id-a"}))
    assert store.calls == 1  # that there is no backend was learned by the first question


@pytest.mark.parametrize("installed", [True, False])
def test_the_states_of_the_run_need_no_clear_client(installed: bool) -> None:
    store = Store(installed=installed)

    found = open_clear_client(context(store)).states(["a", "a_3", "a|3", "a|4", "gone"])

    assert found == {"a": "success", "a_3": None, "a|3": "running", "a|4": "failed"}
    assert store.calls == 0


@pytest.mark.parametrize("status", [404, 410])
def test_a_zombie_is_told_so(status: int) -> None:
    clear_client = open_clear_client(context(Store(refuse=status)))

    for act in (clear_client.live_check, clear_client.observe, lambda: clear_client.clear(ClearRequest())):
        with fails_with("not-mine-any-more"):
            act()


def test_a_server_that_fails_is_no_verdict_about_the_task() -> None:
    clear_client = open_clear_client(context(Store(refuse=500)))

    with fails_with("state-store-refuses", status=500) as raised:
        clear_client.live_check()
    assert not isinstance(raised.value, errors.NotMine)


def test_a_task_whose_key_is_gone_is_a_zombie() -> None:
    class Emptied(Store):
        def get(self, key: str, default: Any = None) -> Any:
            return default

    with fails_with("written-not-readable"):
        StateStoreClient(OwnTaskInstance(context(Emptied()))).observe()


def test_the_servers_refusal_is_told() -> None:
    store = Store()
    store.error = "no such run"

    with fails_with("api-server-refuses"):
        open_clear_client(context(store)).observe()


def test_a_mapped_task_has_its_index_in_its_key() -> None:
    mapped = context(Store())
    mapped["ti"].map_index = 3

    assert OwnTaskInstance(mapped).key == "g.me|3"


@pytest.mark.parametrize("key", [ALIVE_KEY, CALL_KEY, CLEARS_KEY])
def test_a_key_of_the_state_store_is_one_segment_of_a_path(key: str) -> None:
    # Airflow 3.3.0 answers 404 to any other, which a task takes for a sign that it was cleared.
    assert quote(key, safe="") == key


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("kept: it stands", "recovery: kept: it stands"),
        ("recovery: signed already", "recovery: signed already"),
        ("two\n  lines", "recovery: two lines"),
        ("long" * 500, f"recovery: {'long' * 500}"[:999] + "…"),
    ],
)
def test_a_note_is_one_line_that_airflow_takes_and_says_whose_it_is(text: str, note: str) -> None:
    store = Store()
    open_clear_client(context(store)).note(text)
    assert store.note == note
    assert len(note) <= 1000


def test_without_a_clear_client_nothing_is_left() -> None:
    store = Store(installed=False)
    open_clear_client(context(store)).note("kept")
    assert store.note is None


@pytest.mark.parametrize("note", [None, "", " ", 7])
def test_a_note_that_is_none_is_refused(note: object) -> None:
    with pytest.raises(ValueError, match=r"expected a (note|text)"):
        Call.read({"call_id": "1", "operation": "note", "request": None, "text": note})
