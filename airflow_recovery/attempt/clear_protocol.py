"""What a task and the API server say to each other, as JSON: the values of `airflow_recovery.attempt.task_instances`.

Shared by both sides and both clients; imports neither Airflow nor SQLAlchemy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation
from airflow_recovery.escaping import for_note
from airflow_recovery.model.codec import OrMinusOne, from_json, later, needed

CALL_KEY = "airflow_recovery.failover"
"""A task's write to this key of its own state store is a call to `state_backend`.

No slash is in these keys: the API server of Airflow 3.3.0 does not find one that has it.
"""

ALIVE_KEY = "airflow_recovery.alive"
"""An ordinary key: that it can be written says that the task instance is still this process's (the live check)."""

CLEARS_KEY = "airflow_recovery.clears"
"""Where the API server notes, in a task's own state store, which of its clears were recovery's."""

MAX_CLEARS = 50
"""The newest that are kept."""

NOTE_SIGN = "recovery: "
"""How a note of ours begins. One that begins otherwise is a person's, and stays."""

MAX_NOTE = 1000
"""Airflow refuses a longer one."""

API_PREFIX = "/airflow-recovery/v1"
"""Where the plugin's endpoint is mounted, below the API server's root."""

MAX_KEYS = 10_000
"""A request that names more task instances is refused: it would hold the run's lock for too long."""


class Operation(str, Enum):
    """What a task asks of the API server."""

    OBSERVE = "observe"
    CLEAR = "clear"
    POOL = "pool"
    """How many slots a pool has; ``text`` names it."""
    DAG = "dag"
    """Whether Airflow has the DAG that ``text`` names in a file."""
    NOTE = "note"
    """Put ``text`` as the note of the task instance that asks."""
    DESCRIBE = "describe"
    """What is installed and configured there (`description`)."""


@dataclass(frozen=True)
class Call:
    """One question of one process. ``call_id`` is random: an answer that carries another one is not for us."""

    call_id: str
    operation: Operation
    request: ClearRequest | None = needed(None)
    text: str | None = later(None)

    @classmethod
    def read(cls, value: Any) -> Call:
        """From JSON and from outside. Raises `ValueError` for what is no call, or asks for too much."""
        call = from_json(cls, value)
        if call.request is not None:
            check_size(call.request)
        return replace(call, text=noted(call.text)) if call.operation is Operation.NOTE else call


@dataclass(frozen=True)
class Answer:
    """The server's answer to the call with the same ``call_id``: at most one of the others; none, to a note.

    ``slots``: of the pool; `None` for one that is not there, -1 for one without limit. ``description``: plain JSON.
    ``has_dag``: whether the DAG is there.
    """

    call_id: str
    observation: Observation | None = needed(None)
    result: ClearResult | None = needed(None)
    error: str | None = needed(None)
    slots: OrMinusOne | None = later(None)
    description: dict[str, Any] | None = later(None)
    has_dag: bool | None = later(None)


@dataclass(frozen=True)
class Caller:
    """The task instance that asks: never cleared, and refused where ``ti_id`` is given and no longer its own."""

    key: str
    ti_id: str | None = None


@dataclass(frozen=True)
class ClearBody:
    """What is posted to our endpoint. ``caller``: `None` for a person."""

    request: ClearRequest
    caller: Caller | None = None

    @classmethod
    def read(cls, value: Any) -> ClearBody:
        """From outside. Raises `ValueError` for what is none, or asks for too much."""
        body = from_json(cls, value)
        check_size(body.request)
        return body


@dataclass(frozen=True)
class RecoveryClear:
    """Recovery cleared a task after its try ``try_number``, when Airflow's ``max_tries`` was ``max_tries``."""

    try_number: int
    max_tries: int


def clears_to_json(clears: tuple[RecoveryClear, ...]) -> list[list[int]]:
    """Plain JSON values; `clears_from_json` is the inverse."""
    return [[clear.try_number, clear.max_tries] for clear in clears]


def clears_from_json(value: Any) -> tuple[RecoveryClear, ...]:
    """Inverse of `clears_to_json`; nothing for anything else, since a budget that is too large does no harm."""
    try:
        return tuple(RecoveryClear(int(ended), int(before)) for ended, before in value)
    except (TypeError, ValueError):
        return ()


def noted(text: object) -> str:
    """A note as Airflow takes it: one line, with our sign, cut where it is too long. Raises `ValueError`: no text."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"expected a note, found {text!r}")
    line = NOTE_SIGN + for_note(text.removeprefix(NOTE_SIGN))
    return line if len(line) <= MAX_NOTE else f"{line[: MAX_NOTE - 1]}…"


def check_size(request: ClearRequest) -> None:
    """Raise `ValueError` where ``request`` names too many task instances."""
    count = len(request.producers) + len(request.consumers)
    if count > MAX_KEYS:
        raise ValueError(f"expected at most {MAX_KEYS} task instances in one clear, found {count}")
