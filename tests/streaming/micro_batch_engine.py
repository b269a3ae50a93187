"""A micro-batch engine as Spark's, in one process: what it writes and asks, in which order, and what it repeats.

It runs the real reader, the real batches of a streaming region and the real tasks over a store in memory, so that an
attempt can be killed at each of its requests. Its query removes duplicates of ids: its state is the ids that it has
seen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from airflow_recovery.errors import ObjectExists, ObjectMissing
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore, StoredObject
from airflow_recovery.streaming.source import ChannelReader


class Killed(BaseException):
    """``kill -9``."""


class MemoryStore:
    """Objects in a dict; ``kill_at``: the number of the request at which, before or after its effect, all ends."""

    def __init__(self, base_uri: str = "file:///memory") -> None:
        self.base_uri = base_uri
        self.objects: dict[str, bytes] = {}
        self.requests = 0
        self.kill_at: int | None = None
        self.kill_after = False
        self._lock = threading.RLock()

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        with self._request():
            if key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = body
        return ObjectInfo(key, len(body), "etag")

    def put(self, key: str, body: bytes) -> ObjectInfo:
        with self._request():
            self.objects[key] = body
        return ObjectInfo(key, len(body), "etag")

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        with self._request():
            if key not in self.objects:
                raise ObjectMissing(key)
            return StoredObject(ObjectInfo(key, len(self.objects[key]), "etag"), self.objects[key])

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._request():
            infos = [ObjectInfo(key, 1, "etag") for key in sorted(self.objects) if key.startswith(prefix)]
        return iter(infos)

    def delete(self, keys: Iterable[str]) -> None:
        with self._request():
            for key in keys:
                self.objects.pop(key, None)

    def _request(self) -> _Request:
        return _Request(self)


class _Request:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        store = self._store
        store._lock.acquire()
        store.requests += 1
        if store.kill_at is not None and store.requests >= store.kill_at and not store.kill_after:
            store._lock.release()
            raise Killed
        self._dies = store.kill_at is not None and store.requests >= store.kill_at

    def __exit__(self, *raised: object) -> None:
        self._store._lock.release()
        if self._dies:
            raise Killed


class Query:
    """One start of the query at a checkpoint; it runs when `start` is called, to the end of its input."""

    def __init__(self, store: ObjectStore, key: str, reader: ChannelReader, max_rows: int) -> None:
        self._store = store
        self._key = key
        self._reader = reader
        self._limit = ReadMaxRows(max_rows)
        self._batches: Callable[[Any, int], None] = lambda frame, number: None
        self.lastProgress: dict[str, Any] | None = None

    def foreachBatch(self, batches: Callable[[Any, int], None]) -> Query:
        self._batches = batches
        return self

    def start(self) -> Query:
        newest, committed = self._newest("offsets"), self._newest("commits")
        if newest > committed:
            self._execute(newest)
        number = newest + 1
        while True:
            start = self._start(number)
            if number:
                self._reader.commit(start)
            end = self._reader.latestOffset(start, self._limit)
            if end == start:
                return self
            self._store.put(f"{self._key}/offsets/{number}", json.dumps(end).encode())
            self._execute(number)
            number += 1

    def _newest(self, kind: str) -> int:
        prefix = f"{self._key}/{kind}/"
        return max((int(each.key.removeprefix(prefix)) for each in self._store.list(prefix)), default=-1)

    def _offset(self, number: int) -> Any:
        return json.loads(self._store.get(f"{self._key}/offsets/{number}").body)

    def _start(self, number: int) -> Any:
        return self._offset(number - 1) if number else self._reader.initialOffset()

    def _execute(self, number: int) -> None:
        parts = self._reader.partitions(self._start(number), self._offset(number))
        frame = Frame(self, number, parts)
        self._batches(frame, number)
        self._store.put(f"{self._key}/commits/{number}", b"v1")
        self.lastProgress = {"batchId": number, "stateOperators": [{"numRowsTotal": len(self.state(number + 1))}]}

    def state(self, version: int) -> list[int]:
        if version == 0:
            return []
        numbers: list[int] = json.loads(self._store.get(f"{self._key}/state/0/0/{version}.delta").body)
        return numbers

    def run(self, number: int, parts: Any) -> list[int]:
        """Read the batch, and bring the state to its next version: the ids that are new."""
        state = self.state(number)
        rows = [row for part in parts for each in self._reader.read(part) for row in each["id"].to_pylist()]
        fresh = sorted(set(rows) - set(state))
        self._store.put(f"{self._key}/state/0/0/{number + 1}.delta", json.dumps(sorted({*state, *rows})).encode())
        return fresh

    def awaitTermination(self, timeout: float) -> bool:
        return True

    def exception(self) -> None: ...

    def stop(self) -> None: ...


class Frame:
    """What ``foreachBatch`` is given."""

    def __init__(self, query: Query, number: int, parts: Any) -> None:
        self._query, self._number, self._parts = query, number, parts
        self._found: list[dict[str, Any]] = []
        self.write = self

    def format(self, name: str) -> Frame:
        return self

    def mode(self, name: str) -> Frame:
        return self

    def save(self) -> None:
        self._query.run(self._number, self._parts)

    def mapInArrow(self, task: Callable[[Any], Iterator[pa.RecordBatch]], schema: str) -> Frame:
        ids = self._query.run(self._number, self._parts)
        batches = [pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})] if ids else []
        self._found = [row for each in task(iter(batches)) for row in each.to_pylist()]
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self._found
