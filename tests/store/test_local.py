"""The directory store: what a file system adds to the contract."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery.errors import (
    ObjectMissing,
    StoreAccessDenied,
    StoreUnavailable,
)
from airflow_recovery.store import local as local_module
from airflow_recovery.store import open_store
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import FolderStore


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
    assert sorted(str(path.relative_to(base)) for path in base.rglob("*")) == ["a", "a/d"]
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
    monkeypatch.setattr(local_module, "content_hash", None)
    [second] = local_store.list()
    assert first.etag == second.etag == info.etag


def test_temporary_files_of_dead_writers_are_never_seen(local_store: LocalStore, tmp_path: Path) -> None:
    local_store.put("a/b", b"x")
    (tmp_path / "store/a/.tmp-dead").write_bytes(b"half")
    assert [each.key for each in local_store.list()] == ["a/b"]
    assert [each.key for each in local_store.list("a/.tmp")] == []
    with pytest.raises(ValueError, match="tmp-"):
        local_store.put("a/.tmp-mine", b"")


def test_folders_that_hold_nothing_are_found(local_store: LocalStore, tmp_path: Path) -> None:
    assert list(local_store.empty_folders()) == []
    local_store.put("a/b", b"x")
    (tmp_path / "store/_temporary/0/_temporary").mkdir(parents=True)
    (tmp_path / "store/a/none").mkdir()
    assert [each.key for each in local_store.empty_folders()] == ["_temporary/0/_temporary/", "a/none/"]
    assert [each.key for each in local_store.list()] == ["a/b"]
    assert isinstance(local_store, FolderStore)


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
    with fails_with("credentials-refused"):
        local_store.get("key")
    with pytest.raises(StoreAccessDenied):
        list(local_store.list())
    with pytest.raises(StoreAccessDenied):
        local_store.put("key", b"y")


def test_fault_27_a_denied_folder_is_not_empty(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    local_store.put("key", b"x")
    monkeypatch.setattr(os, "scandir", raising(errno.EACCES))
    with fails_with("credentials-refused"):
        list(local_store.list())


def test_a_full_disk_says_so(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", raising(errno.ENOSPC))
    with fails_with("disk-full"):
        local_store.put_if_absent("key", b"x")


def test_a_file_system_without_links_is_refused(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    with fails_with("no-hard-links"):
        local_store.put_if_absent("key", b"x")


def test_a_base_that_is_a_file_is_a_misconfiguration(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with fails_with("path-through-file"):
        LocalStore(f"{tmp_path}/file").put("key", b"x")


def test_opening_by_uri(tmp_path: Path) -> None:
    assert open_store("/a/b/").base_uri == open_store("file:///a/b").base_uri == open_store("file:/a/b").base_uri
    assert open_store("s3a://bucket/a").base_uri == "s3://bucket/a"
    for uri in ("hdfs://host/a", "relative/path", "file://host/a", ""):
        with fails_with("local-uri-unfit", "store-unknown"):
            open_store(uri)


# symbolic links


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with a file, outside of every store."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "part-0").write_bytes(b"a person's")
    return tmp_path / "elsewhere"


def link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(to)


LINKED = {
    "list all": lambda store: list(store.list()),
    "list the folder": lambda store: list(store.list("results/a/")),
    "list in it": lambda store: list(store.list("results/a/p")),
    "read": lambda store: store.get("results/a/part-0"),
    "write": lambda store: store.put("results/a/part-1", b""),
    "write if absent": lambda store: store.put_if_absent("results/a/part-1", b""),
    "delete": lambda store: store.delete(["results/a/part-0"]),
}


@pytest.mark.parametrize("request_", LINKED)
def test_a_link_below_the_base_is_refused_by_name(
    local_store: LocalStore, tmp_path: Path, elsewhere: Path, request_: str
) -> None:
    link(tmp_path / "store/results/a", elsewhere)
    with fails_with("symbolic-link"):
        LINKED[request_](local_store)
    assert os.listdir(elsewhere) == ["part-0"]
    assert list(local_store.list("results/b")) == []


def test_a_link_in_place_of_a_file_is_refused_by_name(local_store: LocalStore, tmp_path: Path, elsewhere: Path) -> None:
    link(tmp_path / "store/a/part-0", elsewhere / "part-0")
    for request_ in (lambda: local_store.get("a/part-0"), lambda: list(local_store.list("a/"))):
        with fails_with("symbolic-link"):
            request_()


def swapped(local_store: LocalStore, tmp_path: Path, elsewhere: Path) -> None:
    """A folder is listed, and a link to another place when its files are deleted."""
    local_store.put("results/a/part-0", b"ours")
    keys = [each.key for each in local_store.list("results/")]
    (tmp_path / "store/results/a").rename(tmp_path / "store/results/b")
    link(tmp_path / "store/results/a", elsewhere)
    local_store.delete(keys)


def test_a_link_that_takes_a_folders_place_after_the_listing_is_not_followed(
    local_store: LocalStore, tmp_path: Path, elsewhere: Path
) -> None:
    with fails_with("symbolic-link"):
        swapped(local_store, tmp_path, elsewhere)
    assert os.listdir(elsewhere) == ["part-0"]


def test_control_followed_it_deletes_what_is_elsewhere(
    local_store: LocalStore, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_NOFOLLOW", 0)
    swapped(local_store, tmp_path, elsewhere)
    assert os.listdir(elsewhere) == []


def test_the_base_and_what_is_above_it_may_be_links(tmp_path: Path, elsewhere: Path) -> None:
    link(tmp_path / "above", tmp_path)
    link(tmp_path / "base", elsewhere)
    for base in (tmp_path / "base", tmp_path / "above/elsewhere"):
        store = LocalStore(f"file://{base}")
        assert store.base_uri == f"file://{base}"
        assert [each.key for each in store.list()] == ["part-0"]
        store.put("a/b", b"x")
        assert (elsewhere / "a/b").read_bytes() == store.get("a/b").body == b"x"
        store.delete(["a/b"])
        assert os.listdir(elsewhere) == ["part-0"]


def test_a_hidden_link_as_of_an_editor_is_no_object(local_store: LocalStore, tmp_path: Path) -> None:
    local_store.put("a/part-0", b"x")
    link(tmp_path / "store/a/.#part-0", Path("ann@host.1234"))
    assert [each.key for each in local_store.list()] == ["a/part-0"]


def test_a_folder_that_another_process_prunes_is_made_again(
    local_store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir
    pruned: list[Any] = []

    def build(name: str, *arguments: Any, **options: Any) -> None:
        mkdir(name, *arguments, **options)
        if name == "a" and len(pruned) < 3:
            pruned.append(name)
            (tmp_path / "store/a").rmdir()

    monkeypatch.setattr(os, "mkdir", build)
    local_store.put("a/b/key", b"x")
    assert (len(pruned), local_store.get("a/b/key").body) == (3, b"x")


def test_requests_leave_no_descriptor_open(local_store: LocalStore) -> None:
    def opened() -> int:
        return len(os.listdir("/dev/fd"))

    before = opened()
    for number in range(3):
        local_store.put(f"a/b/{number}/key", b"x")
    next(local_store.list())
    local_store.get("a/b/1/key")
    with pytest.raises(ObjectMissing):
        local_store.get("a/b/9/key")
    local_store.delete(["a/b/0/key", "a/c/0/key"])
    assert opened() == before
