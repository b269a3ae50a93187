"""Stores that misbehave on purpose, and a store that counts: faults by script or by seed (faults 21 to 27).

They wrap any store, so that the real code runs above and the real server below.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import ObjectExists, StoreAccessDenied, StoreError, StoreTimeout, StoreUnavailable
from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.object_store import PAGE_KEYS, ObjectInfo, ObjectStore


class Verb(str, Enum):
    """The kinds of request, named as S3 names them. A conditional and a plain write are told apart."""

    PUT_IF_ABSENT = "PUT_IF_ABSENT"
    PUT = "PUT"
    GET = "GET"
    LIST = "LIST"
    DELETE = "DELETE"


class FaultKind(Enum):
    """What the caller sees, and whether the request has had its effect by then."""

    TIMEOUT = "time-out; the request never arrived"
    CONFLICT = "409; no effect"
    SLOW_DOWN = "503; no effect"
    DENIED = "403; no effect"
    LOST_REPLY = "time-out; the request had its effect"
    LOST_REPLY_THEN_RETRIED = "the SDK lost the reply and sent the request again: a conditional write hears 412"

    @property
    def has_effect(self) -> bool:
        """Whether the store below sees the request."""
        return self in (FaultKind.LOST_REPLY, FaultKind.LOST_REPLY_THEN_RETRIED)

    def error(self, verb: Verb, key: str) -> StoreError:
        """The error that this fault raises for a request."""
        text = f"{verb.value} {key}: {self.value} (injected)"
        if self in (FaultKind.CONFLICT, FaultKind.SLOW_DOWN):
            return StoreUnavailable(text)
        if self is FaultKind.DENIED:
            return StoreAccessDenied(text)
        if self is FaultKind.LOST_REPLY_THEN_RETRIED and verb is Verb.PUT_IF_ABSENT:
            return ObjectExists(text)
        return StoreTimeout(text)


@dataclass(frozen=True)
class Fault:
    """``kind`` happens to the next ``times`` requests of ``verb`` whose key contains ``key``, after ``skip`` of them.

    ``times`` of `None` is for ever. A deletion has the keys of its batch, joined by spaces, as key.
    """

    verb: Verb
    kind: FaultKind
    key: str = ""
    times: int | None = 1
    skip: int = 0


class FaultyStore(DelegatingStore):
    """``inner`` with scripted faults. The first fault of the script that fits a request and is not used up happens.

    ``ignores_if_none_match``: conditional writes overwrite (fault 25). ``hides_from_lists``: keys that contain this
    are never listed (fault 26).
    """

    def __init__(
        self,
        inner: ObjectStore,
        faults: Iterable[Fault] = (),
        *,
        ignores_if_none_match: bool = False,
        hides_from_lists: str | None = None,
    ) -> None:
        super().__init__(inner)
        self.ignores_if_none_match = ignores_if_none_match
        self.hides_from_lists = hides_from_lists
        self._faults = list(faults)
        self._seen = [0] * len(self._faults)
        self._lock = threading.Lock()

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """A conditional write, or, with ``ignores_if_none_match``, one that overwrites."""
        if not self.ignores_if_none_match:
            return super().put_if_absent(key, body)
        with self._around("put_if_absent", key):
            return self.inner.put(key, body)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """A listing, with faults of its first request, and without what it hides."""
        for info in super().list(prefix, start_after=start_after):
            if self.hides_from_lists is None or self.hides_from_lists not in info.key:
                yield info

    @contextmanager
    def _around(self, request: str, key: str) -> Iterator[None]:
        verb = Verb(request.upper())
        kind = self._next(verb, key)
        if kind is not None and not kind.has_effect:
            raise kind.error(verb, key)
        yield
        if kind is not None:
            raise kind.error(verb, key)

    def _next(self, verb: Verb, key: str) -> FaultKind | None:
        with self._lock:
            happens: FaultKind | None = None
            for at, fault in enumerate(self._faults):
                if fault.verb is not verb or fault.key not in key:
                    continue
                seen = self._seen[at]
                in_reach = seen >= fault.skip and (fault.times is None or seen < fault.skip + fault.times)
                if in_reach and happens is not None:
                    continue  # this one waits for a request of its own
                self._seen[at] += 1
                if in_reach:
                    happens = fault.kind
            return happens


class SeededFaults(FaultyStore):
    """``inner`` where each request fails with probability ``rate``, in a way drawn from ``seed``.

    After ``limit`` faults nothing fails any more (promise 5: when faults stop, work finishes). No access is denied.
    """

    def __init__(self, inner: ObjectStore, seed: int, *, rate: float = 0.3, limit: int = 1000) -> None:
        super().__init__(inner)
        self._rng = random.Random(seed)
        self._rate = rate
        self._left = limit

    def _next(self, verb: Verb, key: str) -> FaultKind | None:
        with self._lock:
            if self._left == 0 or self._rng.random() >= self._rate:
                return None
            self._left -= 1
            return self._rng.choice([kind for kind in FaultKind if kind is not FaultKind.DENIED])


class CountingStore(DelegatingStore):
    """``inner``, and the requests that S3 would have seen: ``requests`` as (verb, key or prefix), in order.

    A listing counts once a page of 1000 that was asked for, a deletion once a batch of 1000.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.requests: list[tuple[Verb, str]] = []
        self._lock = threading.Lock()

    def count(self, verb: Verb, key: str = "") -> int:
        """Requests of ``verb`` whose key contains ``key``."""
        with self._lock:
            return sum(1 for requested, where in self.requests if requested is verb and key in where)

    def counts(self) -> dict[Verb, int]:
        """Requests by verb; verbs without any are left out."""
        with self._lock:
            return dict(Counter(verb for verb, _ in self.requests))

    def clear(self) -> None:
        """Forget all counts."""
        with self._lock:
            self.requests.clear()

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """A listing, counted by the page."""
        self._count(Verb.LIST, prefix)
        for at, info in enumerate(self.inner.list(prefix, start_after=start_after)):
            if at and at % PAGE_KEYS == 0:
                self._count(Verb.LIST, prefix)
            yield info

    def delete(self, keys: Iterable[str]) -> None:
        """A deletion, counted by the batch."""
        batch = [*keys]
        for start in range(0, len(batch), PAGE_KEYS):
            self._count(Verb.DELETE, " ".join(batch[start : start + PAGE_KEYS]))
        self.inner.delete(batch)

    @contextmanager
    def _around(self, request: str, key: str) -> Iterator[None]:
        self._count(Verb(request.upper()), key)
        yield

    def _count(self, verb: Verb, key: str) -> None:
        with self._lock:
            self.requests.append((verb, key))
