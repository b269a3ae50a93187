"""What a plan costs grows with the regions and the edges: counted in calls, not in seconds, on shapes that spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from counted_calls import calls_of

from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.planning.coordinators import VertexRestarts
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.reason import Reason
from airflow_recovery.planning.restart_set import RestartSet
from benchmarks.plan_cases import Case, ladder, volatile_vertex

SHAPES = {"ladder": ladder, "volatile vertex": volatile_vertex}
SIZE = 100


def growth(make: Callable[[int], Case]) -> float:
    """By how much more work a plan of eight times as many regions is, a region."""
    return calls_of(make(8 * SIZE).plan) / calls_of(make(SIZE).plan) / 8


@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
def test_a_region_of_a_large_plan_costs_what_one_of_a_small_plan_costs(make: Callable[[int], Case]) -> None:
    assert growth(make) < 1.1


@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
def test_all_that_the_shape_drags_in_runs_and_each_result_is_asked_for_once(make: Callable[[int], Case]) -> None:
    case = make(SIZE)
    asked: Counter[tuple[str, str]] = Counter()

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        asked[region, result] += 1
        return case.available(region, attempt, result)

    found = plan(case.topology, case.state, available, case.request)
    assert len(found.running) == len(case.topology.regions)
    assert max(asked.values(), default=1) == 1


@pytest.mark.slow
def test_control_where_each_subtask_looks_at_all_the_others_the_cost_is_quadratic(monkeypatch) -> None:
    take_along, add = RestartSet._take_siblings_along, RestartSet._add

    def one_by_one(self: RestartSet, node: str) -> None:
        for name in self._edges.members(node) or (node,):
            add(self, name)

    def forgets(self: RestartSet, name: str) -> None:
        self._restarted_vertices.clear()
        self._vertices = VertexRestarts(self._topology, self._evaluation.state)
        take_along(self, name)

    monkeypatch.setattr(RestartSet, "_take_siblings_along", forgets)
    monkeypatch.setattr(RestartSet, "_add", one_by_one)
    assert growth(volatile_vertex) > 2
