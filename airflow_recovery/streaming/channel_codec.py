"""Records of a control log to bytes and back. One JSON object a slot::

    {"format": 1, "kind": "epoch", "dag_id": ..., "run_key": ..., "group_id": ..., "edge": ..., "generation": "1",
     "slot": 17, "writer": ..., "body": {...}, "crc": ...}

As strict as the journal's (`airflow_recovery.journal.codec`), since what is read decides what is lost: a record of
another channel, generation or slot, a newer format, a wrong checksum, a missing or an unknown field, or a document that
is too large is refused with `RecordInvalid`. ``writer`` differs from process to process: who reads its own bytes back
after a lost reply knows that it was first.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.journal.codec import check_belongs, checksum, parse_versioned
from airflow_recovery.model.codec import Unlike, canonical_json, from_json, to_json
from airflow_recovery.streaming.channel_records import (
    BatchCommitted,
    ChannelIdentity,
    ChannelRecord,
    CheckpointPlanned,
    EpochPublished,
    Finished,
    GaveUp,
    ProducerOpened,
    Released,
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
    body = to_json(entry.record)
    place = {"kind": _KIND_OF[type(entry.record)], **_names(identity), "slot": slot, "writer": entry.writer}
    content = canonical_json({"format": CHANNEL_FORMAT, **place, "body": body, "crc": checksum(body)}).encode()
    _check_size(content, f"slot {slot} of {identity.edge!r}")
    return content


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
        raise RecordInvalid(
            f"{where}: expected one of the kinds {', '.join(KINDS)}, found {kind!r}. Where a newer version wrote it, "
            "upgrade airflow-recovery here."
        )
    try:
        return Entry(document["writer"], from_json(KINDS[kind], document["body"], exact=True))
    except Unlike as error:
        raise RecordInvalid(f"{where}: a {kind} record with an invalid body: {error}.") from error


def _names(identity: ChannelIdentity) -> dict[str, str]:
    return {**asdict(identity.run), "edge": identity.edge, "generation": str(identity.generation)}


def _check_size(body: bytes, where: str) -> None:
    if len(body) > MAX_CHANNEL_RECORD_BYTES:
        raise RecordInvalid(
            f"{where}: {len(body)} bytes, more than the limit of {MAX_CHANNEL_RECORD_BYTES}: write larger segments, or "
            "use fewer tasks and subpartitions.",
            code="slot-too-large",
        )
