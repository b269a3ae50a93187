from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.distribution import Wiring, wiring
from reference.logical import DistributionPattern
from reference.naive_topology import naive_links

ALL_TO_ALL, POINTWISE = DistributionPattern.ALL_TO_ALL, DistributionPattern.POINTWISE

wirings = st.builds(Wiring, st.sampled_from(DistributionPattern), st.integers(1, 12), st.integers(1, 12))


def producers_by_consumer(wired: Wiring) -> list[list[int]]:
    return [list(wired.partitions_in(wired.groups_read_by(range(i, i + 1)))) for i in range(wired.consumers)]


@pytest.mark.parametrize(
    ("producers", "consumers", "reads"),
    [
        (3, 3, [[0], [1], [2]]),
        (2, 3, [[0], [0], [1]]),
        (3, 2, [[0], [1, 2]]),
        (4, 2, [[0, 1], [2, 3]]),
        (2, 4, [[0], [0], [1], [1]]),
        (1, 3, [[0], [0], [0]]),
        (5, 1, [[0, 1, 2, 3, 4]]),
    ],
)
def test_pointwise_each_reads_its_share(producers: int, consumers: int, reads: list[list[int]]) -> None:
    assert producers_by_consumer(Wiring(POINTWISE, producers, consumers)) == reads


def test_all_to_all_is_one_group() -> None:
    wired = Wiring(ALL_TO_ALL, 10_000, 10_000)
    assert wired.groups == 1
    assert wired.partitions_in(range(1)) == range(10_000)
    assert wired.consumers_of(range(1)) == range(10_000)


def test_consumers_that_read_the_same_share_one_group() -> None:
    #   0 --> 0, 1        1 --> 2
    wired = Wiring(POINTWISE, 2, 3)
    assert [wired.groups_read_by(range(i, i + 1)) for i in range(3)] == [range(0, 1), range(0, 1), range(1, 2)]


@given(wirings)
def test_the_links_are_flinks(wired: Wiring) -> None:
    expected = naive_links(wired.pattern, wired.producers, wired.consumers)
    assert sorted(wired.links()) == sorted(expected)
    assert producers_by_consumer(wired) == [[p for p, c in expected if c == i] for i in range(wired.consumers)]


@given(wirings)
def test_groups_are_the_links_cut_into_blocks(wired: Wiring) -> None:
    from_groups = {
        (p, c)
        for g in range(wired.groups)
        for p in wired.partitions_in(range(g, g + 1))
        for c in wired.consumers_of(range(g, g + 1))
    }
    assert from_groups == set(naive_links(wired.pattern, wired.producers, wired.consumers))


@given(wirings, st.data())
def test_what_holds_of_a_range_is_what_holds_of_its_members(wired: Wiring, data: st.DataObject) -> None:
    for ask, size in (
        (wired.groups_read_by, wired.consumers),
        (wired.groups_holding, wired.producers),
        (wired.partitions_in, wired.groups),
        (wired.consumers_of, wired.groups),
    ):
        start = data.draw(st.integers(0, size))
        stop = data.draw(st.integers(start, size))
        one_by_one = {found for number in range(start, stop) for found in ask(range(number, number + 1))}
        assert set(ask(range(start, stop))) == one_by_one


def test_edges_that_are_alike_share_one_wiring() -> None:
    assert wiring(POINTWISE, 2, 3) is wiring(POINTWISE, 2, 3)
