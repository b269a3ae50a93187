from __future__ import annotations

from types import SimpleNamespace

import pytest
from clocked import Clock, ClockedStore
from fakes import InlineThread
from split_world import SplitWorld, splits

from airflow_recovery.attempt import attempt


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> SplitWorld:
    """S, with the splits a to f, before its reader C. What an attempt does in the background is done in order."""
    monkeypatch.setattr(attempt, "threading", SimpleNamespace(Thread=InlineThread))
    world = SplitWorld({"S": (), "C": ("S",)}, splits("abcdef"))
    world.journal_store = ClockedStore("memory://journal", clock)
    world.results = ClockedStore("memory://results", clock)
    return world
