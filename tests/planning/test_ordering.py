from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.planning.ordering import CycleFound, strongly_connected_components, topological_order


def test_producers_come_first_and_the_given_order_decides_among_equals() -> None:
    assert topological_order({"d": ["b", "c"], "c": ["a"], "b": ["a"], "a": [], "e": []}) == ["a", "c", "b", "d", "e"]


def test_a_cycle_is_named_along_the_data() -> None:
    # start -> a -> b -> c -> a
    with pytest.raises(CycleFound) as error:
        topological_order({"start": [], "a": ["start", "c"], "b": ["a"], "c": ["b"], "after": ["c"]})
    cycle = error.value.cycle
    assert cycle[0] == cycle[-1]
    assert set(itertools.pairwise(cycle)) == {("a", "b"), ("b", "c"), ("c", "a")}


def test_a_vertex_that_reads_itself_is_a_cycle() -> None:
    with pytest.raises(CycleFound, match="a -> a"):
        topological_order({"a": ["a"]})


def test_one_ring_of_100_000_nodes_is_one_component() -> None:
    size = 100_000
    components = strongly_connected_components([[(node + 1) % size] for node in range(size)])
    assert [len(component) for component in components] == [size]


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.integers(0, n - 1)), min_size=n, max_size=n)))
def test_components_are_the_nodes_that_reach_each_other(successors: list[list[int]]) -> None:
    reach = [{node} for node in range(len(successors))]
    for _ in successors:
        for node in range(len(successors)):
            for successor in successors[node]:
                reach[node] |= reach[successor]
    expected = {frozenset(b for b in reach[a] if a in reach[b]) for a in range(len(successors))}
    assert {frozenset(component) for component in strongly_connected_components(successors)} == expected
