"""Records of a control log to bytes and back. One JSON object a slot::

    {"format": 1, "kind": "epoch", "dag_id": ..., "run_key": ..., "group_id": ..., "edge": ..., "generation": "1",
     "slot": 17, "writer": ..., "body": {...}, "crc": ...}

As strict as the journal's (`airflow_recovery.journal.codec`), since what is read decides what is lost: a record of
another channel, generation or slot, a newer format, a wrong checksum, a missing or an unknown field, or a document that
is too large is refused with `RecordInvalid`. ``writer`` differs from process to process: who reads its own bytes back
after a lost reply knows that it was first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.journal.codec import canonical_json, check_belongs, checksum, parse_versioned, plain
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.streaming.channel_records import (
    BatchCommitted,
    ChannelIdentity,
    ChannelRecord,
    CheckpointPlanned,
    Consumed,
    EpochPublished,
    Finished,
    GaveUp,
    Loss,
    LossCause,
    ProducerOpened,
    Released,
    Segment,
    SegmentsDropped,
    ViewCreated,
)

CHANNEL_FORMAT = 1
MAX_CHANNEL_RECORD_BYTES = 8 * 1024 * 1024

KINDS: dict[str, type[Any]] = {
    "producer": ProducerOpened,
    "epoch": EpochPublished,
    "drop": SegmentsDropped,
    "view": ViewCreated,
    "plan": CheckpointPlanned,
    "commit": BatchCommitted,
    "release": Released,
    "finish": Finished,
    "fail": GaveUp,
}
_KIND_OF = {record: kind for kind, record in KINDS.items()}
_ENVELOPE = frozenset(
    {"format", "kind", "dag_id", "run_key", "group_id", "edge", "generation", "slot", "writer", "body", "crc"}
)


@dataclass(frozen=True)
class Entry:
    """What a slot holds: the record, and the process that wrote it."""

    writer: str
    record: ChannelRecord


def encode_entry(identity: ChannelIdentity, slot: int, entry: Entry) -> bytes:
    """The bytes of slot ``slot``. Raises `RecordInvalid` for a record that no reader would take, for its size."""
    body = plain(entry.record)
    place = {"kind": _KIND_OF[type(entry.record)], **_names(identity), "slot": slot, "writer": entry.writer}
    found = canonical_json({"format": CHANNEL_FORMAT, **place, "body": body, "crc": checksum(body)}).encode()
    _check_size(found, f"slot {slot} of {identity.edge!r}")
    return found


def decode_entry(identity: ChannelIdentity, slot: int, body: bytes, *, where: str) -> Entry:
    """Inverse of `encode_entry`; ``where`` names the object in messages. Raises `RecordInvalid`."""
    _check_size(body, where)
    document = parse_versioned(body, "channel", CHANNEL_FORMAT, where=where)
    check_belongs(document, _names(identity), where=where)
    if document.keys() != _ENVELOPE or document["slot"] != slot or type(document["writer"]) is not str:
        raise RecordInvalid(
            f"{where}: expected the record of slot {slot} with {sorted(_ENVELOPE)}, found slot "
            f"{document.get('slot')!r} with {sorted(document)}: it was copied here, or altered."
        )
    if document["crc"] != checksum(document["body"]):
        raise RecordInvalid(f"{where}: the checksum does not match; the record is damaged. Begin a new generation.")
    kind = document["kind"]
    if type(kind) is not str or kind not in KINDS:
        raise RecordInvalid(f"{where}: expected one of the kinds {', '.join(KINDS)}, found {kind!r}.")
    try:
        return Entry(document["writer"], _read(KINDS[kind], document["body"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordInvalid(f"{where}: a {kind} record with an invalid body: {error!r}.") from error


def _names(identity: ChannelIdentity) -> dict[str, str]:
    return {**asdict(identity.run), "edge": identity.edge, "generation": str(identity.generation)}


def _check_size(body: bytes, where: str) -> None:
    if len(body) > MAX_CHANNEL_RECORD_BYTES:
        raise RecordInvalid(
            f"{where}: {len(body)} bytes, more than the limit of {MAX_CHANNEL_RECORD_BYTES}: write larger segments, or "
            "use fewer tasks and subpartitions."
        )


def _read(kind: Any, value: Any) -> Any:
    readers = _readers(kind)
    if not isinstance(value, dict) or value.keys() != readers.keys():
        raise ValueError(f"expected the fields {', '.join(readers)}, found {value!r}")
    return kind(**{name: readers[name](each) for name, each in value.items()})


def _checked(holds: Callable[[Any], bool], expected: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not holds(value):
            raise ValueError(f"expected {expected}, found {value!r}")
        return value

    return read


def _tuple_of(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read_all(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, found {value!r}")
        return tuple(map(read, value))

    return read_all


def _record(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda value: _read(kind, value)


def _range(value: Any) -> tuple[int, int]:
    found = _offsets(value)
    if len(found) != 2 or found[0] >= found[1]:
        raise ValueError(f"expected a range that is not empty, found {value!r}")
    return found[0], found[1]


def _is_path(value: Any) -> bool:
    """What is read, and one day deleted, must stay below the channel (fault 86)."""
    return type(value) is str and "\0" not in value and not {"", ".", ".."} & set(value.split("/"))


_number = _checked(lambda value: type(value) is int and value >= 0, "a number of at least 0")
_positive = _checked(lambda value: type(value) is int and value >= 1, "a number of at least 1")
_epoch = _checked(lambda value: type(value) is int and value >= -1, "a batch number, or -1")
_text = _checked(lambda value: type(value) is str, "a text")
_truth = _checked(lambda value: type(value) is bool, "true or false")
_path = _checked(_is_path, "a key that stays where it begins")
_limit = _checked(lambda value: value is None or (type(value) is int and value >= 0), "a limit, or null")
_fraction = _checked(lambda value: value is None or type(value) in (int, float), "a fraction, or null")
_offsets = _tuple_of(_number)
_paths = _tuple_of(_path)

# By the name of a field: it means the same in every record that has it.
_FIELDS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("sub", "first", "count", "bytes", "leading", "trailing", "epoch", "batch"), _number),
    **dict.fromkeys(("schema", "reason", "edge"), _text),
    **dict.fromkeys(("budget", "restart_budget"), _record(LossBudget)),
    **dict.fromkeys(("jump", "end", "upto"), _offsets),
    **dict.fromkeys(("keys", "outputs"), _paths),
    **dict.fromkeys(("attempt", "generation", "subpartitions"), _positive),
    "replays": _truth,
    "max_lost_records": _limit,
    "max_lost_fraction": _fraction,
    "key": _path,
    "segments": _tuple_of(_record(Segment)),
    "consumed": _tuple_of(_record(Consumed)),
    "reconnect": Reconnect,
    "min_epoch": _epoch,
    "adopt": lambda value: None if value is None else _number(value),
    "read": _tuple_of(_tuple_of(_range)),
    "lost": _tuple_of(_record(Loss)),
    "cause": LossCause,
}
# Of a plan these are offsets, of a loss numbers.
_START = {CheckpointPlanned: _offsets, Loss: _number}


@cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    own: dict[str, Callable[[Any], Any]] = {"start": _START[kind], "stop": _number} if kind in _START else {}
    return {each.name: own.get(each.name) or _FIELDS[each.name] for each in fields(kind)}
