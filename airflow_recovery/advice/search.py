"""The cheapest set of cuts: exact for forests and small graphs, else a local search (docs/advise.md#search)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from airflow_recovery.advice.costs import NOTHING, Expected, Pipeline, Stretch, Tree

MOST_TRIED = 10
"""Of so many boundaries every set of cuts is tried."""
MOST_OPTIONS = 400
"""Of so many ways to cut a branch, none better than another in every respect, the best are looked at further."""


@dataclass(frozen=True)
class Best:
    """The cheapest ``cuts`` found. ``is_exact``: there are none cheaper. ``how``: how they were found, in words."""

    cuts: frozenset[str]
    expected: Expected
    is_exact: bool
    how: str


def best_cuts(pipeline: Pipeline) -> Best:
    """The cuts with the least expected seconds; of equal ones those of now."""
    if pipeline.is_forest:
        cuts, is_exact = _of_forest(pipeline)
        how = "exact, branch by branch" if is_exact else "branch by branch, the best ways of each"
    elif len(pipeline.free) <= MOST_TRIED:
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
        pairs: Iterator[frozenset[str]] = (cuts ^ set(pair) for pair in combinations(free, 2))
        better = next((other for other in pairs if cost_of(other) < cost_of(cuts)), None)
        if better is None:
            return cuts
        cuts = better


@dataclass(frozen=True)
class _Option:
    """A way to cut a branch. ``closed_s``: of the regions that are whole. ``body``, ``losses``: of the region that the
    branch's own step is in, which may go on beyond it. ``reads_s``: what that step reads.
    """

    closed_s: float
    body: Stretch
    losses: float
    reads_s: float
    cuts: tuple[str, ...]

    @property
    def sizes(self) -> tuple[float, ...]:
        return self.closed_s, self.body.expected_s, self.body.tries, self.losses, self.reads_s


def _of_forest(pipeline: Pipeline) -> tuple[frozenset[str], bool]:
    cuts = set(pipeline.fixed)  # an end of the pipeline may be one of them, about which nothing is asked below
    is_exact = True
    for tree in pipeline.trees:
        search = _TreeSearch(pipeline)
        best = search.best(tree)
        cuts.update(best.cuts)
        is_exact = is_exact and search.is_exact
    return frozenset(cuts), is_exact


class _TreeSearch:
    """Dynamic programming over a tree: for each branch the options that none other beats in every respect."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._options: dict[tuple[str, bool, bool], list[_Option]] = {}
        self.is_exact = True

    def best(self, tree: Tree) -> _Option:
        reader_of_parent = {below.name for node in tree.all for below in node.readers}
        for node in reversed(tree.all):
            for is_cut in self._choices(node.name):
                for parent_is_cut in (True, False) if node.name in reader_of_parent else (False,):
                    self._options[node.name, is_cut, parent_is_cut] = self._of(node, is_cut, parent_is_cut)
        options = [option for is_cut in self._choices(tree.name) for option in self._options[tree.name, is_cut, False]]
        return min(options, key=lambda option: self._closed_s(option, tree.name))

    def _choices(self, name: str) -> tuple[bool, ...]:
        step = self._pipeline.by_name[name]
        if not self._pipeline.readers[name]:
            return (False,)
        return (step.is_cut,) if step.is_fixed else (True, False)

    def _closed_s(self, option: _Option, name: str) -> float:
        subtasks = self._pipeline.by_name[name].subtasks
        return option.closed_s + self._pipeline.region_s(option.body, option.losses, subtasks)

    def _below(self, name: str, parent_is_cut: bool) -> Iterable[tuple[bool, _Option]]:
        for is_cut in self._choices(name):
            for option in self._options[name, is_cut, parent_is_cut]:
                yield is_cut, option

    def _close(self, option: _Option, name: str) -> _Option:
        return _Option(self._closed_s(option, name), NOTHING, 0.0, 0.0, option.cuts)

    def _of(self, node: Tree, is_cut: bool, parent_is_cut: bool) -> list[_Option]:
        pipeline = self._pipeline
        step = pipeline.by_name[node.name]
        parent = next((name for name in step.inputs if name not in {below.name for below in node.inputs}), None)
        read_s = pipeline.io_s(pipeline.by_name[parent]) if parent is not None and parent_is_cut else 0.0
        options = [_Option(0.0, NOTHING, 0.0, read_s, (node.name,) if is_cut else ())]
        for below in node.inputs:
            io_s = pipeline.io_s(pipeline.by_name[below.name])
            options = self._pruned(
                _joined(before, self._close(option, below.name), io_s) if below_is_cut else _joined(before, option)
                for before in options
                for below_is_cut, option in self._below(below.name, False)
            )
        written_s = step.seconds + (pipeline.io_s(step) if is_cut or step.is_sink else 0.0)
        losses = step.losses if is_cut else 0.0
        options = [
            _Option(
                option.closed_s,
                option.body.then(pipeline.stretch(step, written_s + option.reads_s)),
                option.losses + losses,
                0.0,
                option.cuts,
            )
            for option in options
        ]
        for below in node.readers:
            reader_options = [option for _, option in self._below(below.name, is_cut)]
            if is_cut:
                closed = [self._close(option, below.name) for option in reader_options]
                reader_options = [min(closed, key=lambda option: option.closed_s)]
            options = self._pruned(_joined(before, option) for before in options for option in reader_options)
        return options

    def _pruned(self, options: Iterable[_Option]) -> list[_Option]:
        kept: list[_Option] = []
        for option in sorted(options, key=lambda option: option.sizes):
            sizes = option.sizes
            if not any(all(mine <= its for mine, its in zip(other.sizes, sizes, strict=True)) for other in kept):
                kept.append(option)
        if len(kept) > MOST_OPTIONS:
            self.is_exact = False
            kept = sorted(kept, key=lambda option: option.closed_s + option.body.expected_s)[:MOST_OPTIONS]
        return kept


def _joined(before: _Option, after: _Option, reads_s: float = 0.0) -> _Option:
    return _Option(
        before.closed_s + after.closed_s,
        before.body.then(after.body),
        before.losses + after.losses,
        before.reads_s + reads_s,
        (*before.cuts, *after.cuts),
    )
