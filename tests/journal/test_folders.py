"""Folder names from keys alone."""

from __future__ import annotations

from airflow_recovery.journal.folders import folders, readable
from airflow_recovery.model.names import encode
from airflow_recovery.store import ObjectStore

NAMES = ["a", "a-b", "a.b", "a0", "a b", "z", "é"]


def test_every_folder_once_whatever_its_neighbours_are_called(store: ObjectStore) -> None:
    for name in NAMES:
        for key in ("t/1", "t/2", "x"):
            store.put(f"dag/{encode(name)}/{key}", b"1")
    store.put("dag/file", b"1")
    found = folders(store, "dag/")
    assert sorted(readable(folder) for folder in found) == sorted(NAMES)
    assert len(found) == len(NAMES)
    assert folders(store, "dag/", most=2) == found[:2]
    assert folders(store) == ["dag"]
    assert folders(store, "none/") == []


def test_a_shortened_name_stays_as_it_is() -> None:
    assert readable(encode("x" * 150)) == encode("x" * 150)
