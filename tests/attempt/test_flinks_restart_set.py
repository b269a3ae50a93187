"""Flink's restart set, and the regions that then really run together.

A random job has run in part. One region fails (or a user restarts one that had finished), and some results are gone.
Then Airflow starts whatever it can, in a random order, until everything is green; the real protocol decides what runs.

Regions that were never started run in any case, and find a loss when they do: in Flink's terms each of them is a
failure of its own, so their restart sets are added. They are walked through and not named, as in Flink.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import pytest
from fakes import PUBLISH, World
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.execution_topology import ExecutionTopology
from reference.logical import LogicalEdge, LogicalResult, LogicalTopology, LogicalVertex
from reference.restart_set import region_restart_set

from airflow_recovery.errors import RecoveryError, RegionFailed
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.result_type import BLOCKING
from airflow_recovery.planning.evaluation import Evaluation

Upstream = Mapping[str, tuple[str, ...]]
TASK_TRIES = 300


@dataclass(frozen=True)
class Trouble:
    """A job, how far it has come, and what happens then."""

    upstream: Upstream
    makes: Upstream
    """The results of each region."""
    reads: Upstream
    """The results that each region reads, at least one of each of its inputs."""
    modes: Mapping[str, Determinism]
    unstable: frozenset[str]
    constant: frozenset[str]
    finished: frozenset[str]
    failed: str
    """Running while it fails; or, where it has finished, restarted by a user."""
    lost: frozenset[str]
    """Results."""
    seed: int

    @property
    def created(self) -> frozenset[str]:
        """Never started."""
        return frozenset(self.upstream) - self.finished - {self.failed}


@st.composite
def troubles(draw: st.DrawFn, modes: st.SearchStrategy[Determinism]) -> Trouble:
    names = [f"r{number}" for number in range(draw(st.integers(2, 7)))]
    upstream = {
        name: tuple(draw(st.lists(st.sampled_from(names[:at]), unique=True, max_size=3))) if at else ()
        for at, name in enumerate(names)
    }
    makes = {name: tuple(f"{name}.{at}" for at in range(draw(st.integers(1, 3)))) for name in names}
    reads = {
        name: tuple(
            result
            for producer in inputs
            for result in draw(st.lists(st.sampled_from(makes[producer]), unique=True, min_size=1))
        )
        for name, inputs in upstream.items()
    }
    finished = names[: draw(st.integers(1, len(names)))]
    # In topological order all inputs of the next one have finished.
    failed = draw(st.sampled_from(names[: len(finished) + 1]))
    read = {result for results in reads.values() for result in results}
    some = st.frozensets(st.sampled_from(names))
    return Trouble(
        upstream=upstream,
        makes=makes,
        reads=reads,
        modes={name: draw(modes) for name in names},
        unstable=draw(some),
        constant=draw(some),
        finished=frozenset(finished),
        failed=failed,
        # Of a final result that is gone Flink knows nothing: nobody in the job reads it.
        lost=draw(st.frozensets(st.sampled_from([result for name in finished for result in makes[name]]))) & read,
        seed=draw(st.integers(0, 10_000)),
    )


def really_ran(trouble: Trouble) -> set[str]:
    """The regions that had been started before, and of which an attempt was claimed after the failure."""
    world = World(
        trouble.upstream,
        retries=1_000,
        makes=trouble.makes,
        reads=trouble.reads,
        modes=trouble.modes,
        unstable=trouble.unstable,
        constant=trouble.constant,
    )
    world.go_all(name for name in trouble.upstream if name in trouble.finished)
    before = len(world.ran)
    for result in trouble.lost:
        world.delete_results(region_of(result), 1, result)
    if trouble.failed in trouble.finished:
        world.restart(trouble.failed)
    else:
        with suppress(RecoveryError):
            world.go(trouble.failed, on_start=break_down)
    until_green(world, random.Random(trouble.seed))
    return {name for name, _ in world.ran[before:]} - trouble.created


def region_of(result: str) -> str:
    return result.partition(".")[0]


def break_down() -> None:
    raise RegionFailed("the executor is gone")


def until_green(world: World, rng: random.Random) -> None:
    """Airflow starts whatever it can, in any order."""
    for _ in range(TASK_TRIES):
        ready = world.airflow.ready()
        if not ready:
            assert world.airflow.is_green
            return
        task = rng.choice(ready)
        with suppress(RecoveryError):
            world.publish() if task == PUBLISH else world.go(task)
    raise AssertionError(f"not green after {TASK_TRIES} tries")


def flinks_restart_set(trouble: Trouble) -> set[str]:
    """Flink's decision for the failed region, and for each that is started later."""
    logical = LogicalTopology(
        [LogicalVertex(name) for name in trouble.upstream],
        [LogicalResult(result, name, BLOCKING) for name, results in trouble.makes.items() for result in results],
        [LogicalEdge(result, name) for name, results in trouble.reads.items() for result in results],
    )
    topology = ExecutionTopology(logical)
    graph = topology.graph

    def name_of(vertex: int) -> str:
        return graph.vertex_name(vertex).vertex

    def available(partition: int) -> bool:
        result = graph.partition_name(partition).result
        return region_of(result) in trouble.finished and result not in trouble.lost

    named: set[str] = set()
    for each in {trouble.failed, *trouble.created}:
        restarting = region_restart_set(
            topology,
            graph.vertex_id(each),
            available=available,
            is_created=lambda vertex: name_of(vertex) in trouble.created,
        )
        named.update(map(name_of, restarting))
    return named


def expected(trouble: Trouble) -> set[str]:
    """Flink's rule, naively, and where it says "every consumer": unless determinism lets it keep its result."""
    running = {trouble.failed, *trouble.created}
    while True:
        differs: set[str] = set()
        for name, inputs in trouble.upstream.items():  # in topological order
            reads_other_rows = name not in trouble.constant and not differs.isdisjoint(inputs)
            if name in running and (name in trouble.unstable or reads_other_rows):
                differs.add(name)
        more = {region_of(result) for name in running for result in trouble.reads[name] if result in trouble.lost}
        for name in trouble.finished:
            for read in running.intersection(trouble.upstream[name]):
                mode = trouble.modes[read]
                if mode is Determinism.ALWAYS or (mode is Determinism.VERIFY and read in differs):
                    more.add(name)
        if more <= running:
            return running - trouble.created
        running |= more


@pytest.mark.slow
@settings(max_examples=150)
@given(troubles(st.just(Determinism.ALWAYS)))
def test_the_regions_that_run_are_flinks_restart_set(trouble: Trouble) -> None:
    assert really_ran(trouble) == flinks_restart_set(trouble) == expected(trouble)


@pytest.mark.slow
@settings(max_examples=250)
@given(troubles(st.sampled_from(Determinism)))
def test_with_determinism_they_are_those_of_flinks_that_have_to(trouble: Trouble) -> None:
    ran = really_ran(trouble)
    assert ran == expected(trouble)
    assert ran <= flinks_restart_set(trouble)


TWO_LEVELS = Trouble(
    upstream={"P": (), "C": ("P",), "E": ("C",)},
    makes={name: (f"{name}.0",) for name in "PCE"},
    reads={"P": (), "C": ("P.0",), "E": ("C.0",)},
    modes=dict.fromkeys("PCE", Determinism.ALWAYS),
    unstable=frozenset(),
    constant=frozenset(),
    finished=frozenset("PCE"),
    failed="P",
    lost=frozenset(),
    seed=0,
)


def test_control_where_no_input_is_ever_superseded_consumers_do_not_run(monkeypatch) -> None:
    assert really_ran(TWO_LEVELS) == {"P", "C", "E"}
    monkeypatch.setattr(Evaluation, "why_superseded", lambda self, consumer, pin: None)
    assert really_ran(TWO_LEVELS) == {"P"} != flinks_restart_set(TWO_LEVELS)
