"""Journals of whole runs, written by the real protocol code (`tests/support/fakes.py`)."""

from __future__ import annotations

import fakes
import pytest
from spoiled_journal import Spoiled

from airflow_recovery.errors import Failure, RegionFailed
from airflow_recovery.model.determinism import Determinism


def fail() -> None:
    raise RegionFailed("boom", Failure("ValueError", "boom"))


@pytest.fixture
def running() -> Spoiled:
    """P@1 failed, P@2 was lost, P@3; C@1 was reset, C@2; D@1; E@1, which nobody has published yet.

    P --+--> C --+--> E
        +--> D --+            P's rows are digested
    """
    world = fakes.World(fakes.DIAMOND, modes={"P": Determinism.VERIFY})
    with pytest.raises(RegionFailed):
        world.go("P", on_start=fail)
    world.go("P")
    world.delete_results("P", 2)
    with pytest.raises(Exception, match="can't run before P has"):
        world.go("C")
    world.go_all("PC")
    world.restart("C")
    world.go_all("CDE")
    return Spoiled(world)


@pytest.fixture
def published(running: Spoiled) -> Spoiled:
    """The same, published."""
    running.world.publish()
    return running
