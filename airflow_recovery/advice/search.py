"""The cheapest set of cuts: exact for few boundaries, else a local search (docs/advise.md#search)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from airflow_recovery.advice.costs import Expected, Pipeline

MOST_TRIED = 10
"""Of so many boundaries every set of cuts is tried."""
MOST_IN_PAIRS = 40
"""With at most so many boundaries, the local search also changes two of them at a time."""


@dataclass(frozen=True)
class Best:
    """The cheapest ``cuts`` found. ``is_exact``: there are none cheaper. ``how``: how they were found, in words."""

    cuts: frozenset[str]
    expected: Expected
    is_exact: bool
    how: str


def best_cuts(pipeline: Pipeline) -> Best:
    """The cuts with the least expected seconds; of equal ones those of now."""
    if len(pipeline.free) <= MOST_TRIED:
        cuts, is_exact, how = every_set(pipeline), True, f"exact, all {2 ** len(pipeline.free):,} sets of cuts"
    else:
        cuts, is_exact, how = local_search(pipeline), False, "a local search: not proved to be the best"
    now = pipeline.as_it_is
    expected, before = pipeline.expected(cuts), pipeline.expected(now)
    if before.total_s <= expected.total_s * (1 + 1e-9):
        cuts, expected = now, before
    return Best(cuts, expected, is_exact, how)


def every_set(pipeline: Pipeline) -> frozenset[str]:
    """The best of all sets of cuts. Takes 2^n evaluations for n free boundaries."""
    sets = (
        pipeline.fixed.union(name for name, is_cut in zip(pipeline.free, chosen, strict=True) if is_cut)
        for chosen in product((True, False), repeat=len(pipeline.free))
    )
    return min(sets, key=lambda cuts: pipeline.expected(cuts).total_s)


def local_search(pipeline: Pipeline) -> frozenset[str]:
    """From the cuts of now, from all and from none: change one or two boundaries for as long as that is cheaper."""
    cost: dict[frozenset[str], float] = {}

    def cost_of(cuts: frozenset[str]) -> float:
        if cuts not in cost:
            cost[cuts] = pipeline.expected(cuts).total_s
        return cost[cuts]

    starts = (pipeline.as_it_is, pipeline.fixed.union(pipeline.free), pipeline.fixed)
    return min((_descend(start, pipeline.free, cost_of) for start in starts), key=cost_of)


def _descend(cuts: frozenset[str], free: tuple[str, ...], cost_of: Callable[[frozenset[str]], float]) -> frozenset[str]:
    while True:
        ones = min((cuts ^ {name} for name in free), key=cost_of, default=cuts)
        if cost_of(ones) < cost_of(cuts):
            cuts = ones
            continue
        two = combinations(free, 2) if len(free) <= MOST_IN_PAIRS else ()
        pairs: Iterator[frozenset[str]] = (cuts ^ set(pair) for pair in two)
        better = next((other for other in pairs if cost_of(other) < cost_of(cuts)), None)
        if better is None:
            return cuts
        cuts = better
