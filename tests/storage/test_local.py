"""The directory store: what a file system adds to the contract."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_recovery.errors import (
    ConfigurationError,
    StoreAccessDenied,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    StoreUnsuitable,
)
from airflow_recovery.storage import local as local_module
from airflow_recovery.storage import open_store
from airflow_recovery.storage.local import LocalStore


def raising(code: int) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_the_folder_is_made_by_the_first_write_and_emptied_folders_go(local_store: LocalStore, tmp_path: Path) -> None:
    base = tmp_path / "store"
    assert list(local_store.list()) == []
    assert not base.exists()
    local_store.put_if_absent("a/b/c", b"x")
    local_store.put_if_absent("a/d", b"x")
    local_store.delete(["a/b/c"])
    assert sorted(str(each.relative_to(base)) for each in base.rglob("*")) == ["a", "a/d"]
    local_store.delete(["a/d"])
    assert base.is_dir()
    assert list(base.iterdir()) == []


def test_the_etag_is_the_hash_of_the_content_also_after_an_outside_write(
    local_store: LocalStore, tmp_path: Path
) -> None:
    one = local_store.put("one", b"same")
    two = local_store.put("two", b"same")
    assert one.etag == two.etag
    path = tmp_path / "store" / "one"
    [before] = local_store.list("one")
    stat = path.stat()
    path.write_bytes(b"emas")  # same size, and the same time stamp
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    [after] = local_store.list("one")
    assert (before.etag, after.size) == (one.etag, before.size)
    assert after.etag != before.etag


def test_an_old_file_is_hashed_once(local_store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = local_store.put("one", b"body")
    monkeypatch.setattr(local_module.time, "time_ns", lambda: 2**63 - 1)  # long after
    [first] = local_store.list()
    monkeypatch.setattr(local_module, "blake2b", None)
    [second] = local_store.list()
    assert first.etag == second.etag == info.etag


def test_temporary_files_of_dead_writers_are_never_seen(local_store: LocalStore, tmp_path: Path) -> None:
    local_store.put("a/b", b"x")
    (tmp_path / "store/a/.tmp-dead").write_bytes(b"half")
    assert [each.key for each in local_store.list()] == ["a/b"]
    assert [each.key for each in local_store.list("a/.tmp")] == []
    with pytest.raises(ValueError, match="tmp-"):
        local_store.put("a/.tmp-mine", b"")


def test_no_temporary_file_is_left(local_store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_store.put("key", b"x")
    monkeypatch.setattr(os, "fsync", raising(errno.EIO))
    with pytest.raises(StoreUnavailable):
        local_store.put("key", b"y")
    assert os.listdir(tmp_path / "store") == ["key"]
    assert local_store.get("key").body == b"x"


def test_fault_27_a_denied_read_is_not_missing(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    local_store.put("key", b"x")
    monkeypatch.setattr("builtins.open", raising(errno.EACCES))
    with pytest.raises(StoreAccessDenied, match="nothing is known"):
        local_store.get("key")
    with pytest.raises(StoreAccessDenied):
        list(local_store.list())
    with pytest.raises(StoreAccessDenied):
        local_store.put("key", b"y")


def test_fault_27_a_denied_folder_is_not_empty(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    local_store.put("key", b"x")
    monkeypatch.setattr(os, "scandir", raising(errno.EACCES))
    with pytest.raises(StoreAccessDenied, match="list"):
        list(local_store.list())


def test_a_full_disk_says_so(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", raising(errno.ENOSPC))
    with pytest.raises(StoreFull, match=r"No space left.* Make room below"):
        local_store.put_if_absent("key", b"x")


def test_a_file_system_without_links_is_refused(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    with pytest.raises(StoreUnsuitable, match="hard links"):
        local_store.put_if_absent("key", b"x")


def test_a_base_that_is_a_file_is_a_misconfiguration(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreMisconfigured, match="folder"):
        LocalStore(f"{tmp_path}/file").put("key", b"x")


def test_opening_by_uri(tmp_path: Path) -> None:
    assert open_store("/a/b/").base_uri == open_store("file:///a/b").base_uri == open_store("file:/a/b").base_uri
    assert open_store("s3a://bucket/a").base_uri == "s3://bucket/a"
    for uri in ("hdfs://host/a", "relative/path", "file://host/a", ""):
        with pytest.raises(ConfigurationError, match=r"Expected|absolute"):
            open_store(uri)
