"""What the region protocol asks of Airflow, as an interface and its values. Nothing here imports Airflow.

The two ways into Airflow (its own state store, our endpoint) are `airflow_recovery.hooks.clear_clients`; the server
side that both share is `airflow_recovery.api_server.compare_and_clear`. These values are what they send each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_recovery.model.codec import OrMinusOne, from_json, needed, to_json
from airflow_recovery.model.keys import TaskKey

FINISHED_STATES = frozenset({"success", "failed", "upstream_failed"})
"""States out of which a clear makes a task run again.

Not ``removed``: the run's version of the DAG has no such task, so Airflow would only remove it again. Where the task
comes back, Airflow restores it by itself.
"""
RUNNING_STATES = frozenset({"running"})
REMOVED_STATE = "removed"
ENDED_STATES = FINISHED_STATES | {"skipped", REMOVED_STATE}
"""States after which Airflow starts no other try by itself."""

MARKED_FAILED = "marked failed"
"""In `ClearResult.unmoved`: the task is ``failed`` because a person has marked it. No clear by recovery undoes that."""

HOW_TO_CONFIGURE_CLEARS = (
    "To have it done without you, set `[state_store] backend = "
    "airflow_recovery.api_server.state_backend.RecoveryStateBackend` on the API server, or `[recovery] api_conn_id` to "
    "a connection of type airflow_recovery."
)
"""The end of every message of `ClearNotConfigured`."""


@dataclass(frozen=True)
class TaskTry:
    """One task instance as Airflow has it. ``ti_id`` changes with every try and clear: it is the try's identity."""

    task_id: str
    map_index: OrMinusOne
    try_number: int
    ti_id: str
    state: str | None

    @property
    def key(self) -> str:
        """``task_id``, or ``task_id|map_index`` of a mapped task (`TaskKey`)."""
        return str(TaskKey(self.task_id, self.map_index))


@dataclass(frozen=True)
class Observation:
    """All task instances of one run at one moment, by `TaskTry.key`."""

    tries: Mapping[str, TaskTry] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return {"tries": [to_json(task_try) for task_try in self.tries.values()]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Observation:
        """Inverse of `to_json`. Raises `KeyError`, `TypeError` or `ValueError` on anything else."""
        tries = [from_json(TaskTry, task_try) for task_try in value["tries"]]
        return cls({task_try.key: task_try for task_try in tries})


@dataclass(frozen=True)
class ClearRequest:
    """Compare-and-clear (docs/protocol.md#clear and #final-check). Values are the observed TI ids, by `TaskTry.key`.

    One transaction, unless it names so many tasks that Airflow would not answer in time (`clear_in_slices`).

    A producer is cleared if it is finished and still the observed try. A consumer is cleared, running or finished, if
    it is still the observed try and (there are no producers, or one of them moved). The caller is never cleared, and
    neither is a task that a person has marked as failed.
    ``unblock`` also clears what is ``upstream_failed`` downstream of the caller and of what was cleared.
    """

    producers: Mapping[str, str] = needed(factory=dict)
    consumers: Mapping[str, str] = needed(factory=dict)
    unblock: bool = needed(False)


@dataclass(frozen=True)
class ClearResult:
    """What was cleared, and what was not because it had moved on (key -> try and state found)."""

    cleared: tuple[str, ...] = needed(())
    unmoved: Mapping[str, tuple[int, str | None]] = needed(factory=dict)


CLEAR_AT_ONCE = 500
"""Airflow takes some milliseconds a task, under the run's lock; its client waits for a few seconds."""


def clear_in_slices(
    clear: Callable[[ClearRequest], ClearResult], request: ClearRequest, at_once: int = CLEAR_AT_ONCE
) -> ClearResult:
    """What ``clear`` answers, asked for at most ``at_once`` tasks at a time.

    Producers come first; where none of them moved, no consumer is asked for, as within one transaction. Who dies
    between two slices leaves consumers that whoever makes a final check looks at again.
    """
    if len(request.producers) + len(request.consumers) <= at_once:
        return clear(request)
    result = ClearResult()
    for name in ("producers", "consumers"):
        if name == "consumers" and request.producers and not result.cleared:
            break
        named = list(getattr(request, name).items())
        for start in range(0, len(named), at_once):
            part = ClearRequest(**{name: dict(named[start : start + at_once])}, unblock=request.unblock)
            answer = clear(part)
            result = ClearResult((*result.cleared, *answer.cleared), {**result.unmoved, **answer.unmoved})
    return result


class TaskInstances(Protocol):
    """Airflow, as one region task may speak to it: about its own run, as its own task instance."""

    def observe(self) -> Observation | None:
        """All tries of the run; `None` where no way to clear tasks is configured. Raises `NotMine` for a zombie."""
        ...

    def clear(self, request: ClearRequest) -> ClearResult:
        """Compare and clear. Raises `NotMine` for a zombie, `ClearNotConfigured` if no way is configured."""
        ...

    def states(self, keys: Collection[str]) -> Mapping[str, str | None]:
        """The present states of tasks of the run, by `TaskTry.key`; a task that Airflow does not have is left out.

        Needs no clear client: any task may ask this.
        """
        ...

    def live_check(self) -> None:
        """Raises `NotMine` where Airflow has taken this task instance away from this process."""
        ...


class NullTaskInstances:
    """Nothing is cleared: the job does not recover. ``states`` asks Airflow for the states of tasks."""

    def __init__(self, states: Callable[[Collection[str]], Mapping[str, str | None]] = dict.fromkeys) -> None:
        self._states = states

    def observe(self) -> None:
        """Returns `None`, as where no way to clear is configured."""

    def clear(self, request: ClearRequest) -> ClearResult:
        """Clears nothing, and says so."""
        del request
        return ClearResult()

    def states(self, keys: Collection[str]) -> Mapping[str, str | None]:
        """As Airflow says; `None` for every task where nobody is asked."""
        return self._states(keys)

    def live_check(self) -> None:
        """Raises nothing: another process that runs this task writes to a place of its own."""
