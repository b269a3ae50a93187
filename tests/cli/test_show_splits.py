"""What ``show`` says of a region that commits split by split."""

from __future__ import annotations

from fakes import Process
from split_world import SOURCE, SplitWorld, splits

from airflow_recovery.journal.journal import Journal

RUN = ("flights", "2026-01-01")


def test_how_many_splits_each_attempt_has_done(recorded):
    stores = recorded.world()

    class RecordedSplits(SplitWorld):
        def journal(self, process: Process | None = None, writer: str = "test") -> Journal:
            return super().journal(process, writer).beside(stores.identity)

    world = RecordedSplits({"S": (), "C": ("S",)}, splits("abcdef"))
    world.journal_store, world.results = stores.journal_store, stores.results
    world.dies_at_batch(3)
    assert "@1 OPEN: 3 splits done" in recorded.call("show", *RUN)[1]
    world.dies_at_batch(1)
    said = recorded.call("show", *RUN)[1]
    assert "@1 FENCED: 3 splits done; " in said
    assert "@2 OPEN: 1 splits done, 3 taken over" in said
    world.go(SOURCE)
    assert "@3 FINISHED: 6 of 6 splits done, 4 of them by earlier attempts" in recorded.call("show", *RUN)[1]
