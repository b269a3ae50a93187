"""A plan of groups is planned as the same regions written out one by one; and costs by its groups, not by its edges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from counted_calls import calls_of
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model import groups
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.groups import DistributionPattern, GroupEdge, GroupedRegions, RegionGroup
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, ExternalObject, FenceCause, Outcome, PlanRecord
from airflow_recovery.model.region_plan import CoordinatorPlan, RegionPlan
from airflow_recovery.planning.edges import Edges
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan import NOT_KEPT, Action, Plan, PlannedRegion, RegionNames
from airflow_recovery.planning.plan_making import plan_of
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.planning.restart_set import RestartSet
from airflow_recovery.planning.selection import downstream


@pytest.fixture(autouse=True, scope="module", params=[1, groups.WIDE], ids=["each in groups", "wide ones"])
def wide(request: pytest.FixtureRequest) -> Iterator[None]:
    """From how many regions on a record names a group."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "WIDE", request.param)
        yield


EXTERNAL = ExternalObject("v0", "s3://elsewhere/object", 1, "e")
ALL_TO_ALL, POINTWISE = DistributionPattern.ALL_TO_ALL, DistributionPattern.POINTWISE


def group(
    name: str,
    inputs: Mapping[str, DistributionPattern],
    size: int | None,
    *,
    results: tuple[str, ...] | None = None,
    reads: tuple[str, ...] = (),
    mode: Determinism = Determinism.ALWAYS,
    is_volatile: bool = False,
    is_final: bool = True,
) -> RegionGroup:
    """``size`` `None`: a region without subtasks."""
    made = (name,) if results is None else results
    template = RegionPlan(
        name=name,
        vertices=(name,),
        results=made,
        inputs=(),
        final=is_final,
        fingerprint="code" if size is None else None,
        reads=reads or tuple(inputs),
        determinism=tuple((result, mode) for result in made) if mode is not Determinism.ALWAYS else (),
        coordinators=(CoordinatorPlan(name, supports_batch_snapshot=not is_volatile),),
    )
    keys = None if size is None else tuple(f"k{at}" for at in range(size))
    return RegionGroup(template, tuple(GroupEdge(*edge) for edge in inputs.items()), keys)


def written_out(plan: PlanRecord) -> PlanRecord:
    """The same regions, which know of no groups."""
    return PlanRecord(plan.job, tuple(plan.regions))


@st.composite
def plans(draw: st.DrawFn) -> PlanRecord:
    """Groups of several sizes, results and modes of determinism, connected in both patterns."""
    made: list[RegionGroup] = []
    for at in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from([None, 1, 2, 3]))
        inputs: dict[str, DistributionPattern] = {}
        for before in made:
            if draw(st.booleans()):
                is_alike = before.keys is not None and len(before) == size
                inputs[before.name] = POINTWISE if is_alike and draw(st.booleans()) else ALL_TO_ALL
        reads = [result for name in inputs for result in (name, f"{name}-more")]
        made.append(
            group(
                f"v{at}",
                inputs,
                size,
                results=(f"v{at}", f"v{at}-more"),
                reads=tuple(draw(st.sets(st.sampled_from(reads)))) if reads else (),
                mode=draw(st.sampled_from(Determinism)),
                is_volatile=draw(st.integers(0, 4)) == 0,
                is_final=draw(st.booleans()),
            )
        )
    return PlanRecord("job", GroupedRegions(made))


@st.composite
def runs(draw: st.DrawFn) -> tuple[PlanRecord, RunState, Callable[[str, Attempt, str], Reason | None]]:
    """A run in which every region has made some attempts, of what it had read then; and what is gone of it."""
    plan = draw(plans())
    states: dict[str, RegionState] = {}
    gone: set[tuple[str, str]] = set()
    for region in plan.regions:
        attempts: dict[int, Attempt] = {}
        for n in range(1, draw(st.integers(1, 3))):
            currents = [states[producer].current for producer in region.inputs]
            if all(currents) and draw(st.integers(0, 5)):
                finished = {name: _finished(states[name]) for name in region.inputs}
                refs = tuple(_pin(name, draw(st.sampled_from(numbers)), states) for name, numbers in finished.items())
                pins = plan.grouped(region.name, refs)
                fingerprint = region.fingerprint if draw(st.integers(0, 9)) else "other code"
                outputs = tuple(
                    PartitionManifest(result, "s3://b", (), 1, digest=draw(st.sampled_from(["a", "a", "b", None])))
                    for result in region.results
                )
                outcome = Outcome(region.name, n, AttemptState.FINISHED, "w", "now", fingerprint, pins, outputs=outputs)
            else:
                outcome = Outcome(region.name, n, AttemptState.FENCED, "w", "now", cause=FenceCause.OWN_FAILURE)
            attempts[n] = Attempt(
                n,
                is_claimed=True,
                has_outcome=True,
                outcome=outcome,
                is_reset=not draw(st.integers(0, 9)),
                is_lost=not draw(st.integers(0, 9)),
                is_released=not draw(st.integers(0, 9)),
            )
        states[region.name] = RegionState(attempts)
        gone |= {(region.name, result) for result in region.results if not draw(st.integers(0, 4))}

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        return Reason(region, Why.OUTPUT_MISSING, result) if (region, result) in gone else None

    return plan, RunState(states), available


def _finished(state: RegionState) -> list[int]:
    return [n for n, attempt in state.attempts.items() if attempt.is_finished]


def _pin(region: str, number: int, states: Mapping[str, RegionState]) -> InputRef:
    outcome = states[region].attempts[number].outcome
    assert outcome is not None
    return InputRef(region, number, tuple((out.result, out.digest) for out in outcome.outputs if out.digest))


def regions_told(plan: Plan) -> list[PlannedRegion]:
    """The regions of ``plan`` with each group in it written out, as a reader of its JSON does it."""
    subtasks: dict[str, list[PlannedRegion]] = {}
    for region in plan.regions:
        if region.subtask is not None:
            subtasks.setdefault(region.subtask[0], []).append(region)

    def names(parts: RegionNames, *actions: Action) -> Iterator[str]:
        for part in parts:
            if isinstance(part, str):
                yield part
            else:
                yield from (each.name for each in subtasks[part.group] if each.action in actions)

    return [
        replace(region, inputs=tuple(names(region.inputs, *Action)), after=tuple(names(region.after, *NOT_KEPT)))
        for region in plan.regions
    ]


@pytest.mark.slow
@settings(max_examples=400)
@given(runs())
def test_a_plan_of_groups_is_planned_as_its_regions_written_out(drawn) -> None:
    grouped, state, available = drawn
    both = [Evaluation(plan, state, available=available) for plan in (grouped, written_out(grouped))]
    for name in grouped.position:
        mine, its = (each for each in both)
        assert mine.invalid_because(name) == its.invalid_because(name)
        assert mine.why_must_run(name) == its.why_must_run(name)
        assert mine.is_undecided(name) == its.is_undecided(name)
        assert mine.lost_inputs(name) == its.lost_inputs(name)
    for same_rows in (True, False):
        mine_set, its_set = (RestartSet(each, same_rows=same_rows) for each in both)
        assert list(mine_set) == list(its_set)
        decided = [name for name in mine.must_run() if mine.is_decided(name)]
        assert list(RestartSet(its, same_rows=same_rows, failed=decided)) == list(mine_set)
        for name in decided:
            of_one = [RestartSet(each, same_rows=same_rows, failed=[name]) for each in both]
            assert set(of_one[0]) == set(of_one[1]) <= set(mine_set)
            assert [of_one[0].why(other) for other in of_one[0]] == [of_one[1].why(other) for other in of_one[1]]
    mine_plan, its_plan = (plan_of(each) for each in both)
    assert Plan.from_json(json.loads(json.dumps(mine_plan.to_json()))) == mine_plan
    assert regions_told(mine_plan) == regions_told(its_plan)


@pytest.mark.slow
@settings(max_examples=200)
@given(runs(), st.randoms(use_true_random=False))
def test_a_region_that_is_asked_for_alone_gets_the_same_answer(drawn, random) -> None:
    plan, state, available = drawn
    whole = Evaluation(plan, state, available=available)
    answers = {name: whole.why_must_run(name) for name in plan.position}
    name = random.choice(list(plan.position))
    assert Evaluation(plan, state, available=available).why_must_run(name) == answers[name]


@st.composite
def later_states(draw: st.DrawFn, state: RunState, names: Sequence[str]) -> RunState:
    """The same run some time later: other attempts of some regions, and the same objects of the others."""
    regions = dict(state.regions)
    for name in draw(st.sets(st.sampled_from(names), max_size=2)):
        before = regions.get(name, RegionState())
        newest = before.attempts.get(before.latest_attempt, Attempt(1))
        match draw(st.sampled_from(["reset", "fails", "finishes", "is forgotten"])):
            case "reset":
                regions[name] = RegionState({**before.attempts, newest.number: replace(newest, is_reset=True)})
            case "fails":
                outcome = Outcome(
                    name, newest.number + 1, AttemptState.FENCED, "w", "now", cause=FenceCause.OWN_FAILURE
                )
                failed = Attempt(newest.number + 1, is_claimed=True, has_outcome=True, outcome=outcome)
                regions[name] = RegionState({**before.attempts, failed.number: failed})
            case "finishes" if before.current is not None and before.current.outcome is not None:
                outcome = replace(before.current.outcome, attempt=newest.number + 1)
                finished_ = Attempt(newest.number + 1, is_claimed=True, has_outcome=True, outcome=outcome)
                regions[name] = RegionState({**before.attempts, finished_.number: finished_})
            case _:
                regions.pop(name, None)
    return RunState(regions)


def answers(evaluation: Evaluation) -> list[object]:
    """All that is asked of an evaluation, of every region."""
    names = list(evaluation.topology.position)
    told: list[object] = [
        (
            evaluation.invalid_because(name),
            evaluation.may_come_right(name),
            evaluation.is_undecided(name),
            evaluation.why_must_run(name),
            evaluation.lost_inputs(name),
        )
        for name in names
    ]
    restarts = RestartSet(evaluation, same_rows=True)
    return [*told, [(name, restarts.why(name)) for name in restarts]]


def check_again(data: st.DataObject) -> None:
    """A run is listed several times, and evaluated from where the evaluation before was left."""
    plan, state, available = data.draw(runs())
    evaluation = Evaluation(plan, state, available=available)
    names = list(plan.position)
    for _ in range(2):
        for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
            evaluation.why_must_run(name)
            evaluation.lost_inputs(name)
        state = data.draw(later_states(state, names))
        externals = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from([(), (EXTERNAL,)]), max_size=1))
        anew, again, evaluation = (
            Evaluation(plan, state, available=available, externals=externals, before=before)
            for before in (None, evaluation, evaluation)
        )
        # Not only of all at once: who is asked first finds out the least.
        first = data.draw(st.sampled_from(names))
        assert evaluation.why_must_run(first) == anew.why_must_run(first)
        assert answers(again) == answers(anew)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_a_run_that_is_listed_again_is_evaluated_as_if_it_were_the_first_time(data: st.DataObject) -> None:
    check_again(data)


@pytest.mark.slow
@pytest.mark.parametrize("forgets", ["who has changed", "who reads them"])
def test_control_where_a_change_is_not_looked_at_another_answer_is_found(monkeypatch, forgets: str) -> None:
    if forgets == "who has changed":
        monkeypatch.setattr(Edges, "downstream", lambda self, regions: set())
    else:
        monkeypatch.setattr(Edges, "downstream", lambda self, regions: set(regions))
    search = settings(max_examples=1_000, database=None, report_multiple_bugs=False, phases=[Phase.generate])
    with pytest.raises((AssertionError, KeyError)):
        search(given(st.data())(check_again))()


def calls_after_a_failure(size: int, *, is_evaluated: bool) -> int:
    """What it takes to find who restarts after a failed subtask, of which one input of ``size`` is lost."""
    plan = PlanRecord("job", GroupedRegions([group("a", {}, size), group("b", {"a": ALL_TO_ALL}, size)]))
    state = finished(plan)
    before = Evaluation(plan, state, available=lambda region, attempt, result: None)
    before.lost_inputs("b[k0]")
    failed = replace(state, regions={**state.regions, "b[k0]": RegionState({})})

    def search() -> None:
        evaluation = Evaluation(plan, failed, available=a_first_result_is_gone, before=before if is_evaluated else None)
        assert len(RestartSet(evaluation, same_rows=True, failed=["b[k0]"])) == 1 + size

    return calls_of(search)


def test_after_a_failure_only_the_data_of_its_inputs_is_asked_for_again() -> None:
    """Of each of them: is it there?"""
    grown = calls_after_a_failure(800, is_evaluated=True) - calls_after_a_failure(100, is_evaluated=True)
    assert grown <= 4 * 700
    cold = calls_after_a_failure(800, is_evaluated=False) - calls_after_a_failure(100, is_evaluated=False)
    assert cold > 2 * grown


@given(plans(), st.data())
def test_downstream_is_whoever_reads_over_however_many_steps(plan: PlanRecord, data) -> None:
    started = data.draw(st.sets(st.sampled_from(list(plan.by_name)), min_size=1))
    found, waiting = set(started), list(started)
    while waiting:
        new = set(plan.readers[waiting.pop()]) - found
        found |= new
        waiting += new
    assert downstream(plan, started) == [name for name in plan.by_name if name in found]


def test_the_edges_of_a_group_are_those_of_its_regions() -> None:
    plan = PlanRecord(
        "job",
        GroupedRegions(
            [
                group("one", {}, None),
                group("a", {"one": ALL_TO_ALL}, 3),
                group("b", {"a": POINTWISE, "one": ALL_TO_ALL}, 3),
                group("c", {"b": ALL_TO_ALL}, 2),
            ]
        ),
    )
    edges = Edges(plan)
    assert [edges.inputs(name) for name in ("one", "a[k1]", "b[k1]", "c[k0]")] == [
        (), ("one",), ("a[k1]", "one"), ("b",),
    ]  # fmt: skip
    assert [edges.readers(name) for name in ("one", "a[k1]", "b[k1]", "c[k0]")] == [("a", "b"), ("b[k1]",), ("c",), ()]
    assert (edges.members("a"), edges.members("one")) == (("a[k0]", "a[k1]", "a[k2]"), ())
    for region in plan.regions:
        nodes = [name for node in edges.inputs(region.name) for name in (edges.members(node) or (node,))]
        assert nodes == list(region.inputs)


# what it costs


def test_the_json_of_a_plan_names_a_wide_group_once() -> None:
    plan = PlanRecord("job", GroupedRegions([group("a", {}, 100), group("b", {"a": ALL_TO_ALL}, 100)]))

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        return Reason(region, Why.OUTPUT_MISSING) if region == "a[k0]" else None

    document = plan_of(Evaluation(plan, finished(plan), available=available)).to_json()
    told = [(region["inputs"], region["after"]) for region in document["regions"]]
    assert told == [([], [])] * 100 + [([{"group": "a"}], [{"group": "a"}])] * 100


def calls(size: int) -> int:
    """How many functions of ours it takes to judge two vertices of ``size`` subtasks and to plan after a loss."""
    plan = PlanRecord("job", GroupedRegions([group("a", {}, size), group("b", {"a": ALL_TO_ALL}, size)]))
    state = finished(plan)

    def judge() -> None:
        evaluation = Evaluation(plan, state, available=a_first_result_is_gone)
        assert len(RestartSet(evaluation, same_rows=True)) == 1 + size
        assert len(evaluation.lost_inputs("b[k0]")) == 1

    return calls_of(judge)


def a_first_result_is_gone(region: str, attempt: Attempt, result: str) -> Reason | None:
    return Reason(region, Why.OUTPUT_MISSING) if region == "a[k0]" else None


def finished(plan: PlanRecord) -> RunState:
    """Every region has finished once, but for the last one, which has failed."""
    states: dict[str, RegionState] = {}
    pins: Sequence[InputRef] = ()
    last = list(plan.position)[-1]
    for region in plan.regions:
        if region.name.endswith("[k0]") or not pins:
            pins = plan.grouped(region.name, tuple(InputRef(name, 1) for name in region.inputs))
        state = AttemptState.FENCED if region.name == last else AttemptState.FINISHED
        outcome = Outcome(region.name, 1, state, "w", "now", region.fingerprint, pins, cause=FenceCause.OWN_FAILURE)
        states[region.name] = RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=outcome)})
    return RunState(states)


def test_an_edge_of_all_to_all_costs_as_its_subtasks_do() -> None:
    assert calls(800) / calls(100) / 8 < 1.1


def calls_of_search(size: int, *, failed: Sequence[str] | None) -> int:
    """How many functions of ours it takes to find who restarts in three vertices of ``size`` subtasks: 0 is lost."""
    groups_made = [group("a", {}, size), group("b", {"a": POINTWISE}, size), group("c", {"b": POINTWISE}, size)]
    plan = PlanRecord("job", GroupedRegions(groups_made))
    state = finished(plan)
    fresh = PlanRecord("job", GroupedRegions(map(replace, plan.groups)))

    found: list[RestartSet] = []

    def search() -> None:
        evaluation = Evaluation(fresh, state, available=a_first_result_is_gone)
        found.append(RestartSet(evaluation, same_rows=True, failed=failed))

    cost = calls_of(search)
    assert {"a[k0]", "b[k0]", "c[k0]"} <= set(found[0])
    return cost


def test_a_search_from_one_failed_subtask_costs_what_it_reaches_and_not_its_vertices() -> None:
    # But for the names of one group, in which the failed subtask is looked up.
    assert calls_of_search(800, failed=["b[k0]"]) - calls_of_search(100, failed=["b[k0]"]) <= 2 * 800


def test_control_where_every_subtask_fails_the_search_costs_more_with_each() -> None:
    few, many = ([f"b[k{at}]" for at in range(size)] for size in (100, 800))
    assert calls_of_search(800, failed=many) > 6 * calls_of_search(100, failed=few)


@pytest.mark.slow
def test_control_where_what_was_read_is_compared_one_by_one_the_cost_is_quadratic(monkeypatch) -> None:
    def one_by_one(self: Evaluation, consumer: str, node: str) -> list[InputRef]:
        pins = self.pins(consumer)
        return [pins[name] for name in self.edges.members(node) or (node,)]

    monkeypatch.setattr(Evaluation, "_remade_pins", one_by_one)
    assert calls(400) / calls(100) / 4 > 2


def test_a_reader_of_a_group_follows_the_one_subtask_that_it_read_without_a_digest() -> None:
    plan = PlanRecord(
        "job",
        GroupedRegions([group("made", {}, 2, mode=Determinism.VERIFY), group("read", {"made": ALL_TO_ALL}, None)]),
    )
    refs = (InputRef("made[k0]", 1, (("made", "a"),)), InputRef("made[k1]", 1))
    inputs: dict[str, tuple[InputRef, ...]] = {"made[k0]": (), "made[k1]": (), "read": refs}
    states = {}
    for name, pins in inputs.items():
        fingerprint = plan.by_name[name].fingerprint
        outcome = Outcome(name, 1, AttemptState.FINISHED, "w", "now", fingerprint, pins)
        states[name] = RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=outcome)})
    evaluation = Evaluation(plan, RunState(states), available=lambda region, attempt, result: None)
    restarts = RestartSet(evaluation, same_rows=True, failed=["made[k0]", "made[k1]"])
    assert list(restarts) == ["made[k0]", "made[k1]", "read"]
    assert restarts.why("read") == Reason("read", Why.INPUT_REMADE, "read made[k1]@1", source="made[k1]")
