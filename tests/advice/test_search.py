"""Which cuts are the cheapest: against every set of cuts, a simulation, and cases whose answer is known."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.advice.costs import Pipeline, Prices, Step, Stretch
from airflow_recovery.advice.search import best_cuts, every_set, local_search

PRICES = Prices(region_s=5.0, bytes_per_s=1e8)
GB = 10**9


def total(pipeline: Pipeline, cuts: frozenset[str]) -> float:
    return pipeline.expected(cuts).total_s


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    size = draw(st.integers(2, 8))
    links: dict[int, set[int]] = {number: set() for number in range(size)}
    for number in range(1, size):
        other = draw(st.integers(0, number - 1))
        links[number].add(other)
        links[number] |= draw(st.sets(st.integers(0, number - 1), max_size=2))
    read = {producer for producers in links.values() for producer in producers}
    return Pipeline(
        [
            Step(
                f"v{number}",
                tuple(f"v{each}" for each in sorted(links[number])),
                draw(st.floats(0, 3000)),
                draw(st.integers(0, 50 * GB)),
                draw(st.sampled_from([0.0, 1e-6, 1e-4, 1e-3])),
                draw(st.sampled_from([0.0, 0.0, 0.1])),
                is_sink=number not in read or draw(st.booleans()),
                is_cut=draw(st.booleans()),
                is_fixed=draw(st.integers(0, 5)) == 0,
            )
            for number in range(size)
        ],
        PRICES,
    )


@settings(max_examples=100)
@given(pipelines())
def test_of_a_small_graph_the_cuts_are_the_best_of_all_sets_and_what_is_fixed_stays(pipeline: Pipeline) -> None:
    best = best_cuts(pipeline)
    assert best.is_exact
    assert best.expected.total_s == pytest.approx(total(pipeline, every_set(pipeline)))
    assert best.cuts >= pipeline.fixed
    assert not any(step.is_fixed and not step.is_cut and step.name in best.cuts for step in pipeline.steps)
    order = [step.name for step in pipeline.steps]
    assert all(order.index(name) < order.index(step.name) for step in pipeline.steps for name in step.inputs)


def test_an_end_whose_cut_is_fixed_stays_one() -> None:
    steps = [Step("a", (), 1000.0, is_cut=False), Step("b", ("a",), 1000.0, 0, 1e-3, is_sink=True, is_fixed=True)]
    assert best_cuts(Pipeline(steps, PRICES)).cuts == {"a", "b"}


@pytest.mark.slow
def test_the_gap_of_the_local_search() -> None:
    """Of 200 graphs of up to 9 free boundaries: within 5 % in each, and the best in nearly all."""
    draw = random.Random(1974)
    gaps = []
    for _ in range(200):
        pipeline = dense(draw, draw.randint(5, 10))
        gaps.append(total(pipeline, local_search(pipeline)) / total(pipeline, every_set(pipeline)) - 1)
    assert max(gaps) < 0.05
    assert sum(gap < 1e-9 for gap in gaps) >= 190


def dense(draw: random.Random, size: int) -> Pipeline:
    steps = []
    for number in range(size):
        inputs = sorted(draw.sample(range(number), min(number, draw.randint(1, 3))))
        steps.append(
            Step(
                f"v{number}",
                tuple(f"v{each}" for each in inputs),
                draw.expovariate(1 / 600),
                int(draw.expovariate(1 / (10 * GB))),
                draw.choice([0.0, 1e-5, 1e-4, 1e-3]),
                is_cut=draw.random() < 0.5,
            )
        )
    return Pipeline(steps, PRICES)


def test_a_graph_of_many_boundaries_is_said_to_be_searched_only_near_by() -> None:
    best = best_cuts(dense(random.Random(2006), 18))
    assert not best.is_exact
    assert "not proved" in best.how


@pytest.mark.slow
def test_of_a_chain_of_hundreds_the_cuts_cost_as_little_as_those_at_young_s_interval() -> None:
    steps = [Step(f"v{n}", (f"v{n - 1}",) if n else (), 60.0, GB, 1e-4) for n in range(150)]
    pipeline = Pipeline(steps, PRICES)
    best = best_cuts(pipeline)
    assert not best.is_exact
    # Young's interval: the square root of twice the cost of a cut times the mean time between failures.
    every = round(math.sqrt(2 * (5.0 + 20.0) / 1e-4) / 60)
    evenly = pipeline.expected(frozenset(f"v{n}" for n in range(every - 1, 149, every)))
    assert best.expected.total_s <= evenly.total_s * 1.002


@pytest.mark.parametrize(
    ("steps", "cuts"),
    [
        pytest.param(
            [Step("long", (), 3600, 10**6, is_cut=False), Step("failing", ("long",), 300, 10**6, 1e-3, is_sink=True)],
            {"long"},
            id="a long producer with little output, and a consumer that fails",
        ),
        pytest.param(
            [Step("tiny", (), 5, 500 * GB), Step("safe", ("tiny",), 300, 10**6, is_sink=True)],
            set(),
            id="a short producer with a huge output, and a consumer that never fails",
        ),
        pytest.param(
            [
                Step("shared", (), 600, GB, is_cut=False),
                *(Step(f"reader{n}", ("shared",), 200, 10**6, 2e-4, is_sink=True) for n in range(6)),
            ],
            {"shared"},
            id="one that many read",
        ),
        pytest.param(
            [
                Step("raw", (), 10, 100 * GB),
                Step("sums", ("raw",), 1800, 10**6, is_cut=False),
                Step("late", ("sums",), 900, 10**6, 1e-3, is_sink=True),
            ],
            {"sums"},
            id="the cut belongs one further",
        ),
    ],
)
def test_cases_whose_best_cut_is_known(steps: list[Step], cuts: set[str]) -> None:
    pipeline = Pipeline(steps, PRICES)
    best = best_cuts(pipeline)
    assert best.cuts == cuts
    assert best.expected.total_s < total(pipeline, pipeline.as_it_is)


def test_without_failures_nothing_saves_and_each_cut_costs() -> None:
    pipeline = Pipeline([Step("a", (), 100, GB), Step("b", ("a",), 100, GB, is_sink=True)], PRICES)
    assert best_cuts(pipeline).cuts == frozenset()
    assert pipeline.expected({"a"}).recovery_s == 0
    assert pipeline.expected({"a"}).run_s - pipeline.expected(()).run_s == pytest.approx(5 + 10 + 10)


def test_of_one_vertex_it_is_dalys_formula() -> None:
    found = Stretch(7.0).then(Stretch.of(500.0, 1 / 300))
    assert found.expected_s == pytest.approx((math.exp(500 / 300) - 1) * 300 + 7.0 * math.exp(500 / 300))


def test_a_simulation_of_failures_takes_as_long_as_is_expected() -> None:
    pipeline = Pipeline(
        [
            Step("a", (), 300, 2 * GB, 1 / 2000),
            Step("b", ("a",), 200, GB, 0.0, is_cut=False),
            Step("c", ("b",), 100, GB, 1 / 150, is_sink=True),
        ],
        PRICES,
    )
    draw = random.Random(7)
    simulated = fmean(simulate(pipeline, {"a"}, draw) for _ in range(20_000))
    assert simulated == pytest.approx(pipeline.expected({"a"}).total_s, rel=0.02)


def simulate(pipeline: Pipeline, cuts: set[str], draw: random.Random) -> float:
    """One run, failure by failure: code of its own."""
    spent = 0.0
    for region in pipeline.regions(cuts):
        names = {step.name for step in region}
        is_done = False
        while not is_done:
            spent += PRICES.region_s
            is_done = True
            for step in region:
                seconds = step.seconds + sum(pipeline.by_name[n].bytes for n in step.inputs if n not in names) / 1e8
                seconds += step.bytes / 1e8 if step.is_sink or step.name in cuts else 0.0
                fails_s = draw.expovariate(step.failures_per_s) if step.failures_per_s else math.inf
                spent += min(seconds, fails_s)
                if fails_s < seconds:
                    is_done = False
                    break
    return spent


def test_a_loss_of_a_result_runs_its_region_again() -> None:
    steps = [Step("a", (), 100, 0, losses=0.5), Step("b", ("a",), 100, 0, is_sink=True)]
    assert Pipeline(steps, PRICES).expected({"a"}).recovery_s == pytest.approx(0.5 * 105)
    assert Pipeline(steps, PRICES).expected(()).recovery_s == 0


def test_subtasks_restart_one_by_one() -> None:
    one = Pipeline([Step("a", (), 1000, 0, 1e-3, is_sink=True)], Prices())
    ten = Pipeline([Step("a", (), 1000, 0, 1e-3, is_sink=True, subtasks=10)], Prices())
    assert one.expected(()).recovery_s == pytest.approx(1000 * (math.e - 1) - 1000)
    assert ten.expected(()).recovery_s == pytest.approx(10 * 1000 * (math.exp(0.1) - 1) - 1000)


def test_a_cycle_is_named() -> None:
    with pytest.raises(ValueError, match="cycle"):
        Pipeline([Step("a", ("b",), 1), Step("b", ("a",), 1)], PRICES)
