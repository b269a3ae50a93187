"""``events``, ``export``, and reading a bundle."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.console.bundle import BundleStore, journal_in
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import Failure, ObjectMissing, RegionFailed
from airflow_recovery.journal.codec import decode_record, encode_record
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.scrub import scrubbed_json
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.records import SplitGeneration

RUN = ("flights", "2026-01-01")
KEY_ID = "AKIA" + "Q" * 16
SECRET = f"jdbc:postgresql://ann:hunter2@db/x password=hunter2 {KEY_ID}"


def boom() -> None:
    raise RegionFailed(SECRET, Failure("ValueError", SECRET))


@pytest.fixture
def world(recorded, monkeypatch):
    """A run whose first failure says secrets, as an earlier version wrote them that knew no forms."""
    for each in (Journal, EventWriter):
        monkeypatch.setitem(each.__init__.__kwdefaults__, "mask", str)
    found = recorded.world()
    with pytest.raises(RegionFailed):
        found.go("raw", on_start=boom)
    found.until_green()
    found.keep_events()
    return found


def bundle(recorded, folder: Path) -> Path:
    path = folder / "bundle.zip"
    code, _ = recorded.call("export", *RUN, "--out", str(path))
    assert code == ExitCode.DONE
    return path


# events


def test_the_history_as_a_table_and_as_json(recorded, world):
    _, said = recorded.call("events", *RUN)
    assert "ExecutionVertexFailed" in said
    assert "own failure: RegionFailed" in said
    _, said = recorded.call("events", *RUN, "--region", "busiest", "--type", "ExecutionVertexFinished", "--json")
    (event,) = json.loads(said)["events"]
    assert (event["type"], event["outcome"]["region"]) == ("ExecutionVertexFinished", "busiest")


def test_a_region_without_events(recorded, world):
    assert recorded.call("events", *RUN, "--region", "busyest") == (ExitCode.NOT_FOUND, "")
    assert "did you mean 'busiest'" in recorded.errors
    assert recorded.call("events", *RUN, "--region", "raw", "--type", "RunClosed")[0] == ExitCode.DONE


def test_holes_are_named(recorded, world):
    (segment,) = [info.key for info in world.journal_store.list("_streams/")]
    whole = world.journal_store.get(segment).body
    world.journal_store.put(segment, whole.replace(b"FINISHED", b"FINISHEd", 1))
    code, said = recorded.call("events", *RUN)
    assert (code, "Events are missing, or may be" in said) == (ExitCode.DONE, True)


def test_fault_36_nothing_is_told_beyond_a_missing_segment(recorded):
    world = recorded.world()
    world.until_green()
    stream = EventWriter(world.journal_store, world.identity, "writer", buffer_bytes=2000, flush_interval_s=3600)
    with stream._changed:  # so that nothing is written before all of it waits
        for event in world.events:
            stream.record(event)
    assert stream.close().failed is None
    segments = [info.key for info in world.journal_store.list("_streams/")]
    assert len(segments) > 2
    _, whole = recorded.call("events", *RUN, "--json")
    world.journal_store.delete([segments[1]])
    _, torn = recorded.call("events", *RUN, "--json")
    all_of_it, told = ({load["seq"] for load in json.loads(said)["events"]} for said in (whole, torn))
    assert told == set(range(1, len(told) + 1)) < all_of_it
    assert "a segment is missing" in json.loads(torn)["gaps"][0]["text"]


# export


def test_a_bundle_shows_what_the_journal_shows(recorded, world, tmp_path):
    path = bundle(recorded, tmp_path)
    _, live = recorded.call("show", *RUN, "--json")
    _, packed = recorded.call("show", "--bundle", str(path), "--json")
    packed_document, live_document = json.loads(packed), json.loads(live)
    assert packed_document.pop("bundle")["versions"]["airflow-recovery"]
    assert packed_document != live_document
    assert packed_document == scrubbed_json(live_document)
    code, said = recorded.call("show", "--bundle", str(path))
    assert (code, said.startswith(f"Bundle {path}, made at 2")) == (ExitCode.DONE, True)
    assert "complete." in said
    assert recorded.call("events", "--bundle", str(path), "--region", "raw")[0] == ExitCode.DONE
    with zipfile.ZipFile(path) as file:
        assert json.loads(file.read("plan.json"))["plan"]["regions"][0]["name"] == "raw"


def test_fault_84_a_bundle_holds_no_secret_and_says_where_one_was(recorded, world, tmp_path):
    path = bundle(recorded, tmp_path)
    with zipfile.ZipFile(path) as file:
        everything = b"".join(file.read(name) for name in file.namelist())
        altered = json.loads(file.read("bundle.json"))["altered"]
    assert b"hunter2" not in everything
    assert KEY_ID.encode() not in everything
    assert any(key.endswith("raw/00000001.outcome") for key in altered)
    assert any(key.startswith("_streams/") for key in altered)


def test_fault_84_control_without_the_second_net_the_secret_leaves(recorded, world, tmp_path, monkeypatch):
    monkeypatch.setattr("airflow_recovery.console.bundle.scrubbed_json", lambda value: value)
    path = bundle(recorded, tmp_path)
    with zipfile.ZipFile(path) as file:
        assert any(b"hunter2" in file.read(name) for name in file.namelist())


def test_a_bundle_has_which_subtask_reads_which_split(recorded, world, tmp_path):
    journal = world.journal()
    dealt = SplitGeneration(
        "raw", 1, "w", 2, (("s3://lake/a.csv", 12, "e1", 0), ("s3://lake/b.csv?sig=hunter2", 9, "e2", 1))
    )
    key = journal.layout.assignment("raw", 1)
    journal.store.put_if_absent(key, encode_record(journal.identity, dealt))
    copy = BundleStore(str(bundle(recorded, tmp_path)))
    record = decode_record(journal.identity, SplitGeneration, copy.get(key).body, where=key)
    assert [split[0] for split in record.splits] == ["s3://lake/a.csv", "s3://lake/b.csv?sig=***"]


def test_a_damaged_journal_is_exported_as_it_is(recorded, world, tmp_path):
    (plan,) = [info.key for info in world.journal_store.list() if "/plan/" in info.key]
    world.journal_store.put(plan, b"{ password=hunter2")
    path = bundle(recorded, tmp_path)
    with zipfile.ZipFile(path) as file:
        index = json.loads(file.read("bundle.json"))
        assert file.read(f"journal/{plan}") == b"{ password=***"
    assert "RecordInvalid" in index["no_plan"]
    code, said = recorded.call("show", "--bundle", str(path))
    assert (code, said) == (ExitCode.NO_ANSWER, "")


def test_an_existing_file_is_not_overwritten(recorded, world, tmp_path):
    path = bundle(recorded, tmp_path)
    assert recorded.call("export", *RUN, "--out", str(path))[0] == ExitCode.USAGE
    assert recorded.call("export", *RUN, "--out", str(tmp_path / "no" / "x.zip"))[0] == ExitCode.USAGE


def test_the_default_name_and_json(recorded, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, said = recorded.call("export", *RUN, "--json")
    assert json.loads(said)["file"] == "recovery-flights-date-2026-01-01T000000Z.zip"
    assert (tmp_path / "recovery-flights-date-2026-01-01T000000Z.zip").exists()


@pytest.mark.parametrize(
    ("content", "code"), [(None, ExitCode.USAGE), (b"no zip", ExitCode.NO_ANSWER), (b"PK\x05\x06" + b"\0" * 18, 5)]
)
def test_what_is_no_bundle(recorded, tmp_path, content, code):
    path = tmp_path / "x.zip"
    if content is not None:
        path.write_bytes(content)
    assert recorded.call("show", "--bundle", str(path)) == (code, "")
    assert recorded.errors.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("flights",), ("flights", "2026-01-01", "--bundle", "x.zip")])
def test_a_run_or_a_bundle(recorded, arguments):
    assert recorded.call("show", *arguments)[0] == ExitCode.USAGE
    assert "--bundle FILE" in recorded.errors


def test_a_bundle_can_only_be_read(recorded, world, tmp_path):
    store = BundleStore(str(bundle(recorded, tmp_path)))
    assert journal_in(store).identity.dag_id == "flights"
    for write in (lambda: store.put("x", b""), lambda: store.put_if_absent("x", b""), lambda: store.delete(["x"])):
        with fails_with("bundle-read-only"):
            write()
    with pytest.raises(ObjectMissing):
        store.get("../etc/passwd")
