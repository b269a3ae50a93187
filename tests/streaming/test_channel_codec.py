"""Records to bytes and back: what is not exactly as written is refused."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.streaming import channel_codec as codec
from airflow_recovery.streaming.channel_codec import KINDS, Entry, decode_entry, encode_entry
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

GOLDEN = Path(__file__).parents[1] / "golden" / "channel-v1"
IDENTITY = ChannelIdentity(RunIdentity("dag", "2024-01-01", "group"), "scores", 1)
RECORDS: list[ChannelRecord] = [
    ProducerOpened(1, 3, "v bigint", True, LossBudget(10, 0.5), LossBudget()),
    EpochPublished(1, 0, (Segment(0, "seg/1/a/0", 0, 5, 100), Segment(2, "seg/1/b/2", 7, 0, 3, 0, 3))),
    EpochPublished(2, 4, (), (Consumed("raw", 1, (5, 0)),)),
    SegmentsDropped(1, ("seg/1/a/0",)),
    ViewCreated(1, Reconnect.REWIND, (), -1),
    ViewCreated(2, Reconnect.LATEST, (5, 0, 7), 4, 3),
    CheckpointPlanned(1, (0, 0), (5, 7), (((0, 2), (3, 5)), ()), (Loss(0, 2, 3, LossCause.TORN),)),
    BatchCommitted(1, 0, (5, 7), ("out/1/0", "out/1/1")),
    Released(1, (5, 7)),
    Finished(1),
    GaveUp(1, "no licence: \u00e9 \u2028"),
]


def encoded(record, slot: int = 17) -> bytes:
    return encode_entry(IDENTITY, slot, Entry("writer-1", record))


def altered(record, **changes) -> bytes:
    """With another body, whose checksum is right."""
    document = json.loads(encoded(record))
    document["body"].update(changes)
    document["crc"] = zlib.crc32(canonical_json(document["body"]).encode())
    return canonical_json(document).encode()


def refused(body: bytes, what: str, identity: ChannelIdentity = IDENTITY, slot: int = 17) -> None:
    with pytest.raises(RecordInvalid, match=what) as caught:
        decode_entry(identity, slot, body, where="log/00000017")
    assert str(caught.value).startswith("log/00000017: ")


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: type(each).__name__)
def test_every_record_comes_back(record):
    assert decode_entry(IDENTITY, 17, encoded(record), where="x") == Entry("writer-1", record)


def test_every_kind_is_among_them():
    assert {type(record) for record in RECORDS} == set(KINDS.values())


def test_equal_records_have_equal_bytes_and_other_processes_have_others():
    one = encoded(RECORDS[0])
    assert one == encoded(RECORDS[0])
    assert one != encode_entry(IDENTITY, 17, Entry("writer-2", RECORDS[0]))


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_the_golden_bytes_are_written_and_read_for_ever(number):
    golden = (GOLDEN / f"{number:02d}-{type(RECORDS[number]).__name__}.json").read_bytes()
    assert encoded(RECORDS[number]) == golden
    assert decode_entry(IDENTITY, 17, golden, where="x").record == RECORDS[number]


@pytest.mark.parametrize(
    ("identity", "what"),
    [
        (replace(IDENTITY, generation=2), "expected generation='2', found '1'"),
        (replace(IDENTITY, edge="raw"), "expected edge='raw', found 'scores'"),
        (replace(IDENTITY, run=RunIdentity("dag", "2024-01-02", "group")), "run_key='2024-01-02'"),
    ],
)
def test_a_record_of_another_channel_run_or_generation_is_refused(identity, what):
    refused(encoded(RECORDS[0]), what, identity)


def test_a_record_of_another_slot_is_refused():
    refused(encoded(RECORDS[0]), "expected the record of slot 18", slot=18)


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: type(each).__name__)
def test_a_cut_record_is_refused_wherever_it_is_cut(record):
    body = encoded(record)
    for length in range(0, len(body), 7):
        refused(body[:length], "not a valid journal document")


def test_a_changed_bit_of_the_body_is_seen():
    refused(encoded(RECORDS[-1]).replace(b"licence", b"license"), "checksum does not match")


def test_a_newer_format_is_refused_with_what_to_do():
    refused(encoded(RECORDS[0]).replace(b'"format":1', b'"format":2'), "Upgrade airflow-recovery")


@pytest.mark.parametrize("format_", [b'"1"', b"0", b"true", b"null"])
def test_a_format_that_is_none_is_refused(format_):
    refused(encoded(RECORDS[0]).replace(b'"format":1', b'"format":' + format_), "format number")


def test_other_documents_are_refused():
    refused(b"[]", "expected a JSON object")
    refused(encoded(RECORDS[0]).replace(b'"slot":17', b'"slot":17,"more":1'), "it was copied here, or altered")
    refused(encoded(RECORDS[0]).replace(b'"kind":"producer"', b'"kind":"consumer"'), "expected one of the kinds")


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (0, {"attempt": 0}),
        (0, {"attempt": True}),
        (0, {"subpartitions": 0}),
        (0, {"budget": {"max_lost_records": -1, "max_lost_fraction": None}}),
        (0, {"budget": {"max_lost_records": None, "max_lost_fraction": 2}}),
        (0, {"replays": 1}),
        (0, {"unknown": 1}),
        (1, {"epoch": -1}),
        (1, {"segments": [{"sub": 0}]}),
        (1, {"segments": {}}),
        (3, {"keys": ["../../other"]}),
        (3, {"keys": ["seg//a"]}),
        (3, {"keys": [""]}),
        (4, {"reconnect": "somewhere"}),
        (4, {"min_epoch": -2}),
        (6, {"read": [[[5, 5]]]}),
        (6, {"read": [[[0, 1, 2]]]}),
        (6, {"start": 3}),
        (6, {"lost": [{"sub": 0, "start": 0, "stop": 1, "cause": "theft"}]}),
        (7, {"end": [1.5]}),
        (7, {"outputs": "out"}),
        (10, {"reason": None}),
    ],
)
def test_a_body_that_no_writer_writes_is_refused(number, changes):
    refused(altered(RECORDS[number], **changes), "with an invalid body")


def test_a_missing_field_is_refused():
    document = json.loads(encoded(RECORDS[7]))
    del document["body"]["outputs"]
    document["crc"] = zlib.crc32(canonical_json(document["body"]).encode())
    refused(canonical_json(document).encode(), "with an invalid body")


def test_a_record_that_is_too_large_is_neither_written_nor_read(monkeypatch):
    body = encoded(RECORDS[1])
    monkeypatch.setattr(codec, "MAX_CHANNEL_RECORD_BYTES", 100)
    refused(body, "more than the limit of 100")
    with fails_with("slot-too-large"):
        encoded(RECORDS[1])
