"""The PUT rule (docs/protocol.md#put-rule): how a write-once object is written over a network that may lose the answer.

412: read the object; it is mine (an earlier PUT of this process landed), or somebody else was first. Conflict, failure
inside, time-out, no room: repeat *the same PUT* until one of the two definite answers. Reading "not there" after a
time-out proves nothing, since the request may still land; so an unknown outcome is never taken for success, nor for
failure.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_recovery.errors import (
    AttemptLost,
    ObjectExists,
    ObjectMissing,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from airflow_recovery.storage.backoff import DEFAULT_BACKOFF, Backoff
from airflow_recovery.storage.object_store import ObjectInfo, ObjectStore


class WriteLost(AttemptLost):
    """The key holds somebody else's object, whose bytes are in ``found``."""

    def __init__(self, message: str, found: bytes) -> None:
        super().__init__(message)
        self.found = found


@dataclass(frozen=True)
class Written:
    """``created``: this call's own PUT was answered with success. Else the object was found to be ours already."""

    info: ObjectInfo
    created: bool


def write_once(
    store: ObjectStore,
    key: str,
    body: bytes,
    *,
    is_mine: Callable[[bytes], bool],
    deadline_s: float = 300.0,
    backoff: Backoff = DEFAULT_BACKOFF,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    rng: random.Random | None = None,
) -> Written:
    """Create ``key`` with ``body``, or find out for certain that it is there.

    ``is_mine`` judges the bytes of an object that was there before. Raises `WriteLost` where they are not ours,
    `StoreAccessDenied` at once, and the last `StoreTimeout`, `StoreUnavailable` or `StoreFull` when no pause fits into
    ``deadline_s`` any more; the outcome is unknown then. There is always at least one PUT.
    """
    rng = rng or random.Random()
    start = clock()
    failures = 0
    while True:
        try:
            return _attempt(store, key, body, is_mine)
        except (StoreTimeout, StoreUnavailable, StoreFull) as error:
            failures += 1
            pause_s = backoff.pause_s(failures, rng)
            spent_s = clock() - start
            if spent_s + pause_s > deadline_s:
                raise _gave_up(error, f"{store.base_uri}/{key}", failures, spent_s) from error
        sleep(pause_s)


def _attempt(store: ObjectStore, key: str, body: bytes, is_mine: Callable[[bytes], bool]) -> Written:
    try:
        return Written(store.put_if_absent(key, body), created=True)
    except ObjectExists as error:
        try:
            found = store.get(key)
        except ObjectMissing:
            raise StoreUnavailable(
                f"{store.base_uri}/{key}: the conditional write says the object exists, reading says it does not."
            ) from error
        if is_mine(found.body):
            return Written(found.info, created=False)
        raise WriteLost(
            f"{store.base_uri}/{key} was written by another process first. Nothing was overwritten; this process must "
            "stop and let the next try judge again.",
            found.body,
        ) from None


def _gave_up(error: StoreError, uri: str, failures: int, spent_s: float) -> StoreError:
    return type(error)(
        f"Gave up writing {uri} after {failures} requests in {spent_s:.1f} s; whether it was written is unknown. "
        f"The last answer: {error}"
    )
