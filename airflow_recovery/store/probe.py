"""The start-up probe: does this store keep what `ObjectStore` promises? (faults 25 and 26)"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from airflow_recovery.errors import ObjectExists, ObjectMissing, StoreError, StoreUnsuitable
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, in_key_order

WRITERS = 8
ROUNDS = ("0/0", "0-0", "1", "2")
"""The names of what is raced for. A server that lists folder by folder has the first before the second."""
PROBED = "_probe/"
RACED = f"{PROBED}raced"
"""An empty object that is written after a race in which one writer won: its age is that of the race."""
RACE_EVERY_S = 24 * 60 * 60
_ROUND_TIMEOUT_S = 30.0


def probe(store: ObjectStore, *, token: str | None = None, always_race: bool = False) -> None:
    """Try out on objects below ``_probe/`` what a store promises, and delete them.

    Returns where a second write was refused, a listing showed the object at once, reading gave the first body back,
    and of eight writers at the same instant one won, in each of four rounds, which are listed in the order of their
    names. Six requests; the race is 34 more, and is run again when the last one is a day old. In a local folder a
    seventh looks whether the case of names counts.
    ``always_race`` runs it in any case, and leaves no mark of it.

    Raises `StoreUnsuitable` with the property that is missing, or the error of a store that can't be reached.
    ``token`` names the objects (default: random).
    """
    token = token or uuid.uuid4().hex
    key = f"{PROBED}{token}"
    first, second = b"first " + key.encode(), b"second " + key.encode()
    written = [key]
    try:
        store.put_if_absent(key, first)  # of which the reply may be lost, and not the object
        _refuses_a_second_write(store, key, second)
        listed = _lists_what_was_written(store, key)
        _gives_back(store, key, first)
        if store.base_uri.startswith("file:"):
            _tells_cases_apart(store, key)
        if always_race or not _raced_lately(store, listed):
            rounds = [f"{key}-race-{name}" for name in ROUNDS]
            written += rounds
            has_raced = _lets_one_writer_win(store, rounds)
            for _ in in_key_order(store, store.list(f"{key}-race-")):
                pass
            if has_raced and not always_race:
                with suppress(StoreError):  # then the next probe races again
                    store.put(RACED, b"")
    finally:
        # A policy that forbids deletes may be meant so; a few bytes below _probe/ stay then, until a sweeper comes.
        with suppress(StoreError):
            store.delete(written)


def _refuses_a_second_write(store: ObjectStore, key: str, body: bytes) -> None:
    try:
        store.put_if_absent(key, body)
    except ObjectExists:
        return
    raise StoreUnsuitable(
        f"{store.base_uri} has no conditional writes: a PUT with 'If-None-Match: *' overwrote an object instead of "
        "being refused with 412, so two processes could both win. Use a store that has them (AWS S3, Google Cloud "
        "Storage, Azure Blob Storage, versitygw, Ceph, a local folder), or switch the feature on in the server or the "
        "proxy before it.",
        code="no-conditional-writes",
    )


def _lists_what_was_written(store: ObjectStore, key: str) -> ObjectInfo:
    listed = {info.key: info for info in store.list(key)}
    if key not in listed:
        raise StoreUnsuitable(
            f"{store.base_uri} has stale listings: an object that was just written is not listed, so what "
            "other processes write could go unseen. Use a store whose listings are strongly consistent, and no cache "
            "before it.",
            code="stale-listings",
        )
    return listed[key]


def _gives_back(store: ObjectStore, key: str, body: bytes) -> None:
    try:
        held: bytes | None = store.get(key).body
    except ObjectMissing:
        held = None
    if held != body:
        raise StoreUnsuitable(
            f"{store.base_uri} does not give back what was written: expected the first body of {key}, found "
            f"{'nothing' if held is None else 'another body'}. Use a store with read-after-write consistency, and no "
            "cache before it.",
            code="stale-reads",
        )


def _tells_cases_apart(store: ObjectStore, key: str) -> None:
    try:
        store.get(key.upper())
    except ObjectMissing:
        return
    raise StoreUnsuitable(
        f"{store.base_uri} does not tell capitals from small letters: {key!r} and {key.upper()!r} are one file there, "
        "so the objects 'A' and 'a' would be one. Use a folder of a file system that tells them apart (Linux's "
        "own do), or an S3 bucket.",
        code="no-capitals",
    )


def _raced_lately(store: ObjectStore, now: ObjectInfo) -> bool:
    """Whether a race has passed within a day before ``now``, an object that was just written: by the store's clock."""
    raced = next((info for info in store.list(RACED) if info.key == RACED), None)
    if raced is None or raced.modified_s is None or now.modified_s is None:
        return raced is not None
    return 0 <= now.modified_s - raced.modified_s < RACE_EVERY_S


def _lets_one_writer_win(store: ObjectStore, keys: Sequence[str]) -> bool:
    """Whether one did in each round; not, where requests had no answer. Raises `StoreUnsuitable` for two."""
    gate = threading.Barrier(WRITERS)

    def write(number: int) -> list[str]:
        won = []
        for key in keys:
            try:
                gate.wait(_ROUND_TIMEOUT_S)
            except threading.BrokenBarrierError:
                break  # a request of another writer takes too long, and says nothing of the store
            # Refused, or without an answer: not known to have won.
            with suppress(StoreError):
                store.put_if_absent(key, f"writer {number}".encode())
                won.append(key)
        return won

    with ThreadPoolExecutor(WRITERS, thread_name_prefix="recovery-probe") as pool:
        won = [key for keys_won in pool.map(write, range(WRITERS)) for key in keys_won]
    winners = [won.count(key) for key in keys]
    if max(winners) > 1:
        raise StoreUnsuitable(
            f"{store.base_uri} has conditional writes that are not atomic: of {WRITERS} writers who put one object at "
            f"the same time with 'If-None-Match: *', expected one to succeed, found {max(winners)}. Two processes "
            "could both win. Use a store that decides it in one step (AWS S3, versitygw, Ceph, a local folder).",
            code="conditional-writes-not-atomic",
        )
    return all(winners)
