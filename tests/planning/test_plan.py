"""`plan`: what happens to every vertex, why, and on what evidence; truth tables under their topologies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from expected_errors import fails_with
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import CHAIN, DIAMOND, FORK, RunCase

from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.retention import Retention
from airflow_recovery.planning import plan_making
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan import CLEARED, Action, Plan
from airflow_recovery.planning.plan_diff import diff
from airflow_recovery.planning.plan_making import plan, plan_of
from airflow_recovery.planning.reason import Evidence, Why
from airflow_recovery.planning.restart_set import RestartSet
from airflow_recovery.planning.scenario import (
    CodeChanged,
    PartitionGone,
    RecomputeAll,
    RegionFailure,
    Request,
    RestartFrom,
    RestartRegion,
    Scenario,
    Together,
)

VERIFY, ASSUME = Determinism.VERIFY, Determinism.ASSUME


# requests


@pytest.mark.parametrize(
    ("request_", "runs"),
    [
        #      P
        #    /   \
        #   C     D
        #    \   /
        #      E
        (RestartRegion("P"), "PCDE"),
        (RestartRegion("C"), "CE"),
        (RestartRegion("E"), "E"),
        (RestartFrom("C"), "CE"),
        (RestartFrom("D-source"), "DE"),
        (RegionFailure("C"), "CE"),
        (RegionFailure("P"), "PCDE"),
        (PartitionGone("P"), ""),  # nobody wants it
        (PartitionGone("C"), ""),
        (PartitionGone("E"), "E"),
        (CodeChanged("D"), "DE"),
        (RecomputeAll(), "PCDE"),
        # Flink: a failed consumer drags in the producer of what is gone, and with it that producer's other consumers.
        (Together((RegionFailure("C"), PartitionGone("P"))), "PCDE"),
        (Together((RegionFailure("E"), PartitionGone("C"))), "CE"),
        (Together((RegionFailure("E"), PartitionGone("P"))), "E"),
        (Together((RegionFailure("E"), PartitionGone("C"), PartitionGone("P"))), "PCDE"),
    ],
    ids=lambda value: value.text() if isinstance(value, Request) else value or "nothing",
)
def test_what_runs_in_a_finished_diamond(request_, runs):
    case = RunCase(DIAMOND).finish_all()
    found = case.plan(request_)
    assert "".join(found.running) == runs
    assert set(found.names(Action.KEEP)) == set(case.upstream) - set(runs)


def test_a_run_without_a_journal_runs_everything_and_asks_nobody():
    case = RunCase(CHAIN)
    assert case.runs() == "PCE"
    assert case.asked == []


def test_a_finished_run_keeps_everything_and_says_what_it_was_told():
    found = RunCase(CHAIN).finish_all().plan()
    assert [region.told for region in found.regions] == [
        "attempt 1 is valid, nobody asks for its data",
        "attempt 1 is valid, nobody asks for its data",
        "attempt 1 is valid, 1 files are as registered",
    ]
    assert found.of("E").evidence == (
        Evidence("outcome of E@1", "FINISHED, fingerprint code 1"),
        Evidence("the objects of E@1", "all 1 are as registered"),
    )


def test_consumers_of_what_will_be_made_again_run_although_they_stand_now():
    #   P -> C
    #    \-> D      C failed, and the result that it reads is gone
    case = RunCase(FORK).finish("P").finish("D").fail("C").lose("P")
    evaluation = Evaluation(case.topology, case.state(), available=case.available)
    assert evaluation.why_must_run("D") is None
    found = case.plan()
    assert found.running == ("P", "C", "D")
    assert (found.of("D").why, found.of("D").cause) == (Why.INPUT_REMADE, "P")
    assert found.of("D").detail == "read P@1, which is to be made again"
    assert (found.of("C").why, found.of("C").detail) == (Why.FAILED, "attempt 1: ValueError: boom")
    assert case.play() == {"P", "C", "D"}


def test_what_a_remade_consumer_wants_is_asked_for_as_well():
    #   P   Q
    #   | \ |
    #   C   D        C failed; P is gone; so D runs again, and misses Q
    case = RunCase({"P": (), "Q": (), "C": ("P",), "D": ("P", "Q")}).finish("P").finish("Q").finish("D").fail("C")
    case.lose("P").lose("Q")
    assert case.runs() == "PQCD"
    assert case.play() == set("PQCD")


def test_control_without_looking_ahead_the_plan_misses_what_then_runs(monkeypatch):
    """A plan of `why_must_run` alone: true of this moment, and not of the run."""
    monkeypatch.setattr(RestartSet, "_follow", lambda self: None)
    case = RunCase(FORK).finish("P").finish("D").fail("C").lose("P")
    assert set(case.runs()) < case.play()


def test_what_is_behind_a_region_whose_budget_has_ended_is_blocked():
    #   P   Q
    #   | \ |
    #   C   D        P has ended its budget, Q has failed: C and D can't begin, and E behind D neither
    #       |
    #       E
    case = RunCase({"P": (), "Q": (), "C": ("P",), "D": ("P", "Q"), "E": ("D",)}, {"P": Determinism.VERIFY})
    case.finish_all().fail("Q").reset("P").fail("P")
    newest = case.state().of("P").attempts[2]
    case.mark("P", 2, outcome=replace(newest.outcome, budget_ended="P has failed once"))
    found = case.reset("Q").plan()
    assert [(region.name, region.action) for region in found.regions] == [
        ("P", Action.REFUSED), ("Q", Action.RUN), ("C", Action.BLOCKED), ("D", Action.BLOCKED), ("E", Action.BLOCKED),
    ]  # fmt: skip
    assert found.of("E").told == "input is not valid (D; behind P, whose restart budget has ended)"
    assert found.running == ("Q",)
    assert found.names(*CLEARED) == ("Q", "C", "D", "E")


def test_who_has_begun_is_not_blocked_by_what_is_refused_later():
    case = RunCase(CHAIN).finish_all().mark("C", 2, is_claimed=True)
    case.reset("P").fail("P")
    newest = case.state().of("P").attempts[2]
    case.mark("P", 2, outcome=replace(newest.outcome, budget_ended="P has failed once"))
    assert [region.action for region in case.plan().regions] == [Action.REFUSED, Action.RUN, Action.RUN]


def test_every_attempt_is_asked_for_once():
    case = RunCase(DIAMOND).finish_all().lose("C").lose("P").fail("E")
    case.reset("E").plan()
    assert sorted(case.asked) == sorted(set(case.asked))


def test_a_plan_within_a_wake_up_asks_nobody():
    case = RunCase(DIAMOND).finish_all().reset("E").lose("C")
    evaluation = Evaluation(case.topology, case.state(), available=case.available)
    assert plan_of(evaluation, ask=False).running == ("E",)
    assert case.asked == []
    assert evaluation.lost_inputs("E").keys() == {"C"}
    assert plan_of(evaluation, ask=False).running == ("C", "E")


def test_denied_is_an_error_and_no_answer():
    case = RunCase(CHAIN).finish_all()

    def denied(region, attempt, result):
        raise StoreAccessDenied("403")

    with pytest.raises(StoreAccessDenied):
        plan(case.topology, case.state(), denied)


# determinism


@pytest.mark.parametrize(
    ("mode", "run", "wait"),
    [(Determinism.ALWAYS, "PCE", ""), (VERIFY, "P", "CE"), (ASSUME, "P", "")],
)
def test_what_follows_a_restart_by_the_producers_mode(mode, run, wait):
    #  P -> C -> E
    found = RunCase(CHAIN, {"P": mode}).finish_all().plan(RestartRegion("P"))
    assert ("".join(found.running), "".join(found.names(Action.WAIT))) == (run, wait)


def test_restart_from_a_vertex_on_runs_its_consumers_whatever_their_mode():
    case = RunCase(CHAIN, {"P": ASSUME, "C": VERIFY}).finish_all()
    assert case.runs(RestartFrom("P")) == "PCE"
    assert case.runs(RestartRegion("P")) == "P"


def test_early_cut_off_several_levels_down():
    """C is always made again; whether E is depends on C's rows alone."""
    found = RunCase(CHAIN, {"C": VERIFY}).finish_all().plan(RestartRegion("P"))
    assert (found.running, found.names(Action.WAIT)) == (("P", "C"), ("E",))
    assert [each.name for each in found.chain("E")] == ["E", "C", "P"]


# release


@pytest.mark.parametrize(
    ("retention", "published", "released"),
    [
        (None, "PC", ()),
        (Retention.keep(), "PC", ()),
        (Retention.on_run_success(), "", ()),
        (Retention.on_run_success(), "P", ("P",)),
        (Retention.on_run_success(), "PC", ("P", "C")),
        (Retention.as_consumed(), "", ("P", "C")),
    ],
)
def test_what_nobody_will_ask_for_again_may_be_released(retention, published, released):
    #  P -> C -> E: E is a final result
    case = RunCase(CHAIN).finish_all()
    topology = replace(case.topology, retention=retention)
    pins = frozenset(InputRef(each, 1) for each in published)
    assert plan(topology, case.state(), case.available, published=pins).names(Action.RELEASE) == released


def test_what_somebody_will_read_is_not_released():
    case = RunCase(CHAIN).finish_all()
    topology = replace(case.topology, retention=Retention.as_consumed())
    assert plan(topology, case.state(), case.available, RestartRegion("E")).names(Action.RELEASE) == ("P",)
    assert plan(topology, case.state(), case.available, RestartRegion("C")).names(Action.RELEASE) == ()


# reasons


def test_a_chain_of_reasons_ends_at_the_root_cause_with_its_evidence():
    found = RunCase(CHAIN).finish_all().reset("P").plan()
    assert [(each.name, each.why) for each in found.chain("E")] == [
        ("E", Why.INPUT_INVALID),
        ("C", Why.INPUT_INVALID),
        ("P", Why.RESET),
    ]
    assert found.chain("E")[-1].evidence == (Evidence("reset of P@1", "ann: asked for"),)


@pytest.mark.parametrize(
    ("case", "region", "why", "asked"),
    [
        (RunCase(CHAIN), "P", Why.NEVER_FINISHED, "claim of P@1"),
        (RunCase(CHAIN).fail("P"), "P", Why.FAILED, "outcome of P@1"),
        (RunCase(CHAIN).mark("P", 1, is_claimed=True), "P", Why.NEVER_FINISHED, "claim of P@1"),
        (RunCase(CHAIN).finish_all().finish("P"), "C", Why.INPUT_REMADE, "outcome of P@2"),
        (RunCase(CHAIN).finish_all().lose("E"), "E", Why.OUTPUT_MISSING, "the objects of E@1"),
        (RunCase(CHAIN).finish_all().mark("E", 1, is_released=True), "E", Why.OUTPUT_RELEASED, "the objects of E@1"),
        (RunCase(CHAIN).finish("P").finish("C", fingerprint="old"), "C", Why.CODE_CHANGED, "outcome of C@1"),
        (RunCase(CHAIN).finish("P").finish("C", inputs=()), "C", Why.INPUTS_CHANGED, "outcome of C@1"),
    ],
)
def test_every_cause_names_what_was_asked(case, region, why, asked):
    found = case.plan().of(region)
    assert (found.why, found.evidence[0].asked) == (why, asked)


def test_fault_61_a_renamed_vertex_and_a_new_edge_say_why():
    """The journal is of an older version of the job: `C` was `B` then, and `E` did not read `P`."""
    before = RunCase({"P": (), "B": ("P",), "E": ("B",)}).finish_all()
    after = RunCase({"P": (), "C": ("P",), "E": ("C", "P")})
    after.attempts |= {name: found for name, found in before.attempts.items() if name in after.attempts}
    found = after.plan()
    assert [(region.name, region.why) for region in found.regions if region.action is Action.RUN] == [
        ("C", Why.NEVER_FINISHED),
        ("E", Why.INPUTS_CHANGED),
    ]
    assert found.of("E").detail == "read ['B'], reads ['C', 'P']"
    assert found.of("P").action is Action.KEEP


def test_fault_61_control_without_comparing_inputs_a_region_with_a_new_edge_is_kept(monkeypatch):
    before = RunCase({"P": (), "Q": (), "E": ("P",)}).finish_all()
    after = RunCase({"P": (), "Q": (), "E": ("P", "Q")})
    after.attempts = before.attempts
    assert after.runs() == "E"
    evaluate = Evaluation._evaluate_alone

    def blind(self, *given):
        reason = evaluate(self, *given)
        return None if reason is not None and reason.why is Why.INPUTS_CHANGED else reason

    monkeypatch.setattr(Evaluation, "_evaluate_alone", blind)
    assert after.runs() == ""


# applying


def test_a_restart_names_the_attempts_that_it_resets():
    case = RunCase(CHAIN).finish_all().finish("C")
    assert case.plan(RestartFrom("C")).resets == (InputRef("C", 2), InputRef("E", 1))
    assert case.plan().resets == ()


def test_what_is_reset_already_and_what_never_ran_needs_no_reset():
    case = RunCase(CHAIN).finish("P").finish("C").reset("C")
    assert case.plan(RecomputeAll()).resets == (InputRef("P", 1),)


def test_a_loss_a_failure_or_a_change_of_code_can_not_be_applied():
    case = RunCase(CHAIN).finish_all()
    for request in (PartitionGone("P"), RegionFailure("P"), CodeChanged("P")):
        assert case.plan(request).resets is None
        assert case.plan(Together((RestartRegion("C"), request))).resets is None


def test_a_plan_shows_the_run_as_it_is_and_not_as_it_is_supposed_to_be():
    case = RunCase(CHAIN).finish_all()
    for request in (RestartRegion("C"), RegionFailure("C")):
        found = case.plan(request).of("C")
        assert (found.attempt, found.latest_attempt, found.reset_watermark) == (1, 1, 0)


# names


def test_an_unknown_name_is_told_with_the_closest():
    case = RunCase({"by_route": (), "busiest": ("by_route",)}).finish_all()
    with fails_with("region-unknown", found="by_rout"):
        case.plan(RestartRegion("by_rout"))
    with fails_with("result-unknown", found="busy"):
        case.plan(PartitionGone("busy"))
    with fails_with("region-not-in-plan"):
        case.plan().of("busiestt")


def test_a_result_is_named_by_itself_or_with_its_region():
    case = RunCase(CHAIN).finish_all()
    assert case.runs(PartitionGone("E")) == case.runs(PartitionGone("E.E")) == "E"


# values


def all_requests() -> list[Request]:
    return [
        RegionFailure("C", "boom"),
        PartitionGone("C"),
        CodeChanged("C"),
        RestartRegion("C", "ann"),
        RestartFrom("C", "ann"),
        RecomputeAll("ann"),
        Together((RestartRegion("C"), PartitionGone("P"))),
    ]


@pytest.mark.parametrize("request_", all_requests(), ids=lambda each: each.kind)
def test_a_plan_survives_json(request_):
    found = RunCase(DIAMOND).finish_all().plan(request_)
    assert Plan.from_json(json.loads(json.dumps(found.to_json()))) == found


GOLDEN = Path(__file__).parents[1] / "golden" / "plans-v1.json"
"""Plans as ``--json`` saves them and ``--apply`` reads them, by request. Never written again."""


@pytest.mark.parametrize("request_", all_requests(), ids=lambda each: each.kind)
def test_fault_39_a_plan_that_was_saved_is_read_for_ever(request_):
    found = RunCase(DIAMOND).finish_all().plan(request_)
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[request_.kind]
    read = Plan.from_json(golden)
    assert (read.request, read.running) == (found.request, found.running)  # its words for people may change
    assert json.loads(json.dumps(read.to_json())) == golden


@pytest.mark.parametrize("damage", [{"format": 2}, {"regions": [{}]}, {"request": {"kind": "?"}}, {"resets": 7}])
def test_another_document_is_no_plan(damage):
    document = RunCase(CHAIN).plan().to_json() | damage
    with pytest.raises((KeyError, TypeError, ValueError)):
        Plan.from_json(document)


def test_the_difference_of_two_plans():
    case = RunCase(DIAMOND).finish_all()
    before = case.plan()
    assert diff(before, before) == ()
    found = diff(before, case.plan(RestartRegion("C", "ann")))
    assert [each.text() for each in found] == [
        "C: keep @1 -> run @1 (reset (ann: restart C))",
        "E: keep @1 -> run @1 (input is not valid (C))",
    ]


def test_the_difference_of_two_topologies():
    before = RunCase({"P": (), "B": ("P",)}).plan()
    after = RunCase({"P": (), "C": ("P",)}).plan()
    assert [each.text() for each in diff(before, after)] == [
        "C: new, run @0 (never finished)",
        "B: not there any more, was run @0 (never finished)",
    ]


# size


@pytest.mark.slow
def test_a_chain_of_five_thousand_regions_without_recursion():
    names = [f"r{at}" for at in range(5_000)]
    case = RunCase({name: (names[at - 1],) if at else () for at, name in enumerate(names)})
    for at, name in enumerate(names):
        case.attempts[name][1] = RunCase({name: ()}).finish(name).attempts[name][1]
        if at:
            outcome = case.attempts[name][1].outcome
            pins = (InputRef(names[at - 1], 1),)
            case.mark(name, 1, outcome=replace(outcome, inputs=pins))
    found = case.plan(RestartRegion("r0"))
    assert len(found.running) == 5_000
    assert len(found.chain("r4999")) == 5_000
    assert Plan.from_json(json.loads(json.dumps(found.to_json()))) == found


# against a run that is played to its end


@st.composite
def cases(draw: st.DrawFn) -> tuple[RunCase, Request]:
    size = draw(st.integers(1, 7))
    names = [f"r{at}" for at in range(size)]
    upstream = {
        name: tuple(sorted(draw(st.sets(st.sampled_from(names[:at]), max_size=3)))) if at else ()
        for at, name in enumerate(names)
    }
    modes = {name: draw(st.sampled_from([Determinism.ALWAYS, Determinism.ALWAYS, VERIFY, ASSUME])) for name in names}
    case = RunCase(upstream, modes)
    for _ in range(draw(st.integers(0, 3))):
        case.play(lambda region: draw(st.sampled_from(["rows", "rows", "other rows"])))
        for name in names:
            what = draw(st.sampled_from(["nothing"] * 6 + ["lose", "reset", "fail", "release", "report", "open"]))
            latest_attempt = case.state().of(name).latest_attempt
            if what == "lose" and latest_attempt:
                case.lose(name)
            elif what == "reset":
                case.reset(name)
            elif what == "fail" and case.state().of(name).current is None:
                case.fail(name)
            elif what == "release" and latest_attempt:
                case.mark(name, latest_attempt, is_released=True)
            elif what == "report" and latest_attempt:
                case.mark(name, latest_attempt, is_lost=True)
    region = draw(st.sampled_from(names))
    request = draw(
        st.sampled_from(
            [
                plan_making.REBUILD,
                RestartRegion(region),
                RestartFrom(region),
                RecomputeAll(),
                PartitionGone(region),
                CodeChanged(region),
                RegionFailure(region),
                Together((RestartRegion(region), PartitionGone(draw(st.sampled_from(names))))),
            ]
        )
    )
    return case, request


def scenario(case: RunCase, request: Request) -> None:
    """Let ``request`` come true, for good."""
    run = request.apply(Scenario(case.topology, case.state(), case.available))
    case.topology = run.topology
    case.attempts = {name: dict(run.state.of(name).attempts) for name in case.upstream}
    for name in case.upstream:
        now = case.state().of(name).current
        if now is not None and run.available(name, now, name) is not None:
            case.gone.add((name, now.number))


@settings(max_examples=400)
@given(cases(), st.data())
def test_what_is_planned_is_what_then_runs(drawn, data):
    case, request = drawn
    found = case.plan(request)
    run, wait = set(found.running), set(found.names(Action.WAIT))
    scenario(case, request)
    ran = case.play(lambda region: data.draw(st.sampled_from(["rows", "other rows"])))
    assert run <= ran <= run | wait
    if not any(region.determinism for region in case.topology.regions):
        assert ran == run


@settings(max_examples=200)
@given(cases())
def test_invariants_6_and_7_all_regions_disjoint_and_the_restart_set_is_closed(drawn):
    case, request = drawn
    found = case.plan(request)
    assert [region.name for region in found.regions] == list(case.upstream)
    assert sum(len(found.names(action)) for action in Action) == len(found.regions)
    assert len(list(found.vertices())) == sum(len(region.vertices) for region in case.topology.regions)
    moving = set(found.names(Action.RUN, Action.WAIT))
    modes = {
        region.name: dict(region.determinism).get(region.name, Determinism.ALWAYS) for region in case.topology.regions
    }
    for region in found.regions:
        if region.action is not Action.RUN:
            continue
        # consumers by determinism mode
        for consumer in case.upstream:
            if region.name in case.upstream[consumer] and modes[region.name] is Determinism.ALWAYS:
                assert consumer in found.running
        # a reason, whose chain stays inside what moves
        assert region.why is not None
        assert {one.name for one in found.chain(region.name)} <= moving
    # whatever a pre-check would say now is in the plan
    evaluation = Evaluation(case.topology, case.state(), available=case.available)
    if request is plan_making.REBUILD:
        must = {name for name in case.upstream if evaluation.why_must_run(name) is not None}
        assert {name for name in must if not evaluation.is_undecided(name)} <= set(found.running)
