"""Unfinished multipart uploads: own leftovers go, every other writer's stays (faults 31, 32). And the same over S3."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from botocore.config import Config
from clocked import Clock, clocked_world, has_data, sweep, told
from fakes import PAIR, Killed, Process, World

from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.retention import Retention
from airflow_recovery.results import sweep_uploads
from airflow_recovery.results.sweep import Sweeper
from airflow_recovery.results.swept_run import SweepOptions, SweptRun
from airflow_recovery.store.object_store import ObjectStore, Upload
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server


def opened(server: S3Server, uri: str) -> S3Store:
    return S3Store(uri, endpoint_url=server.endpoint_url, session=server.session())


@pytest.fixture
def world(s3_server, s3_store) -> World:
    """A run whose results lie on S3, with a dead attempt P@1, a current P@2, and C@1 open."""
    world = World(PAIR)
    world.journal_store = opened(s3_server, f"{s3_store.base_uri}/journal")
    world.results = opened(s3_server, f"{s3_store.base_uri}/results")
    dies(world, "P")
    world.go("P")
    dies(world, "C")
    return world


def dies(world: World, region: str) -> None:
    process = Process()
    with pytest.raises(Killed):
        world.go(region, process=process, on_written=process.kill)
    world.airflow.lose_heartbeat(region)


def begin_upload(server: S3Server, store: ObjectStore, key: str) -> Upload:
    """As Spark's committers do; never completed."""
    client: Any = server.session().create_client(
        "s3", endpoint_url=server.endpoint_url, config=Config(s3={"addressing_style": "path"})
    )
    bucket, _, prefix = store.base_uri.removeprefix("s3://").partition("/")
    target: dict[str, Any] = {"Bucket": bucket, "Key": f"{prefix}/{key}"}
    begun = client.create_multipart_upload(**target)
    client.upload_part(**target, UploadId=begun["UploadId"], PartNumber=1, Body=b"half")
    return Upload(key, begun["UploadId"], 0.0)


def begun_in(server: S3Server, world: World) -> dict[str, Upload]:
    layout = world.journal().layout
    other_run = layout.data.replace("flights", "other")
    keys = {
        "dead": f"{layout.data_of_number('P', 1)}/out/part-1",
        "current": f"{layout.data_of_number('P', 2)}/out/part-1",
        "open": f"{layout.data_of_number('C', 1)}/out/part-1",
        "never claimed": f"{layout.data_of_number('P', 9)}/out/part-1",
        "no attempt's": f"{layout.data}P/part-1",
        "another run's": f"{other_run}P/00000001/out/part-1",
        "a stranger's": "backups/2026.tar",
    }
    return {name: begin_upload(server, world.results, key) for name, key in keys.items()}


def left_in(world: World, begun: dict[str, Upload]) -> set[str]:
    ids = {upload.upload_id for upload in world.results.uploads()}
    return {name for name, upload in begun.items() if upload.upload_id in ids}


@pytest.mark.slow
def test_fault_31_32_only_what_own_ended_attempts_have_left_is_aborted(s3_server, world):
    begun = begun_in(s3_server, world)
    assert left_in(world, begun) == set(begun)
    before = sweep(world, grace_s=0, dry_run=True)
    assert left_in(world, begun) == set(begun)
    entries = {entry.what: entry for entry in sweep(world, grace_s=0).entries if entry.what.startswith("upload")}
    assert left_in(world, begun) == set(begun) - {"dead", "current"}
    assert {entry.what: entry for entry in before.entries if entry.what.startswith("upload")} == entries
    assert entries["upload to backups/2026.tar"].why == "it is another writer's: no journal has such a run"
    assert entries[f"upload to {begun['open'].key}"].why == "its attempt is open"


@pytest.mark.slow
def test_fault_32_control_where_every_old_upload_is_aborted_another_writers_goes_too(s3_server, world, monkeypatch):
    monkeypatch.setattr(sweep_uploads, "_why_kept", lambda upload, runs, now_s, grace_s: None)
    begun = begun_in(s3_server, world)
    sweep(world, grace_s=0)
    assert left_in(world, begun) == set()


def test_an_upload_within_the_grace_time_stays():
    clock = Clock()
    world = clocked_world(PAIR, clock)
    dies(world, "P")
    world.go("P")
    upload = Upload(f"{world.journal().layout.data_of_number('P', 1)}/out/part-1", "u1", clock.now_s)
    aborted: list[Upload] = []
    world.results.uploads = lambda prefix="": iter([upload])
    world.results.abort_upload = aborted.append
    clock.passes(1800)
    sweep(world)
    assert aborted == []
    clock.passes(3600)
    sweep(world)
    assert aborted == [upload]


@pytest.mark.parametrize("key", [None, "stranger", "{P}/out/part-1"])
def test_a_run_is_held_no_longer_than_it_is_swept_but_for_its_uploads(monkeypatch, key):
    """There may be ten thousand runs, each with all that is known of its attempts."""
    world = clocked_world(PAIR, Clock())
    dies(world, "P")
    world.go_all()
    uploads = [Upload(key.format(P=world.journal().layout.data_of_number("P", 1)), "u1", 0.0)] if key else []
    world.results.uploads, world.results.abort_upload = lambda prefix="": iter(uploads), lambda upload: None
    read: list[weakref.ref[object]] = []
    unwatched = Sweeper._read

    def watched(sweeper: Sweeper, journal: Journal) -> SweptRun:
        run = unwatched(sweeper, journal)
        read.append(weakref.ref(run.state))
        return run

    monkeypatch.setattr(Sweeper, "_read", watched)
    sweeper = Sweeper(world.journal_store, world.results, SweepOptions(Retention.keep(), grace_s=0))
    assert sweeper.sweep().unread == []
    gc.collect()
    assert [state() is not None for state in read] == [key == "{P}/out/part-1"]


def test_an_upload_that_was_aborted_meanwhile_is_no_error(s3_server, s3_store):
    upload = begin_upload(s3_server, s3_store, "a/b")
    s3_store.abort_upload(upload)
    s3_store.abort_upload(upload)
    assert [candidate for candidate in s3_store.uploads() if candidate.upload_id == upload.upload_id] == []


def test_a_sweep_over_s3_deletes_what_is_dead_and_keeps_the_rest(world):
    dry = sweep(world, grace_s=0, dry_run=True)
    assert has_data(world, "P", 1)
    assert dry.entries == sweep(world, grace_s=0).entries
    assert not has_data(world, "P", 1)
    assert has_data(world, "P", 2)
    assert told(dry)["C@1"] == "kept: it is open"
    assert [each.key for each in world.journal_store.list("_gc/")] == []


def test_what_an_application_has_written_with_an_empty_part_in_its_name_goes_as_well(s3_server, world):
    """As ``f"{folder}/{name}"`` makes it of a folder with a slash at its end; S3 takes it for another key."""
    dead = world.journal().layout.data_of_number("P", 1)
    bucket, _, prefix = world.results.base_uri.removeprefix("s3://").partition("/")
    client = world.results._clients.sending(1)
    client.put_object(Bucket=bucket, Key=f"{prefix}/{dead}/out//x", Body=b"x")
    report = sweep(world, grace_s=0)
    assert report.unread == []
    assert not has_data(world, "P", 1)
