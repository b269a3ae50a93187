"""`stands`, `available`, `wanted`, `must_run`, and what is lost: truth tables, each under its topology."""

from __future__ import annotations

import cProfile
import pstats
from dataclasses import replace

import pytest
from expected_errors import fails_with
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import AttemptState, Claim, ExternalObject, Outcome, PlanRecord, Reset
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason, Why

CHAIN = {"P": (), "C": ("P",), "E": ("C",)}
DIAMOND = {"P": (), "C": ("P",), "D": ("P",), "E": ("C", "D")}
FORK = {"P": (), "C": ("P",), "D": ("P",)}


class Case:
    """A state of a run, built by saying what happened. ``probed`` records whose data was asked for."""

    def __init__(self, upstream: dict[str, tuple[str, ...]], *, code: dict[str, str | None] | None = None) -> None:
        read = {producer for inputs in upstream.values() for producer in inputs}
        self.plan = PlanRecord(
            "job",
            tuple(
                RegionPlan(name, (name,), (name,), inputs, name not in read, (code or {}).get(name, "code 1"))
                for name, inputs in upstream.items()
            ),
        )
        self.upstream = upstream
        self.attempts: dict[str, dict[int, Attempt]] = {name: {} for name in upstream}
        self.gone: set[tuple[str, int]] = set()
        self.probed: list[str] = []
        self.externals: dict[str, tuple[ExternalObject, ...]] = {}

    def finish(self, region: str, n: int = 1, inputs: str = "", **fields: object) -> Case:
        """``inputs`` as in ``"P@1 C@2"``; default: attempt 1 of each."""
        text = inputs or " ".join(f"{each}@1" for each in self.upstream[region])
        pins = tuple(InputRef(piece.split("@")[0], int(piece.split("@")[1])) for piece in text.split())
        fields = {"fingerprint": "code 1", "inputs": pins, **fields}
        outcome = Outcome(region, n, AttemptState.FINISHED, "w", "now", **fields)  # type: ignore[arg-type]
        self.attempts[region][n] = Attempt(n, is_claimed=True, has_outcome=True, outcome=outcome)
        return self

    def finish_all(self) -> Case:
        for region in self.upstream:
            self.finish(region)
        return self

    def mark(self, region: str, n: int = 1, **marks: object) -> Case:
        self.attempts[region][n] = replace(self.attempts[region].get(n, Attempt(n)), **marks)  # type: ignore[arg-type]
        return self

    def open(self, region: str, n: int, inputs: str, ti_id: str) -> Case:
        pins = tuple(InputRef(piece.split("@")[0], int(piece.split("@")[1])) for piece in inputs.split())
        claim = Claim(region, n, "w", "plan", pins, "run", 1, ti_id, "tag", "now")
        return self.mark(region, n, is_claimed=True, claim=claim)

    def lose(self, region: str, n: int = 1) -> Case:
        self.gone.add((region, n))
        return self

    def state(self) -> RunState:
        return RunState({name: RegionState(found) for name, found in self.attempts.items()})

    def evaluate(self) -> Evaluation:
        return Evaluation(self.plan, self.state(), available=self._probe, externals=self.externals)

    def _probe(self, region: str, attempt: Attempt, result: str) -> Reason | None:
        self.probed.append(region)
        return Reason(region, Why.OUTPUT_MISSING) if (region, attempt.number) in self.gone else None

    def must_run(self) -> str:
        evaluation = self.evaluate()
        return "".join(name for name in self.upstream if evaluation.why_must_run(name) is not None)

    def why(self, region: str) -> Why | None:
        reason = self.evaluate().why_must_run(region)
        return None if reason is None else reason.why

    def lost(self, region: str) -> dict[str, Why]:
        return {name: reason.why for name, reason in self.evaluate().lost_inputs(region).items()}


# each cause


def test_a_run_without_a_journal_runs_everything():
    #  P -> C -> E
    case = Case(CHAIN)
    assert case.must_run() == "PCE"
    assert case.why("P") is Why.NEVER_FINISHED
    assert case.probed == []


def test_a_finished_run_keeps_everything():
    assert Case(CHAIN).finish_all().must_run() == ""


def test_a_reset_counts_for_attempts_up_to_it():
    case = Case(CHAIN).finish_all().mark("C", 1, is_reset=True, reset=Reset("C", 1, "ann", "wrong rows"))
    assert case.must_run() == "CE"
    reason = case.evaluate().why_must_run("C")
    assert (reason.why, reason.detail) == (Why.RESET, "ann: wrong rows")
    assert case.evaluate().why_must_run("E").text() == "E: input is not valid (C) <- C: reset (ann: wrong rows)"


def test_a_reset_does_not_bring_an_older_attempt_back():
    case = Case({"P": ()}).finish("P", 1).finish("P", 2).mark("P", 2, is_reset=True)
    assert case.evaluate().current("P") is None
    assert case.why("P") is Why.RESET


def change_region(case, name, **changes):
    regions = (replace(region, **changes) if region.name == name else region for region in case.plan.regions)
    case.plan = replace(case.plan, regions=tuple(regions))


@pytest.mark.parametrize(
    ("place", "must_run"),
    [("iceberg://lake/db.p", "PC"), ("delta+s3://lake/p", "PC"), ("s3://lake/p", ""), (None, "")],
)
def test_fault_177_an_attempt_that_was_given_up_may_have_been_committed_to_the_table_of_the_one_that_counts(
    place, must_run
):
    """Of a folder, its objects are compared; a table that is at another attempt looks whole."""
    case = Case({"P": (), "C": ("P",)}).finish_all().mark("P", 2, is_claimed=True, has_outcome=True)
    fixed = () if place is None else (("P", place),)
    change_region(case, "P", fixed=fixed)
    assert case.must_run() == must_run
    if must_run:
        detail = "P: result was altered (attempt 2 may have been committed to its table after attempt 1)"
        assert case.evaluate().why_must_run("P").text() == detail


@pytest.mark.parametrize(("results", "must_run"), [((), "C"), (("C",), "")])
def test_fault_177_an_attempt_that_was_given_up_may_have_written_over_what_nobody_can_look_at(results, must_run):
    """A transfer to a database has no result here: what an attempt that died has left there is not seen."""
    case = Case({"P": (), "C": ("P",)}).finish_all().mark("C", 2, is_claimed=True, has_outcome=True)
    change_region(case, "C", results=results)
    assert case.must_run() == must_run
    if must_run:
        detail = "C: result was altered (attempt 2 may have written over what attempt 1 has)"
        assert case.evaluate().why_must_run("C").text() == detail
        assert case.finish("C", 3).must_run() == ""


def test_changed_code_runs_the_region_and_what_rests_on_it():
    #      P
    #    /   \
    #   C     D
    #    \   /
    #      E
    case = Case(DIAMOND, code={"C": "code 2"}).finish_all()
    assert case.must_run() == "CE"
    assert (case.why("C"), case.why("E")) == (Why.CODE_CHANGED, Why.INPUT_INVALID)


def test_a_fingerprint_that_is_not_known_here_is_taken_as_it_is():
    assert Case(CHAIN, code={"C": None}).finish_all().must_run() == ""


@pytest.mark.parametrize(
    ("now", "detail"),
    [
        ((), "s3://a is gone"),
        ((ExternalObject("P", "s3://a", 1, "other"),), "s3://a has other content"),
        ((ExternalObject("P", "s3://a", 1, "e"), ExternalObject("P", "s3://b", 1, "e")), "s3://b is new"),
    ],
)
def test_a_changed_external_input_runs_the_region(now, detail):
    case = Case(CHAIN).finish_all().finish("P", externals=(ExternalObject("P", "s3://a", 1, "e"),))
    case.externals = {"P": now}
    reason = case.evaluate().why_must_run("P")
    assert (reason.why, reason.detail) == (Why.EXTERNAL_CHANGED, detail)


def test_external_inputs_of_other_regions_are_taken_as_recorded():
    case = Case(CHAIN).finish_all().finish("P", externals=(ExternalObject("P", "s3://a", 1, "e"),))
    case.externals = {"C": ()}
    assert case.must_run() == ""


def test_other_inputs_than_were_read():
    case = Case({"P": (), "Q": (), "C": ("P", "Q")}).finish("P").finish("Q").finish("C", inputs="P@1")
    assert case.why("C") is Why.INPUTS_CHANGED


def test_an_input_that_was_made_again():
    case = Case(CHAIN).finish_all().finish("P", 2)
    assert case.must_run() == "CE"
    reason = case.evaluate().why_must_run("C")
    assert (reason.why, reason.detail) == (Why.INPUT_REMADE, "read P@1, now @2")


def test_a_later_claim_supersedes_nothing():
    """Hole 11."""
    assert Case(CHAIN).finish_all().open("P", 2, "", "x").must_run() == ""


def test_a_fenced_attempt_supersedes_nothing():
    case = Case(CHAIN).finish_all()
    fenced = Outcome("P", 2, AttemptState.FENCED, "w", "now")
    assert case.mark("P", 2, is_claimed=True, has_outcome=True, outcome=fenced).must_run() == ""


def test_an_unknown_region_is_named():
    with fails_with("region-not-planned", found="X"):
        Case(CHAIN).evaluate().why_must_run("X")


# availability


@pytest.mark.parametrize(
    ("lost", "must_run"),
    [
        #  P -> C -> E: only E is final, so only E's data is wanted
        ("", ""),
        ("P", ""),
        ("C", ""),
        ("PC", ""),
        ("E", "E"),
        ("CE", "CE"),
        ("PE", "E"),
        ("PCE", "PCE"),
    ],
)
def test_what_is_lost_in_a_chain_runs_where_somebody_wants_it(lost, must_run):
    case = Case(CHAIN).finish_all()
    for region in lost:
        case.lose(region)
    assert case.must_run() == must_run


@pytest.mark.parametrize(
    ("lost", "must_run"),
    [("P", ""), ("E", "E"), ("CE", "CE"), ("PE", "E"), ("PDE", "PDE"), ("PCDE", "PCDE")],
)
def test_what_is_lost_in_a_diamond(lost, must_run):
    case = Case(DIAMOND).finish_all()
    for region in lost:
        case.lose(region)
    assert case.must_run() == must_run


def test_case_6_wanted_is_recursive():
    """P was released, C's result is lost, E wants it: P must not say "all my consumers stand"."""
    case = Case(CHAIN).finish("P").finish("C").mark("P", 1, is_released=True).lose("C")
    assert case.must_run() == "PCE"
    assert (case.why("P"), case.why("C")) == (Why.OUTPUT_RELEASED, Why.OUTPUT_MISSING)


def test_case_7_a_released_result_that_nobody_wants_is_no_reason_to_run():
    assert Case(CHAIN).finish_all().mark("P", 1, is_released=True).must_run() == ""


def test_a_reported_loss_makes_the_owner_look_and_no_more():
    case = Case(CHAIN).finish_all().mark("P", 1, is_lost=True)
    assert case.must_run() == ""
    assert "P" in case.probed
    assert case.lose("P").must_run() == "P"


def test_only_wanted_results_are_probed_and_each_once():
    case = Case(CHAIN).finish_all()
    evaluation = case.evaluate()
    for region in "PCECP":
        evaluation.why_must_run(region)
    assert case.probed == ["E"]


def test_a_region_asks_for_the_data_of_its_descendants_only():
    #   P -> C
    #    \-> D
    case = Case(FORK).finish_all()
    case.evaluate().why_must_run("C")
    assert case.probed == ["C"]


def test_a_released_result_is_not_probed():
    case = Case(FORK).finish_all().mark("C", 1, is_released=True)
    assert case.why("C") is Why.OUTPUT_RELEASED
    assert case.probed == []


def test_denied_is_an_error_and_no_answer():
    case = Case(FORK).finish_all()

    def denied(region: str, attempt: Attempt, result: str) -> Reason | None:
        raise StoreAccessDenied("403")

    with pytest.raises(StoreAccessDenied):
        Evaluation(case.plan, case.state(), available=denied).why_must_run("C")


# lost inputs


def test_the_walk_goes_up_only_while_it_has_to():
    #  A -> B -> P -> C
    case = (
        Case({"A": (), "B": ("A",), "P": ("B",), "C": ("P",)}).finish("A").finish("B").finish("P").lose("A").lose("P")
    )
    assert case.lost("C") == {"P": Why.OUTPUT_MISSING}  # B is there, so nobody asks for A
    assert case.probed == ["P", "B"]


def test_one_decision_sees_every_loss():
    #   A   B
    #    \ /
    #     C
    case = Case({"A": (), "B": (), "C": ("A", "B")}).finish("A").finish("B").lose("A").lose("B")
    assert case.lost("C") == {"A": Why.OUTPUT_MISSING, "B": Why.OUTPUT_MISSING}


def test_every_input_of_every_region_on_the_way_is_asked_for():
    #   A   B
    #    \ / \
    #     P   |
    #      \  |
    #        C
    case = Case({"A": (), "B": (), "P": ("A", "B"), "C": ("P", "B")}).finish("A").finish("B").finish("P").lose("P")
    assert case.lost("C") == {"P": Why.OUTPUT_MISSING}
    assert sorted(case.probed) == ["A", "B", "P"]


def test_lost_inputs_come_in_topological_order():
    case = Case(DIAMOND)
    assert list(case.lost("E")) == ["P", "C", "D"]


# basis and overtaken


def test_the_basis_of_a_try_is_its_own_open_claim_else_the_current_finish():
    case = Case(FORK).finish("P").finish("P", 2).finish("C").open("C", 2, "P@2", "mine")
    evaluation = case.evaluate()
    assert evaluation.basis("C", "mine") == (InputRef("P", 2),)
    assert evaluation.basis("C", "another") == (InputRef("P", 1),)  # crash case 3: a zombie's claim
    assert evaluation.basis("C", None) == (InputRef("P", 2),)
    assert evaluation.basis("D", "mine") is None


@pytest.mark.parametrize(
    ("basis", "why"),
    [
        ((InputRef("P", 1),), Why.INPUT_REMADE),
        ((InputRef("P", 2),), None),
        ((InputRef("gone", 1),), None),
        (None, None),
    ],
)
def test_overtaken_by_a_finish(basis, why):
    case = Case(FORK).finish("P").finish("P", 2)
    found = case.evaluate().why_overtaken("C", basis)
    assert (found.why if found else None) == why


def test_overtaken_by_a_reset():
    case = Case(FORK).finish("P").finish("C").mark("C", 1, is_reset=True)
    assert case.evaluate().why_overtaken("C", None).why is Why.RESET


def test_an_input_without_a_current_finish_overtakes_nobody():
    case = Case(FORK).finish("P").mark("P", 1, is_reset=True).finish("C")
    assert case.evaluate().why_overtaken("C", (InputRef("P", 1),)) is None


# size


def judge_a_chain(length: int) -> int:
    """How many functions are called to judge a chain of ``length`` regions, the first of which is reset."""
    names = [f"r{at}" for at in range(length)]
    upstream: dict[str, tuple[str, ...]] = {name: (names[at - 1],) if at else () for at, name in enumerate(names)}
    case = Case(upstream).finish_all().mark("r0", 1, is_reset=True)
    with cProfile.Profile() as calls:
        evaluation = case.evaluate()
        assert all(evaluation.why_must_run(name) is not None for name in names)
        assert len(evaluation.lost_inputs(names[-1])) == length - 1
        text = evaluation.why_must_run(names[-1]).text()
    assert f"... {length - 5} more ... <- r0: reset" in text
    assert len(text) < 500
    return int(pstats.Stats(calls).total_calls)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_chain_of_ten_thousand_regions_is_judged_without_recursion_and_ten_times_as_long_costs_ten_times_as_much():
    assert judge_a_chain(10_000) < 12 * judge_a_chain(1_000)


# against an oracle


def naive(case: Case, today: dict[str, str]) -> tuple[set[str], set[str]]:
    """(standing, must run), as docs/protocol.md#evaluation reads, by plain recursion."""
    plan = {region.name: region for region in case.plan.regions}
    state = case.state()

    def mark(region: str) -> int:
        return max([n for n, each in case.attempts[region].items() if each.is_reset], default=0)

    def current(region: str) -> Attempt | None:
        finished = [
            each
            for n, each in case.attempts[region].items()
            if n > mark(region) and each.outcome is not None and each.outcome.state is AttemptState.FINISHED
        ]
        return max(finished, key=lambda item: item.number) if finished else None

    def stands(region: str) -> bool:
        attempt = current(region)
        if attempt is None or attempt.outcome.fingerprint != today[region]:
            return False
        return all(stands(pin.region) and current(pin.region).number == pin.attempt for pin in attempt.outcome.inputs)

    def available(region: str) -> bool:
        attempt = current(region)
        return not attempt.is_released and (region, attempt.number) not in case.gone

    def must_run(region: str) -> bool:
        consumers = [name for name, each in plan.items() if region in each.inputs]
        wanted = plan[region].final or any(must_run(consumer) for consumer in consumers)
        return not stands(region) or ((wanted or current(region).is_lost) and not available(region))

    assert set(state.regions) == set(plan)
    return {name for name in plan if stands(name)}, {name for name in plan if must_run(name)}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, dict[str, str]]:
    size = draw(st.integers(1, 6))
    names = [f"r{at}" for at in range(size)]
    upstream = {
        name: tuple(sorted(draw(st.sets(st.sampled_from(names[:at]), max_size=3)))) if at else ()
        for at, name in enumerate(names)
    }
    today = {name: draw(st.sampled_from(["code 1", "code 1", "code 1", "code 2"])) for name in names}
    case = Case(upstream, code=dict(today))
    for name in names:
        for n in range(1, draw(st.integers(0, 3)) + 1):
            readable = [
                [m for m in case.attempts[each] if case.attempts[each][m].is_finished] for each in upstream[name]
            ]
            if draw(st.booleans()) and all(readable):
                pins = " ".join(
                    f"{each}@{draw(st.sampled_from(found))}"
                    for each, found in zip(upstream[name], readable, strict=True)
                )
                case.finish(name, n, pins)
            else:
                fenced = Outcome(name, n, AttemptState.FENCED, "w", "now")
                case.mark(name, n, is_claimed=True, has_outcome=True, outcome=fenced)
            for flag in ("is_reset", "is_released", "is_lost"):
                if draw(st.integers(0, 9)) == 0:
                    case.mark(name, n, **{flag: True})
            if draw(st.integers(0, 4)) == 0:
                case.lose(name, n)
    return case, today


@settings(max_examples=300)
@given(cases())
def test_the_judgement_agrees_with_a_naive_oracle(drawn):
    case, today = drawn
    standing, must_run = naive(case, today)
    evaluation = case.evaluate()
    assert {name for name in case.upstream if evaluation.invalid_because(name) is None} == standing
    assert {name for name in case.upstream if evaluation.why_must_run(name) is not None} == must_run
    # One region's own look gives the same answer as a look at all of them.
    for name in case.upstream:
        assert (case.evaluate().why_must_run(name) is not None) == (name in must_run)


@settings(max_examples=200)
@given(cases())
def test_flinks_restart_set_is_what_then_runs(drawn):
    """Whatever a region that must run would wake must run by its owner's own judgement too: no ping-pong."""
    case, today = drawn
    _, must_run = naive(case, today)
    evaluation = case.evaluate()
    for name in must_run:
        assert set(evaluation.lost_inputs(name)) <= must_run
