"""A plan is applied while regions are at work: whoever is not concerned works on.

A --> B          C
"""

from __future__ import annotations

import pytest
from fakes import World

from airflow_recovery.attempt.apply_plan import AppliedPlan, apply_plan
from airflow_recovery.errors import NotMine
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.scenario import RestartRegion
from airflow_recovery.results.prober import ResultProber

TWO = {"A": (), "B": ("A",), "C": ()}


def applied_while_b_reads(world: World, restarted: str) -> AppliedPlan:
    """``restarted`` is restarted while B, with A's result in its hands, is at work; the run then goes to its end."""
    found: list[AppliedPlan] = []

    def restart() -> None:
        planned = plan(
            world.plan, world.state(), ResultProber(lambda location: world.results), RestartRegion(restarted)
        )
        assert "B" in planned.running, "it runs, with or without the restart"
        found.append(apply_plan(world.journal(), planned, "ann"))
        for each in found[0].clear:
            world.airflow.clear(each)

    world.go_all("AC")
    world.go("B", on_read=restart)
    world.until_green()
    return found[0]


def test_what_runs_by_itself_is_not_cleared():
    world = World(TWO)
    assert applied_while_b_reads(world, "C") == AppliedPlan((InputRef("C", 1),), clear=("C",), at_work=("B",))
    assert sorted(world.ran) == [("A", 1), ("B", 1), ("C", 1), ("C", 2)]


def test_what_runs_on_something_that_is_restarted_is_cleared():
    world = World(TWO)
    with pytest.raises(NotMine):
        applied_while_b_reads(world, "A")
    world.until_green()
    assert sorted(world.ran) == [("A", 1), ("A", 2), ("B", 1), ("B", 2), ("C", 1)]
