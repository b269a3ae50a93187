from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.planning import pipelined_regions
from airflow_recovery.planning.pipelined_regions import region_numbers

PIPELINED, BLOCKING = True, False
Inputs = dict[int, list[tuple[int, bool]]]


def regions_of(inputs: Inputs) -> tuple[tuple[int, ...], ...]:
    """Nodes in the order of the mapping, which must be topological; each region as a tuple of its nodes."""
    number = {node: at for at, node in enumerate(inputs)}
    links = [(number[producer], number[node], kind) for node, read in inputs.items() for producer, kind in read]
    numbers = region_numbers(
        len(inputs), [(a, b) for a, b, kind in links if kind is PIPELINED], [(a, b) for a, b, kind in links if not kind]
    )
    members: dict[int, list[int]] = {}
    for node, region in zip(inputs, numbers, strict=True):
        members.setdefault(region, []).append(node)
    return tuple(tuple(members[region]) for region in range(len(members)))


def test_a_blocking_result_cuts_and_a_pipelined_one_glues() -> None:
    # 1 ~> 2 -> 3 ~> 4      ~> pipelined, -> blocking
    assert regions_of({1: [], 2: [(1, PIPELINED)], 3: [(2, BLOCKING)], 4: [(3, PIPELINED)]}) == ((1, 2), (3, 4))


def test_a_diamond_that_would_wait_for_itself_is_one_region() -> None:
    #      ,~> 3 ~.
    #    1         ~> 4
    #      `-> 2 -'          {1,3,4} waits for {2}, and {2} for {1,3,4}
    inputs: Inputs = {1: [], 2: [(1, BLOCKING)], 3: [(1, PIPELINED)], 4: [(3, PIPELINED), (2, BLOCKING)]}
    assert regions_of(inputs) == ((1, 2, 3, 4),)


def test_without_merging_cycles_two_regions_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # The control of the test above.
    inputs: Inputs = {1: [], 2: [(1, BLOCKING)], 3: [(1, PIPELINED)], 4: [(3, PIPELINED), (2, BLOCKING)]}
    monkeypatch.setattr(pipelined_regions, "_without_cycles", lambda raw, _: raw)
    assert regions_of(inputs) == ((1, 3, 4), (2,))


def test_a_diamond_of_blocking_results_is_four_regions() -> None:
    inputs: Inputs = {1: [], 2: [(1, BLOCKING)], 3: [(1, BLOCKING)], 4: [(2, BLOCKING), (3, BLOCKING)]}
    assert regions_of(inputs) == ((1,), (2,), (3,), (4,))


def test_regions_come_in_topological_order_even_if_their_first_nodes_do_not() -> None:
    # 0 ~> 2 and 1 -> 2: {0, 2} begins earlier, but reads {1}.
    assert regions_of({0: [], 1: [], 2: [(0, PIPELINED), (1, BLOCKING)]}) == ((1,), (0, 2))


def test_a_chain_of_waiting_regions_closes_into_one() -> None:
    # Region i holds i ~> i+size; node i+size also reads node i-1 of the region before, and the first of the last.
    size = 500
    inputs: Inputs = {node: [] for node in range(size)}
    for node in range(size):
        inputs[node + size] = [(node, PIPELINED), ((node - 1) % size, BLOCKING)]
    assert len(regions_of(inputs)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("must_run_together", "count"), [(PIPELINED, 1), (BLOCKING, 100_000)])
def test_a_chain_of_100_000_nodes(must_run_together: bool, count: int) -> None:
    size = 100_000
    regions = regions_of({node: [(node - 1, must_run_together)] if node else [] for node in range(size)})
    assert len(regions) == count
    assert [node for region in regions for node in region] == list(range(size))


@pytest.mark.parametrize("must_run_together", [PIPELINED, BLOCKING])
def test_a_ring_of_100_000_nodes_is_one_region(must_run_together: bool) -> None:
    size = 100_000
    ring = [(node, (node + 1) % size) for node in range(size)]
    numbers = region_numbers(size, ring, []) if must_run_together else region_numbers(size, [], ring)
    assert set(numbers) == {0}


def test_a_bushy_union_of_100_000_nodes_is_not_quadratic() -> None:
    # Sources first, then a binary tree of joins: merging always meets two sets of equal size.
    leaves = 50_000
    glued = [(2 * (node - leaves) + side, node) for node in range(leaves, 2 * leaves - 1) for side in (0, 1)]
    assert set(region_numbers(2 * leaves - 1, glued, [])) == {0}


def test_no_nodes_are_no_regions() -> None:
    assert list(region_numbers(0, [], [])) == []


@st.composite
def graphs(draw: st.DrawFn) -> Inputs:
    size = draw(st.integers(1, 9))
    return {
        node: [
            (producer, draw(st.booleans()))
            for producer in (draw(st.lists(st.integers(0, node - 1), unique=True)) if node else [])
        ]
        for node in range(size)
    }


def naive_regions(inputs: Inputs) -> set[frozenset[int]]:
    """Two nodes share a region iff each leads to the other, where a pipelined result leads both ways."""
    reach = {node: {node} for node in inputs}
    for _ in inputs:
        for node, producers in inputs.items():
            for producer, glued in producers:
                reach[producer] |= reach[node]
                if glued:
                    reach[node] |= reach[producer]
    return {frozenset(b for b in reach[a] if a in reach[b]) for a in inputs}


@given(graphs())
def test_regions_agree_with_a_naive_oracle(inputs: Inputs) -> None:
    regions = regions_of(inputs)
    assert {frozenset(region) for region in regions} == naive_regions(inputs)
    position = {node: index for index, region in enumerate(regions) for node in region}
    assert all(position[producer] <= position[node] for node in inputs for producer, _ in inputs[node])
    assert all(list(region) == sorted(region) for region in regions)


@given(graphs(), st.integers())
def test_the_order_of_inputs_does_not_matter(inputs: Inputs, seed: int) -> None:
    shuffled = {node: random.Random(seed).sample(producers, len(producers)) for node, producers in inputs.items()}
    assert regions_of(shuffled) == regions_of(inputs)
