"""JobEvents, as in FLIP-383: what happened, for people and metrics. Recovery never reads them.

What recovery needs stands in the write-once records, so a torn, late or missing event never changes a plan. An event
carries the time at which it occurred as the caller saw it (ISO 8601); nothing is ordered by it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.journal.codec import plain
from airflow_recovery.journal.records import Failure, InputPin


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Base of all events. ``optional``: a reader that does not know the type may skip it."""

    occurred_at: str
    optional: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class JobVertexInitialized(JobEvent):
    """The subtasks of a parallel region are known: ``keys`` by map index.

    ``appeared`` and ``vanished`` are what differs from those that the run had recorded before.
    """

    region: str
    parallelism: int
    keys: tuple[str, ...]
    appeared: tuple[str, ...]
    vanished: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AttemptClaimed(JobEvent):
    """An attempt of a region begins; Spark is about to start."""

    region: str
    attempt: int
    writer: str
    try_number: int
    inputs: tuple[InputPin, ...]


@dataclass(frozen=True, kw_only=True)
class ExecutionVertexFinished(JobEvent):
    """An attempt finished. ``rows``: (result, rows written) where the rows are known."""

    region: str
    attempt: int
    rows: tuple[tuple[str, int], ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RegionKept(JobEvent):
    """A region need not run: its attempt stands, and its files are there where somebody wants them."""

    region: str
    attempt: int
    why: str
    files_checked: int
    seconds_saved: float | None


@dataclass(frozen=True, kw_only=True)
class ConsumerKept(JobEvent):
    """``producer`` was made again, and ``region``, which had read its attempt ``read``, keeps its result.

    ``by``: ``verify`` (digests are equal) or ``assume`` (the user's word); ``detail`` speaks against that word.
    """

    region: str
    producer: str
    read: int
    now: int
    by: str
    detail: str
    optional: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ExecutionVertexReset(JobEvent):
    """Attempts up to and including ``attempt`` do not count any more."""

    region: str
    attempt: int
    who: str
    why: str


@dataclass(frozen=True, kw_only=True)
class InputsLost(JobEvent):
    """A region can't read its inputs; ``plan`` is the failover as planned: (region, why it must run)."""

    region: str
    lost: tuple[InputPin, ...]
    plan: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class AttemptFailed(JobEvent):
    """An attempt failed, with what is known of the cause."""

    region: str
    attempt: int
    failure: Failure


@dataclass(frozen=True, kw_only=True)
class RegionSkipped(JobEvent):
    """A region was skipped by Airflow or by an input that was."""

    region: str
    why: str


@dataclass(frozen=True, kw_only=True)
class ResultPublished(JobEvent):
    """The ``number``-th coherent cut is what readers outside the run follow now."""

    number: int
    regions: tuple[InputPin, ...]


@dataclass(frozen=True, kw_only=True)
class Degraded(JobEvent):
    """Something works less well than configured: what, and what follows from it (promise 6)."""

    what: str
    consequence: str
    optional: ClassVar[bool] = True


EVENTS: dict[str, type[JobEvent]] = {
    each.__name__: each
    for each in (
        JobVertexInitialized,
        AttemptClaimed,
        ExecutionVertexFinished,
        RegionKept,
        ConsumerKept,
        ExecutionVertexReset,
        InputsLost,
        AttemptFailed,
        RegionSkipped,
        ResultPublished,
        Degraded,
    )
}


def event_to_json(event: JobEvent) -> dict[str, Any]:
    """Plain JSON values: the type's name, whether it is optional, and the fields; `event_from_json` is the inverse."""
    return {"type": type(event).__name__, "optional": event.optional, **plain(event)}


def event_from_json(value: Any, *, where: str) -> JobEvent | None:
    """The event that ``value`` stands for; `None` for an unknown type that is marked optional.

    ``where`` names the record in messages. Raises `RecordInvalid` for an unknown type that is not optional, and for
    fields that do not fit. A field that a newer version added to a known type is ignored.
    """
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise RecordInvalid(f"{where}: expected an event with a type, found {type(value).__name__}.")
    kind = EVENTS.get(value["type"])
    if kind is None:
        if value.get("optional") is True:
            return None
        raise RecordInvalid(
            f"{where}: unknown event type {value['type']!r}, written by a newer version. Upgrade airflow-recovery here."
        )
    try:
        return kind(**{each.name: _read(each.type, value[each.name]) for each in fields(kind)})
    except (KeyError, TypeError, ValueError) as error:
        raise RecordInvalid(f"{where}: a {value['type']} event with invalid fields: {error!r}.") from error


def _read(kind: Any, value: Any) -> Any:
    return _READERS[kind](value)


def _scalar(*allowed: type) -> Any:
    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise ValueError(f"expected {' or '.join(each.__name__ for each in allowed)}, found {value!r}")
        return value

    return read


def _pair(first: Any, second: Any) -> Any:
    def read(value: Any) -> Any:
        one, two = value
        return first(one), second(two)

    return read


def _tuple(item: Any) -> Any:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, found {value!r}")
        return tuple(item(each) for each in value)

    return read


def _dataclass(kind: type, **readers: Any) -> Any:
    def read(value: Any) -> Any:
        known = {each.name: each for each in fields(kind)}
        missing = [name for name, each in known.items() if each.default is MISSING and name not in value]
        if missing:
            raise ValueError(f"{kind.__name__} lacks {missing}")
        return kind(**{name: readers.get(name, lambda same: same)(value[name]) for name in known if name in value})

    return read


_text = _scalar(str)
_digests = _tuple(_pair(_text, _text))
_pins = _tuple(_dataclass(InputPin, region=_text, attempt=_scalar(int), digests=_digests))

# By the annotation's text: the module's annotations are not evaluated.
_READERS: dict[Any, Any] = {
    "str": _text,
    "int": _scalar(int),
    "float": _scalar(int, float),
    "float | None": _scalar(int, float, type(None)),
    "tuple[str, ...]": _tuple(_text),
    "tuple[InputPin, ...]": _pins,
    "tuple[tuple[str, int], ...]": _tuple(_pair(_text, _scalar(int))),
    "tuple[tuple[str, str], ...]": _tuple(_pair(_text, _text)),
    "Failure": _dataclass(Failure, type=_text, message=_text, chain=_tuple(_text), labels=_tuple(_pair(_text, _text))),
}
