"""A full local disk: the region that writes fails with a clear text, and the journal stays whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from expected_errors import fails_with
from fakes import CHAIN, IDENTITY, Process, World

from airflow_recovery.errors import StoreFull
from airflow_recovery.journal.codec import parse_json
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import AttemptState
from airflow_recovery.store.local import LocalStore


class Disk:
    """A disk of ``room`` bytes below ``folder``: what does not fit is refused when it is flushed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.room = 1_000_000
        self._fsync = os.fsync

    def fsync(self, descriptor: int) -> None:
        used = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        if used > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._fsync(descriptor)

    def is_full(self) -> None:
        self.room = 0

    def has_room(self) -> None:
        self.room = 1_000_000


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path)
    monkeypatch.setattr(os, "fsync", disk.fsync)
    return disk


class Impatient(World):
    """Nobody makes room while a write is repeated."""

    def journal(self, process: Process | None = None, writer: str = "test") -> Journal:
        found = super().journal(process, writer)
        return Journal(found.store, IDENTITY, writer=writer, listener=self.listener(), deadline_s=0)


@pytest.fixture
def world(tmp_path: Path, disk: Disk) -> World:
    world = Impatient(CHAIN)
    world.journal_store = LocalStore(f"file://{tmp_path}/journal")
    world.results = LocalStore(f"file://{tmp_path}/results")
    world.go("P")
    return world


def check_whole(world: World) -> None:
    """Every object of the journal is a record from its first to its last byte, and nothing half-written is listed."""
    for info in world.journal_store.list():
        assert parse_json(world.journal_store.get(info.key).body, where=info.key)["format"] == 1
    assert not list(Path(world.journal_store.base_uri[7:]).rglob(".tmp-*"))


@pytest.mark.parametrize("when", ["on_start", "on_read", "on_written"])
def test_a_full_disk_fails_the_writing_region_and_the_next_try_goes_on(world, disk, when):
    with fails_with("disk-full"):
        world.go("C", **{when: disk.is_full})
    check_whole(world)
    disk.has_room()
    world.until_green()
    check_whole(world)
    assert [world.journal().read_outcome("C", n).state for n in (1, 2)] == [AttemptState.FENCED, AttemptState.FINISHED]


def test_a_disk_that_is_full_before_the_claim_leaves_no_attempt(world, disk):
    disk.is_full()
    with pytest.raises(StoreFull):
        world.go("C")
    assert world.attempts("C") == 0
    check_whole(world)
    disk.has_room()
    world.until_green()
    assert world.current("C") == 1


def test_control_a_store_that_writes_in_place_leaves_half_a_record(world, disk, monkeypatch):
    def in_place(self: LocalStore, key: str, body: bytes, place: object) -> None:
        path = Path(self._path(key))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body[: len(body) // 2])
        self._refuse("write", str(path), OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(LocalStore, "_write", in_place)
    with pytest.raises(StoreFull):
        world.go("C")
    with fails_with("record-no-json"):
        check_whole(world)
