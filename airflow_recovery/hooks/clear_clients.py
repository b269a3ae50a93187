"""The ways into Airflow, as a region task uses them. Each is an
`airflow_recovery.attempt.task_instances.TaskInstances`.

`open_clear_client` gives the one to use. Every client lets the live check go through the task's own state store, since
only Airflow's Execution API knows which process a task instance belongs to.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from airflow_recovery import errors
from airflow_recovery.attempt.clear_protocol import ALIVE_KEY, CALL_KEY, Answer, Call, Caller, Operation, noted
from airflow_recovery.attempt.task_instances import (
    HOW_TO_CONFIGURE_CLEARS,
    ClearRequest,
    ClearResult,
    Observation,
    TaskInstances,
    clear_in_slices,
)
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.model.keys import TaskKey

if TYPE_CHECKING:
    from airflow_recovery.hooks.recovery_api import RecoveryApiHook

T = TypeVar("T")

RETENTION = timedelta(days=1)
"""Answers are read at once; Airflow may drop them afterwards."""

BACKEND_PATH = "airflow_recovery.api_server.state_backend.RecoveryStateBackend"


class BackendNotInstalled(errors.RecoveryError):
    """The API server stored our call instead of answering it: `[state_store] backend` is another one."""


class OwnTaskInstance:
    """The task instance that runs in this process, by Airflow's task context."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        instance = self._instance = context["ti"]
        self._store = context["task_state_store"]
        self.dag_id = str(instance.dag_id)
        self.run_id = str(instance.run_id)
        self.ti_id = str(instance.id)
        self.key = str(TaskKey(str(instance.task_id), -1 if instance.map_index is None else instance.map_index))

    def write(self, key: str, value: Any) -> None:
        """Write to its own state store. Raises `NotMine` where Airflow says that it is gone (404, 410)."""
        from airflow.sdk.exceptions import AirflowRuntimeError

        try:
            self._store.set(key, value, retention=RETENTION)
        except AirflowRuntimeError as error:
            self._raise(error)

    def read(self, key: str) -> Any:
        """Read from its own state store. Raises `NotMine` where there is nothing: a zombie can't read either."""
        from airflow.sdk.exceptions import AirflowRuntimeError

        try:
            value = self._store.get(key)
        except AirflowRuntimeError as error:
            self._raise(error)
        if value is None:
            raise errors.NotMine(
                self._not_mine("what it has just written is not readable"), code="written-not-readable"
            )
        return value

    def live_check(self) -> None:
        """Raises `NotMine` where Airflow has taken this task instance away from this process."""
        self.write(ALIVE_KEY, self.ti_id)

    def states(self, keys: Collection[str]) -> dict[str, str | None]:
        """The states of tasks of its run, by key; `None` before one is scheduled. A task that is not there has none."""
        tasks: dict[int, dict[str, str]] = {}
        for key in keys:
            task = TaskKey.parse(key)
            # The answer calls a mapped task "<task id>_<index>": asked for one index alone, that is not ambiguous.
            tasks.setdefault(task.map_index, {})[key] = task.task_id
        states: dict[str, str | None] = {}
        for index, named in tasks.items():
            answer = self._instance.get_task_states(
                dag_id=self.dag_id, map_index=index, task_ids=list(named.values()), run_ids=[self.run_id]
            )
            states_of_run = answer.get(self.run_id, {})
            answered = {key: name if index < 0 else f"{name}_{index}" for key, name in named.items()}
            states |= {key: states_of_run[name] for key, name in answered.items() if name in states_of_run}
        return states

    def _raise(self, error: Any) -> NoReturn:
        detail = error.error.detail or {}
        status = detail.get("status_code")
        if status in (404, 410):
            raise errors.NotMine(self._not_mine(f"HTTP {status}"), code="not-mine-any-more") from error
        raise errors.RecoveryError(
            f"Expected Airflow's API server to accept a state store request of {self.key} in {self.dag_id} / "
            f"{self.run_id}, found HTTP {status}: {detail.get('message')}. The task may be retried.",
            code="state-store-refuses",
            status=status,
        ) from error

    def _not_mine(self, text: str) -> str:
        return (
            f"Expected task instance {self.ti_id} ({self.key} in {self.dag_id} / {self.run_id}) to be this process's, "
            f"found: {text}. It was cleared, retried or deleted meanwhile; this process stops and writes nothing."
        )


class ClearClient(TaskInstances, Protocol):
    """A `TaskInstances` that can also leave a note for people, and knows pools."""

    def pool_slots(self, name: str) -> int | None:
        """How many slots a pool has: -1 without limit, `None` where it is not there or nobody can be asked."""

    def has_dag(self, dag_id: str) -> bool | None:
        """Whether Airflow has the DAG in a file. `None`: it can't be asked."""

    def note(self, text: str) -> None:
        """Give this task instance a note, in one line. A person's own note stays."""


class _ClearClient:
    """What every task can do with its own token, whichever clear client there is."""

    def __init__(self, own: OwnTaskInstance) -> None:
        self._own = own

    def live_check(self) -> None:
        """Raises `NotMine` where Airflow has taken this task instance away from this process."""
        self._own.live_check()

    def states(self, keys: Collection[str]) -> Mapping[str, str | None]:
        """The present states of tasks of the run. One request for each map index, by the task's own token."""
        return self._own.states(keys)


class StateStoreClient(_ClearClient):
    """Calls through the task's own state store. About 50 ms a call; needs no credentials."""

    def observe(self) -> Observation:
        """All tries of the run. Raises `BackendNotInstalled`, `NotMine`."""
        observation = self._call(Operation.OBSERVE, None).observation
        if observation is None:
            raise errors.RecoveryError("Expected an observation in the API server's answer, found none.")
        return observation

    def clear(self, request: ClearRequest) -> ClearResult:
        """Clear what is still as observed, by one call for each slice. Raises `BackendNotInstalled`, `NotMine`."""
        return clear_in_slices(self._clear, request)

    def _clear(self, request: ClearRequest) -> ClearResult:
        result = self._call(Operation.CLEAR, request).result
        if result is None:
            raise errors.RecoveryError("Expected a clear result in the API server's answer, found none.")
        return result

    def pool_slots(self, name: str) -> int | None:
        """The slots of a pool. Raises `BackendNotInstalled`, `NotMine`."""
        return self._call(Operation.POOL, None, name).slots

    def has_dag(self, dag_id: str) -> bool | None:
        """Whether Airflow has the DAG in a file. Raises `BackendNotInstalled`, `NotMine`."""
        return self._call(Operation.DAG, None, dag_id).has_dag

    def note(self, text: str) -> None:
        """Give this task instance a note. Raises `BackendNotInstalled`, `NotMine`."""
        self._call(Operation.NOTE, None, noted(text))

    def describe(self) -> dict[str, Any]:
        """What is installed and configured in the API server. Raises `BackendNotInstalled`, `NotMine`."""
        description = self._call(Operation.DESCRIBE, None).description
        if description is None:
            raise errors.RecoveryError("Expected a description in the API server's answer, found none.")
        return description

    def _call(self, operation: Operation, request: ClearRequest | None, text: str | None = None) -> Answer:
        call = Call(uuid.uuid4().hex, operation, request, text)
        asked = to_json(call)
        self._own.write(CALL_KEY, asked)
        stored = self._own.read(CALL_KEY)
        if stored == asked:
            raise BackendNotInstalled(
                f"Expected [state_store] backend = {BACKEND_PATH} in the API server, found another backend: it stored "
                "the call and did not answer it."
            )
        answer = from_json(Answer, stored)
        if answer.call_id != call.call_id:
            raise errors.NotMine(
                f"Expected the answer to call {call.call_id}, found the answer to {answer.call_id}: another process "
                "speaks as this task instance."
            )
        if answer.error is not None:
            raise errors.RecoveryError(
                f"Airflow's API server refused to {operation.value}: {answer.error}", code="api-server-refuses"
            )
        return answer


class RestClient(_ClearClient):
    """Our endpoint, as the user of an Airflow connection."""

    def __init__(self, own: OwnTaskInstance, hook: RecoveryApiHook) -> None:
        super().__init__(own)
        self._hook = hook

    def observe(self) -> Observation:
        """All tries of the run. A zombie is not refused here, but its `clear` is."""
        return self._hook.observe(self._own.dag_id, self._own.run_id)

    def clear(self, request: ClearRequest) -> ClearResult:
        """Clear what is still as observed, as the connection's user. Raises `NotMine` for a zombie."""
        caller = Caller(self._own.key, self._own.ti_id)
        return self._hook.clear(self._own.dag_id, self._own.run_id, request, caller)

    def pool_slots(self, name: str) -> int | None:
        """The slots of a pool, by Airflow's own API; the connection's user must be allowed to see pools."""
        return self._hook.pool_slots(name)

    def has_dag(self, dag_id: str) -> bool | None:
        """Whether Airflow has the DAG in a file; the connection's user must be allowed to see it."""
        return self._hook.has_dag(dag_id)

    def note(self, text: str) -> None:
        """Give this task instance a note, by Airflow's own REST API."""
        self._hook.note(self._own.dag_id, self._own.run_id, self._own.key, noted(text))


class ClearNotConfigured(_ClearClient):
    """No way to clear tasks is configured: a region's own retry works, clearing another region does not."""

    def observe(self) -> None:
        """Returns `None`, which says that no way to clear is configured."""

    def clear(self, request: ClearRequest) -> ClearResult:
        """Raises `errors.ClearNotConfigured`, which names the tasks and both settings."""
        raise errors.ClearNotConfigured(
            f"{', '.join([*request.producers, *request.consumers])} of {self._own.dag_id} / {self._own.run_id} would "
            f"have to be cleared, and this deployment gives no way to do it: clear by hand. {HOW_TO_CONFIGURE_CLEARS}",
            code="clear-has-no-way",
        )

    def pool_slots(self, name: str) -> int | None:
        """Returns `None`: without a way into Airflow, nobody can be asked."""
        del name
        return None

    def has_dag(self, dag_id: str) -> bool | None:
        """Returns `None`: Airflow can't be asked."""
        del dag_id
        return None

    def note(self, text: str) -> None:
        """There is no way to leave one; the log says the same."""


class FirstClearClient(_ClearClient):
    """The client of the state store where it is installed, else the endpoint where it is configured, else none.

    Asks the API server only when something is asked of it: to open it costs nothing.
    """

    def __init__(self, own: OwnTaskInstance, api_conn_id: str | None) -> None:
        super().__init__(own)
        self._api_conn_id = api_conn_id
        self._chosen: ClearClient | None = None

    def observe(self) -> Observation | None:
        """All tries of the run; `None` where no way to clear tasks is configured. Raises `NotMine`."""
        return self._ask(lambda clear_client: clear_client.observe())

    def clear(self, request: ClearRequest) -> ClearResult:
        """Clear what is still as observed, through the chosen client. Raises `NotMine`, `errors.ClearNotConfigured`."""
        return self._ask(lambda clear_client: clear_client.clear(request))

    def pool_slots(self, name: str) -> int | None:
        """How many slots a pool has: -1 without limit, `None` where it is not there or nobody can be asked.

        Never raises: it is asked for advice's sake.
        """
        try:
            return self._ask(lambda clear_client: clear_client.pool_slots(name))
        except errors.RecoveryError:
            return None

    def has_dag(self, dag_id: str) -> bool | None:
        """Whether Airflow has the DAG in a file. `None`: it can't be asked, or its API server is of a version before.

        Raises `NotMine`.
        """
        try:
            return self._ask(lambda clear_client: clear_client.has_dag(dag_id))
        except errors.NotMine:
            raise
        except errors.RecoveryError:
            return None

    def note(self, text: str) -> None:
        """Give this task instance a note; nothing where no way to clear tasks is configured. Raises `NotMine`."""
        self._ask(lambda clear_client: clear_client.note(text))

    def _ask(self, question: Callable[[ClearClient], T]) -> T:
        """The first question is asked of the state store: the answer tells whether our backend is installed there."""
        if self._chosen is None:
            first = StateStoreClient(self._own)
            try:
                answer = question(first)
            except BackendNotInstalled:
                self._chosen = self._second()
            else:
                self._chosen = first
                return answer
        return question(self._chosen)

    def _second(self) -> ClearClient:
        if not self._api_conn_id:
            return ClearNotConfigured(self._own)
        from airflow_recovery.hooks.recovery_api import RecoveryApiHook

        return RestClient(self._own, RecoveryApiHook(self._api_conn_id))


def open_clear_client(context: Mapping[str, Any], api_conn_id: str | None = None) -> ClearClient:
    """The way into Airflow for the task of ``context``; ``api_conn_id`` is `[recovery] api_conn_id`. No request yet."""
    return FirstClearClient(OwnTaskInstance(context), api_conn_id)
