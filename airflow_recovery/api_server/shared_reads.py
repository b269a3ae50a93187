"""Answer equal requests that arrive at the same time with one reading, and cache the documents of runs.

Each request is authorised before it gets here. A request that waits for the reading of another request holds no place
and no thread. A reading goes on if the client that started it disconnects. An error goes to all requests that wait for
the reading; it is not cached.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from airflow_recovery.api_server.places import NoPlace, Who
from airflow_recovery.api_server.store_routes import carried_out

_PAUSES = 3.0
_SHORT_S = 0.03


class _Reading:
    began: int | None = None
    worked_s = 0.0
    task: asyncio.Task[Any]


class SharedReads:
    """The readings that are running, by key.

    If a reading has used more processor time in this process than `_SHORT_S`, the next reading with its key starts
    after a pause of `_PAUSES` times as long. So readings of one key take at most a quarter of the interpreter's time.
    """

    def __init__(self) -> None:
        self._readings: dict[Hashable, _Reading] = {}
        self._not_before: dict[Hashable, float] = {}
        self._moments = itertools.count()

    async def answer(
        self, who: Who, key: Hashable, work: Callable[[], Any], finish: Callable[[Any], Any] = lambda found: found
    ) -> Any:
        """Return ``finish(work())``, called for this request or for an equal request.

        The reading always starts after this request has arrived, so a program that has changed a run sees the change. A
        request that arrives while a reading runs waits for the next one, which all waiting requests share.
        """
        asked = next(self._moments)
        is_refused = False
        key = (asyncio.get_running_loop(), key)
        while True:
            reading = self._readings.get(key)
            is_own = reading is None
            if reading is None:
                reading = self._begin(who, key, work, finish)
            elif reading.began is not None and reading.began < asked:
                await asyncio.wait([reading.task])
                continue
            try:
                return await asyncio.shield(reading.task)
            except NoPlace:
                # The user of the other request may have used up his places. Try once in the name of this user.
                if is_own or is_refused:
                    raise
                is_refused = True

    def _begin(self, who: Who, key: Hashable, work: Callable[[], Any], finish: Callable[[Any], Any]) -> _Reading:
        reading = _Reading()

        def begin() -> Any:
            reading.began = next(self._moments)
            begun = time.thread_time()
            try:
                return work()
            finally:
                reading.worked_s = time.thread_time() - begun

        async def read() -> Any:
            now = time.monotonic()
            await asyncio.sleep(self._not_before.pop(key, now) - now)
            try:
                return finish(await carried_out(who, begin))
            finally:
                self._pause(key, reading.worked_s)

        def end(task: asyncio.Task[Any]) -> None:
            del self._readings[key]
            if not task.cancelled():
                task.exception()  # all clients may have disconnected

        reading.task = asyncio.ensure_future(read())
        reading.task.add_done_callback(end)
        self._readings[key] = reading
        return reading

    def _pause(self, key: Hashable, worked_s: float) -> None:
        now = time.monotonic()
        self._not_before = {each: moment for each, moment in self._not_before.items() if moment > now}
        if worked_s > _SHORT_S:
            self._not_before[key] = now + _PAUSES * worked_s


class KeptDocuments:
    """A cache of documents of runs, with their versions, limited in bytes. Safe for threads."""

    def __init__(self, most_bytes: int = 16 * 1024 * 1024) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Hashable, tuple[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> tuple[str, bytes] | None:
        """Return the version and the document of a run."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Hashable, version: str, document: bytes) -> None:
        """Add a document. Remove the documents that were not used for the longest time, until the rest fits."""
        with self._lock:
            _, before = self._kept.pop(key, ("", b""))
            self._bytes += len(document) - len(before)
            self._kept[key] = (version, document)
            while self._bytes > self._most_bytes:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= len(gone)


shared_reads = SharedReads()
kept_documents = KeptDocuments()
