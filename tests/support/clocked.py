"""A store with a clock that stands still, and a world whose journal and results lie in two of them."""

from __future__ import annotations

from collections.abc import Mapping

from fakes import MemoryStore, World

from airflow_recovery.model.retention import Retention
from airflow_recovery.results.sweep import Sweeper
from airflow_recovery.results.sweep_report import SweepReport
from airflow_recovery.results.swept_run import SweepOptions
from airflow_recovery.store.object_store import ObjectInfo

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


class Clock:
    """The stores' time. A worker's own clock is nowhere asked."""

    def __init__(self) -> None:
        self.now_s = 1_000_000_000.0

    def passes(self, seconds: float) -> None:
        self.now_s += seconds


class ClockedStore(MemoryStore):
    """Objects with the time at which they were stored."""

    def __init__(self, base_uri: str, clock: Clock) -> None:
        super().__init__(base_uri)
        self.clock = clock
        self.stored_s: dict[str, float] = {}

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        super().put_if_absent(key, body)
        return self._stamped(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        super().put(key, body)
        return self._stamped(key, body)

    def _stamped(self, key: str, body: bytes) -> ObjectInfo:
        self.stored_s[key] = self.clock.now_s
        return self._info(key, body)

    def _info(self, key: str, body: bytes) -> ObjectInfo:
        info = super()._info(key, body)
        return info._replace(modified_s=self.stored_s.get(key, self.clock.now_s))


def clocked_world(upstream: Mapping[str, tuple[str, ...]], clock: Clock, **options: object) -> World:
    world = World(upstream, **options)  # type: ignore[arg-type]
    world.journal_store = ClockedStore("memory://journal", clock)
    world.results = ClockedStore("memory://results", clock)
    return world


def sweep(world: World, **options: object) -> SweepReport:
    """One `airflow recovery gc` over a world's stores."""
    given = {"retention": Retention.keep(), **options}
    return Sweeper(world.journal_store, world.results, SweepOptions(**given)).sweep()  # type: ignore[arg-type]


def told(report: SweepReport) -> dict[str, str]:
    """Entries as ``P@1`` -> ``deleted: why``; other entries by their whole name."""
    return {entry.what.rpartition(" / ")[2]: f"{entry.action.value}: {entry.why}" for entry in report.entries}


def has_data(world: World, region: str, attempt: int) -> bool:
    return bool(list(world.results.list(world.journal().layout.data_of_number(region, attempt))))
