"""What a task and the API server say to each other, as JSON: the values of `airflow_recovery.attempt.task_instances`.

Shared by both sides and both clients; imports neither Airflow nor SQLAlchemy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation

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
    """What is asked for."""

    OBSERVE = "observe"
    CLEAR = "clear"
    POOL = "pool"
    """How many slots a pool has; ``text`` names it."""
    NOTE = "note"
    """Put ``text`` as the note of the task instance that asks."""
    DESCRIBE = "describe"
    """What is installed and configured there (`description`)."""


@dataclass(frozen=True)
class Call:
    """One question of one process. ``call_id`` is random: an answer that carries another one is not for us."""

    call_id: str
    operation: Operation
    request: ClearRequest | None = None
    text: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse. ``text`` only where there is one: older servers know none."""
        request = None if self.request is None else self.request.to_json()
        text = {} if self.text is None else {"text": self.text}
        return {"call_id": self.call_id, "operation": self.operation.value, "request": request, **text}

    @classmethod
    def from_json(cls, value: Any) -> Call:
        """Inverse of `to_json`. Raises `ValueError` on anything else."""
        if not isinstance(value, dict):
            raise ValueError(f"expected an object with call_id, operation and request, found {type(value).__name__}")
        try:
            operation = Operation(value["operation"])
            request = clear_request_from_json(value["request"]) if operation is Operation.CLEAR else None
            text = value.get("text")
            if operation is Operation.NOTE:
                text = noted(text)
            return cls(str(value["call_id"]), operation, request, None if text is None else str(text))
        except KeyError as error:
            raise ValueError(f"expected call_id, operation and request; {error} is missing") from error


@dataclass(frozen=True)
class Answer:
    """The server's answer to the call with the same ``call_id``: at most one of the others; none, to a note.

    ``slots``: of the pool; `None` for one that is not there, -1 for one without limit. ``description``: plain JSON.
    """

    call_id: str
    observation: Observation | None = None
    result: ClearResult | None = None
    error: str | None = None
    slots: int | None = None
    description: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return {
            "call_id": self.call_id,
            "observation": None if self.observation is None else self.observation.to_json(),
            "result": None if self.result is None else self.result.to_json(),
            "error": self.error,
            **({} if self.slots is None else {"slots": self.slots}),
            **({} if self.description is None else {"description": self.description}),
        }

    @classmethod
    def from_json(cls, value: Any) -> Answer:
        """Inverse of `to_json`. Raises `ValueError` on anything else, an unanswered call among them."""
        try:
            observation, result = value["observation"], value["result"]
            return cls(
                str(value["call_id"]),
                None if observation is None else Observation.from_json(observation),
                None if result is None else ClearResult.from_json(result),
                value["error"],
                value.get("slots"),
                value.get("description"),
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"expected an answer, found {str(value)[:200]!r}") from error


@dataclass(frozen=True)
class Caller:
    """The task instance that asks: never cleared, and refused where ``ti_id`` is given and no longer its own."""

    key: str
    ti_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is the inverse."""
        return {"key": self.key, "ti_id": self.ti_id}

    @classmethod
    def from_json(cls, value: Any) -> Caller | None:
        """Inverse of `to_json`; `None` stays `None` (a person asks). Raises `ValueError` on anything else."""
        if value is None:
            return None
        if not isinstance(value, dict) or not isinstance(value.get("key"), str):
            raise ValueError("expected caller to be null or an object with key and ti_id")
        ti_id = value.get("ti_id")
        return cls(value["key"], None if ti_id is None else str(ti_id))


@dataclass(frozen=True)
class RecoveryClear:
    """Recovery cleared a task after its try ``try_number``, when Airflow's ``max_tries`` was ``max_tries``."""

    try_number: int
    max_tries: int


def clears_to_json(clears: tuple[RecoveryClear, ...]) -> list[list[int]]:
    """Plain JSON values; `clears_from_json` is the inverse."""
    return [[each.try_number, each.max_tries] for each in clears]


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
    line = NOTE_SIGN + " ".join(text.removeprefix(NOTE_SIGN).split())
    return line if len(line) <= MAX_NOTE else f"{line[: MAX_NOTE - 1]}…"


def clear_request_from_json(value: Any) -> ClearRequest:
    """A `ClearRequest` from outside. Raises `ValueError` where it is none or names too many task instances."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a clear request, found {type(value).__name__}")
    try:
        request = ClearRequest.from_json(value)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected producers, consumers and unblock: {error!r}") from error
    pairs = [*request.producers.items(), *request.consumers.items()]
    if len(pairs) > MAX_KEYS:
        raise ValueError(f"expected at most {MAX_KEYS} task instances in one clear, found {len(pairs)}")
    if not all(isinstance(each, str) for pair in pairs for each in pair):
        raise ValueError("expected producers and consumers to map task keys to task instance ids, both strings")
    return request
