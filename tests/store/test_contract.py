"""What every object store must do: a directory, moto and versitygw pass the same tests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_recovery.errors import ObjectExists, ObjectMissing
from airflow_recovery.model.names import encode
from airflow_recovery.store import ObjectStore, get_many, probe
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import RangeStore, VersionStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing.patience import HANG_S


def keys_of(store: ObjectStore, prefix: str = "", **options: str) -> list[str]:
    return [each.key for each in store.list(prefix, **options)]


def test_what_was_written_is_read_and_listed_with_one_identity(store: ObjectStore) -> None:
    written = store.put_if_absent("t/a/00000001.claim", b"body")
    found = store.get("t/a/00000001.claim")
    [listed] = store.list("t/")
    assert found.body == b"body"
    assert {(each.key, each.size, each.etag) for each in (written, found.info, listed)} == {
        ("t/a/00000001.claim", 4, written.etag)
    }
    assert '"' not in written.etag
    assert listed.modified_s is not None


def test_an_object_that_was_replaced_has_another_version(store: ObjectStore) -> None:
    if isinstance(store, LocalStore):
        # Code on this machine is known by its inode and times.
        assert not isinstance(store, VersionStore)
        return
    assert isinstance(store, VersionStore)
    store.put("v/a", b"one")
    version, body = store.read_version("v/a", 3)
    assert (body, version.info.size, store.version("v/a")) == (b"one", 3, version)
    assert store.read_version("v/a", 2) == (version, None)
    store.put("v/a", b"two")
    assert store.version("v/a") != version
    for ask in (store.version, lambda key: store.read_version(key, 9)):
        with pytest.raises(ObjectMissing):
            ask("v/b")


def test_a_part_of_an_object_is_read_and_the_end_cuts_it_short(store: ObjectStore) -> None:
    store.put("r/a", b"0123456789")
    assert isinstance(store, RangeStore)
    assert [store.get_range("r/a", *part) for part in ((0, 4), (4, 100), (9, 1))] == [b"0123", b"456789", b"9"]
    with pytest.raises(ObjectMissing):
        store.get_range("r/b", 0, 1)


def test_the_etag_follows_the_content(store: ObjectStore) -> None:
    first = store.put("h/a", b"one")
    second = store.put("h/a", b"two")
    assert first.etag != second.etag
    assert store.get("h/a").body == b"two"
    [listed] = store.list("h/")
    assert listed.etag == second.etag


def test_a_second_conditional_write_is_refused_and_changes_nothing(store: ObjectStore) -> None:
    store.put_if_absent("claim", b"first")
    with pytest.raises(ObjectExists):
        store.put_if_absent("claim", b"second")
    assert store.get("claim").body == b"first"


def test_eight_writers_of_one_key_have_exactly_one_winner(store: ObjectStore) -> None:
    gate = threading.Barrier(8)

    def write(key: str, writer: int) -> bool:
        gate.wait(HANG_S)
        try:
            store.put_if_absent(key, b"%d" % writer)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        for race in range(5):
            key = f"race/{race}"
            won = list(pool.map(write, [key] * 8, range(8)))
            assert sum(won) == 1
            assert store.get(key).body == b"%d" % won.index(True)


def test_a_missing_object_is_missing_and_an_empty_one_is_not(store: ObjectStore) -> None:
    store.put_if_absent("empty", b"")
    assert store.get("empty").body == b""
    assert [each.size for each in store.list("empty")] == [0]
    for key in ("emp", "empty2", "no/such/key"):
        with pytest.raises(ObjectMissing):
            store.get(key)


def test_an_empty_store_lists_nothing(store: ObjectStore) -> None:
    assert keys_of(store) == []
    assert keys_of(store, "some/prefix") == []


def test_listings_are_in_key_order_and_by_prefix(store: ObjectStore) -> None:
    keys = ["a", "ab/c", "b-c/d", "b.c", "b/c", "b/c2/d", "b0"]
    for key in reversed(keys):
        store.put_if_absent(key, b"x")
    assert keys_of(store) == keys
    assert keys_of(store, "b") == ["b-c/d", "b.c", "b/c", "b/c2/d", "b0"]
    assert keys_of(store, "b/") == ["b/c", "b/c2/d"]
    assert keys_of(store, "b/c") == ["b/c", "b/c2/d"]
    assert keys_of(store, "b/c2/") == ["b/c2/d"]
    assert keys_of(store, start_after="b.c") == ["b/c", "b/c2/d", "b0"]
    assert keys_of(store, "b/", start_after="b/c") == ["b/c2/d"]


def test_a_listing_goes_on_over_pages(store: ObjectStore) -> None:
    keys = [f"many/{number:05d}" for number in range(1005)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), keys))
    assert keys_of(store, "many/") == keys
    store.delete(keys)
    assert keys_of(store, "many/") == []


def test_deleting_is_quiet_about_what_is_not_there(store: ObjectStore) -> None:
    store.put_if_absent("a/b", b"x")
    store.put_if_absent("a/c", b"x")
    store.delete(["a/b", "a/never", "nor/this"])
    store.delete([])
    assert keys_of(store) == ["a/c"]
    store.delete(["a/c"])
    assert keys_of(store) == []
    assert store.put_if_absent("a/b", b"again").size == 5


def test_many_reads_at_once(store: ObjectStore) -> None:
    for number in range(20):
        store.put(f"k/{number}", b"%d" % number)
    many = get_many(store, {f"k/{number}": None for number in range(20)}, connections=4)
    assert {key: each.body for key, each in many.items()} == {f"k/{n}": b"%d" % n for n in range(20)}
    assert get_many(store, []) == {}
    with pytest.raises(ObjectMissing):
        get_many(store, ["k/1", "k/none"])


@pytest.mark.parametrize("key", ["../escape", "/absolute", "a//b", ""])
def test_keys_that_leave_the_base_are_refused(store: ObjectStore, key: str) -> None:
    for use in (store.get, lambda key: store.put(key, b""), lambda key: store.put_if_absent(key, b"")):
        with pytest.raises(ValueError, match="below the base"):
            use(key)
    # A bucket of S3 has keys with empty parts, if others write them.
    if not isinstance(store, S3Store) or key in ("../escape", ""):
        with pytest.raises(ValueError, match="below the base"):
            store.delete([key])


@pytest.mark.parametrize("name", ["a/b", "..", "%2F", "größe 日本 🙂", "x=1", "a:b", "é" * 250, "#?&+ *[{"])
def test_fault_45_any_id_can_be_a_part_of_a_key(store: ObjectStore, name: str) -> None:
    key = f"t/{encode(name)}/00000001.claim"
    store.put_if_absent(key, name.encode())
    assert store.get(key).body == name.encode()
    assert keys_of(store, f"t/{encode(name)}/") == [key]


def test_the_probe_passes_and_leaves_the_mark_of_its_race(store: ObjectStore) -> None:
    probe(store)
    assert keys_of(store) == ["_probe/raced"]
