"""What this version makes of what a version to come writes: a table of docs/journal-format.md.

Either it is refused, with the advice to upgrade, or it is passed over, and does no harm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from posixpath import normpath
from types import SimpleNamespace
from typing import Any

import pytest
from example_events import EXAMPLE_EVENTS
from example_events import IDENTITY as STREAM_RUN
from test_codec import EXAMPLES, IDENTITY
from test_golden_objects import (
    BEATS,
    CHECKPOINT,
    CHECKPOINTS,
    FAILURE,
    JOURNAL_ID,
    LAYOUT,
    RUN,
    SNAPSHOT,
    Places,
    golden,
)

from airflow_recovery.driver import exit_report
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.errors import RecordInvalid
from airflow_recovery.journal.codec import checksum, decode_record
from airflow_recovery.journal.events import event_from_json, event_to_json
from airflow_recovery.journal.frames import SegmentHeader, _line, read_segment
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.owner import check_owner, check_results, digest_key
from airflow_recovery.journal.record_cache import RecordCache
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.record_kinds import RECORD_KINDS
from airflow_recovery.model.records import Claim, RunIdentity
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.streaming.channel_codec import decode_entry
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.checkpoint import lineage_key, read_lineage
from airflow_recovery.task.run_spark import RunSpark

CHANNELS = Path(__file__).parents[1] / "golden" / "channel-v1"
CHANNEL = ChannelIdentity(RunIdentity("dag", "2024-01-01", "group"), "scores", 1)
SLOT, END = f"{LAYOUT.servers}00000001", f"{LAYOUT.servers}00000001.end"
SPLIT_LOG, SPLIT_SNAPSHOT = f"{LAYOUT.splits_of('raw')}log-00000005", f"{LAYOUT.splits_of('raw')}snapshot-00000005"
FAILED = f"{LAYOUT.data_of_number('delays', 1)}/_failure.json"
LINEAGE = lineage_key(CHECKPOINTS, "1")

Change = Callable[[dict[str, Any]], object]


def changed(body: bytes, change: Change) -> bytes:
    """The JSON object with the change, and with a checksum that fits where it has one."""
    document = json.loads(body)
    change(document)
    if "crc" in document:
        document["crc"] = checksum(document["body"])
    return canonical_json(document).encode()


def field(*path: str) -> Change:
    """One more field in the object at ``path``."""

    def change(document: dict[str, Any]) -> None:
        for name in path:
            document = document[name]
        document["later"] = [1]

    return change


def value(content: object, *path: str) -> Change:
    """Another value of the field at ``path``."""

    def change(document: dict[str, Any]) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = content

    return change


def record(change: Change, kind: str = "claim") -> Any:
    body = (CHANNELS.parent / "v1" / f"{kind}.json").read_bytes()
    return decode_record(IDENTITY, RECORD_KINDS[kind.partition("-")[0]].record, changed(body, change), where="x")


def channel(change: Change, name: str = "09-Finished") -> Any:
    return decode_entry(CHANNEL, 17, changed((CHANNELS / f"{name}.json").read_bytes(), change), where="x").record


def with_object(key: str, change: Change, *, is_result: bool = False) -> Places:
    """The golden objects, of which one is changed."""
    places = golden()
    store = places.results if is_result else places.journal
    store.put(key, changed(store.get(key).body, change))
    return places


def splits(places: Places) -> Any:
    return SplitLogStore(places.journal, RUN, "raw", writer="w2").read().to_json()


def splits_without_snapshot(change: Change) -> Any:
    places = with_object(SPLIT_LOG, change)
    places.journal.delete([SPLIT_SNAPSHOT])
    return splits(places)


def servers(places: Places) -> RunSpark:
    return RunSpark(SimpleNamespace(journal=places.journal), RUN, secret="", log=None)  # type: ignore[arg-type]


def stream(change: Change) -> Any:
    header = {"format": 1, "kind": "stream", "dag_id": STREAM_RUN.dag_id, "run_key": STREAM_RUN.run_key}
    header |= {"group_id": STREAM_RUN.group_id, "writer": "w", "segment": 1, "first": 1}
    change(header)
    return list(read_segment(_line(canonical_json(header)), SegmentHeader(STREAM_RUN, "w", 1, 1), where="x"))


def event(change: Change) -> Any:
    document = event_to_json(EXAMPLE_EVENTS[0])
    change(document)
    return event_from_json(document, where="x")


def run_with(name: str) -> Any:
    """The listing of a run that has an object of that name below its prefix, or beside all runs."""
    places = golden()
    journal = Journal(places.journal, RUN, writer="w")
    places.journal.put(normpath(f"{LAYOUT.prefix}{name}"), b"?")
    return journal.list(["raw"]).state.regions


UNTOUCHED = golden()
REFUSED: dict[str, Callable[[], Any]] = {
    "a record: another format": lambda: record(value(3, "format")),
    "a record: another value of a name": lambda: record(value("GUESSED", "body", "state"), "outcome"),
    "a record of an attempt: another kind": lambda: run_with("t/raw/00000001.voided"),
    "a record of the run: another kind": lambda: run_with("sealed/00000001"),
    "a record of the run: another numbered kind": lambda: run_with("sealed-00000001"),
    "a stream: another format": lambda: stream(value(2, "format")),
    "an event: another type": lambda: event(value("Foreseen", "type")),
    "a log of splits: another format": lambda: splits_without_snapshot(value(2, "format")),
    "a log of splits: another record": lambda: splits_without_snapshot(value("merged", "body", "record", "kind")),
    "a log of splits: another field of a record": lambda: splits_without_snapshot(field("body", "record")),
    "a snapshot of splits: another format": lambda: splits(with_object(SPLIT_SNAPSHOT, value(2, "format"))),
    "a channel: another format": lambda: channel(value(2, "format")),
    "a channel: another kind": lambda: channel(value("pause", "kind")),
    "a channel: another field": lambda: channel(field("body")),
    "a run's own Spark: another format": lambda: servers(with_object(SLOT, value(3, "format")))._at(1),
}
PASSED_OVER: dict[str, tuple[Callable[[], Any], Any]] = {
    "a record: another field": (lambda: record(field("body")), EXAMPLES["claim"]),
    "a record: another field of a part": (
        lambda: record(lambda document: document["body"]["inputs"][0].update(later=1)),
        EXAMPLES["claim"],
    ),
    "a record: another field beside the body": (lambda: record(field(), "claim-digests"), EXAMPLES["claim-digests"]),
    "a record of an attempt that may be passed over": (
        lambda: run_with("t/raw/00000001.x-note"),
        run_with("t/raw/note"),
    ),
    "a record of the run that may be passed over": (lambda: run_with("x-note/00000001"), run_with("note")),
    "a folder beside the runs": (lambda: run_with("../../../_sealed/00000001"), run_with("note")),
    "an event: another type, optional": (
        lambda: event(lambda document: document.update(type="Foreseen", optional=True)),
        None,
    ),
    "an event: another field": (lambda: event(field()), EXAMPLE_EVENTS[0]),
    "a stream: another field of the header": (lambda: stream(field()), []),
    "a snapshot of splits: another field": (
        lambda: splits(with_object(SPLIT_SNAPSHOT, field("body", "book"))),
        splits(UNTOUCHED),
    ),
    "a run's own Spark: another field": (
        lambda: servers(with_object(SLOT, field()))._at(1),
        servers(UNTOUCHED)._at(1),
    ),
    "the end of a run's own Spark: another field": (
        lambda: {**(servers(with_object(END, field()))._end_of(1) or {}), "later": None},
        {**(servers(UNTOUCHED)._end_of(1) or {}), "later": None},
    ),
    "a heartbeat: another field": (
        lambda: Beat.from_bytes(changed(BEATS[1].to_bytes(), field())),
        BEATS[1],
    ),
    "the owner of a journal: another field": (
        lambda: check_owner(with_object("_owner", field()).journal, "berlin"),
        None,
    ),
    "the key of digests: another field": (
        lambda: digest_key(with_object("_key", field()).journal),
        JOURNAL_ID,
    ),
    "the owner of results: another field": (
        lambda: (lambda places: check_results(places.journal, places.results))(
            with_object("_owner", field(), is_result=True)
        ),
        None,
    ),
    "what a driver said of its failure: another field": (
        lambda: exit_report.read_failure_at(
            with_object(FAILED, field(), is_result=True).results, LAYOUT.data_of_number("delays", 1)
        ),
        FAILURE,
    ),
    "how a checkpoint was forked: another field": (
        lambda: read_lineage(with_object(LINEAGE, field(), is_result=True).results, LINEAGE),
        CHECKPOINT,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_fault_83_what_an_older_version_must_understand_it_refuses_by_name(what: str) -> None:
    with pytest.raises(
        RecordInvalid, match=re.compile("upgrade airflow-recovery (here|on this worker)", re.IGNORECASE)
    ):
        REFUSED[what]()


@pytest.mark.parametrize("what", PASSED_OVER)
def test_what_an_older_version_need_not_understand_it_passes_over(what: str) -> None:
    read, expected = PASSED_OVER[what]
    assert read() == expected


def test_a_snapshot_of_outcomes_of_another_format_is_as_good_as_none() -> None:
    """It is a cache: the outcomes themselves are read."""
    places = golden()
    store = places.journal
    body = store.get(LAYOUT.snapshot).body
    store.put(LAYOUT.snapshot, body.replace(b'"format":2', b'"format":3'))
    [listed] = store.list(LAYOUT.snapshot)
    asked: list[str] = []

    def fetch(keys: list[str]) -> dict[str, Any]:
        asked.extend(keys)
        raise RecordInvalid("asked for all of them")

    with pytest.raises(RecordInvalid, match="asked for all"):
        RecordCache(store, LAYOUT.snapshot, worth=1).bodies(
            {key: etag for key, (etag, _) in SNAPSHOT.items()}, listed, fetch
        )
    assert sorted(asked) == sorted(SNAPSHOT)


def test_each_line_of_the_pages_table_is_one_of_these() -> None:
    page = (Path(__file__).parents[2] / "docs" / "journal-format.md").read_text(encoding="utf-8")
    section = page.partition("### What a version makes of a version to come")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (.+?) \| (refused|passed over)\b", section, re.MULTILINE)
    assert sorted(name for name, said in rows if said == "refused") == sorted(REFUSED)
    assert sorted(name for name, said in rows if said == "passed over") == sorted(PASSED_OVER)


def test_a_claim_is_still_a_claim() -> None:
    """Control: without the change, each of these is read."""
    assert isinstance(record(lambda document: None), Claim)
    assert channel(lambda document: None)
    assert splits_without_snapshot(lambda document: None) == splits(UNTOUCHED)
    assert stream(lambda document: None) == []
