"""What may happen to a request on its way to a store and back (faults 21 to 24), and to one that arrives late."""

from __future__ import annotations

from airflow_recovery.errors import ObjectExists, StoreTimeout
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.testing.faulty_store import SeededFaults
from airflow_recovery.testing.simulation.memory import MemoryStore

LATE_SHARE = 0.3
"""Of the conditional writes that go wrong: so many are on their way for long."""


class Network(SeededFaults):
    """The way to ``inner``. At most ``limit`` requests go wrong, with probability ``rate`` each.

    ``in_flight`` are writes whose sender has given up waiting; each arrives when `arrive` is called, or never.
    """

    def __init__(self, inner: MemoryStore, seed: int, *, rate: float, limit: int) -> None:
        super().__init__(inner, seed, rate=rate, limit=limit)
        self._memory = inner
        self.in_flight: list[tuple[str, bytes]] = []

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """A conditional write: as `SeededFaults`, or it is given up, and arrives later."""
        if self._left and self._rng.random() < self._rate * LATE_SHARE:
            self._left -= 1
            self.in_flight.append((key, body))
            raise StoreTimeout(f"PUT {key}: no answer; the request is on its way (injected)")
        return super().put_if_absent(key, body)

    def arrive(self, at: int) -> str:
        """One of the writes in flight arrives. Returns its key."""
        key, body = self.in_flight.pop(at)
        try:
            self._memory.put_if_absent(key, body)
        except ObjectExists:
            return f"{key}, refused"
        return key
