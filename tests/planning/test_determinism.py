"""Early cut-off: which finished consumers stand on a producer that was made again. Each mode, under its topology.

Digests are written as letters: ``finish("P", 2, digest="b")`` is an attempt of P with other rows than one with ``a``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, Outcome, PlanRecord, Reset
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import EarlyCutoff, Reason, Why
from airflow_recovery.planning.restart_set import RestartSet

ALWAYS, VERIFY, ASSUME = Determinism.ALWAYS, Determinism.VERIFY, Determinism.ASSUME
PAIR = {"P": (), "C": ("P",)}
CHAIN = {"P": (), "C": ("P",), "E": ("C",), "G": ("E",)}
JOIN = {"P": (), "Q": (), "C": ("P", "Q")}
DIAMOND = {"P": (), "C": ("P",), "D": ("P",), "E": ("C", "D")}


class Case:
    """A run in which regions finish; every pin takes the digest that its input's attempt had at that time."""

    def __init__(self, upstream: dict[str, tuple[str, ...]], **modes: Determinism) -> None:
        read = {producer for inputs in upstream.values() for producer in inputs}
        self.plan = PlanRecord(
            "job",
            tuple(
                RegionPlan(
                    name=name,
                    vertices=(name,),
                    results=(name,),
                    inputs=inputs,
                    final=name not in read,
                    fingerprint="code 1",
                    reads=inputs,
                    determinism=((name, modes[name]),) if name in modes else (),
                )
                for name, inputs in upstream.items()
            ),
        )
        self.upstream = upstream
        self.attempts: dict[str, dict[int, Attempt]] = {name: {} for name in upstream}
        self.gone: set[tuple[str, int]] = set()

    def finish(
        self, region: str, n: int = 1, *, digest: str | None = "a", rows: int = 10, reads: str = "", **fields: object
    ) -> Case:
        """``reads`` as in ``"P@2"``; default: attempt 1 of each input."""
        text = reads or " ".join(f"{each}@1" for each in self.upstream[region])
        pins = tuple(self._pin(*piece.split("@")) for piece in text.split())
        output = PartitionManifest(region, f"s3://data/{region}/{n}", (), rows, None, digest=digest)
        outcome = Outcome(
            region, n, AttemptState.FINISHED, "w", "now", fingerprint="code 1", inputs=pins, outputs=(output,)
        )
        self.attempts[region][n] = Attempt(
            n,
            is_claimed=True,
            has_outcome=True,
            outcome=replace(outcome, **fields),  # type: ignore[arg-type]
        )
        return self

    def finish_all(self) -> Case:
        for region in self.upstream:
            self.finish(region)
        return self

    def reset(self, region: str, n: int = 1) -> Case:
        marked = replace(self.attempts[region][n], is_reset=True, reset=Reset(region, n, "ann", "wrong"))
        self.attempts[region][n] = marked
        return self

    def forget_pinned_digests(self, region: str) -> Case:
        """As an older version, or a job that did not verify then, has written it."""
        attempt = self.attempts[region][1]
        assert attempt.outcome is not None
        bare = tuple(replace(pin, digests=()) for pin in attempt.outcome.inputs)
        self.attempts[region][1] = replace(attempt, outcome=replace(attempt.outcome, inputs=bare))
        return self

    def evaluate(self) -> Evaluation:
        state = RunState({name: RegionState(found) for name, found in self.attempts.items()})
        return Evaluation(self.plan, state, available=self._probe)

    def standing(self) -> str:
        evaluation = self.evaluate()
        return "".join(name for name in self.upstream if evaluation.invalid_because(name) is None)

    def undecided(self) -> str:
        evaluation = self.evaluate()
        return "".join(name for name in self.upstream if evaluation.is_undecided(name))

    def overtaken(self) -> dict[str, Why]:
        evaluation = self.evaluate()
        found = {name: evaluation.why_overtaken(name, evaluation.basis(name, None)) for name in self.upstream}
        return {name: reason.why for name, reason in found.items() if reason is not None}

    def cutoffs(self, region: str) -> list[str]:
        evaluation = self.evaluate()
        return [cutoff.text() for cutoff in evaluation.early_cutoffs(region, evaluation.basis(region, None))]

    def _pin(self, region: str, number: str) -> InputRef:
        outcome = self.attempts[region][int(number)].outcome
        assert outcome is not None
        digests = tuple((output.result, output.digest) for output in outcome.outputs if output.digest)
        return InputRef(region, int(number), digests)

    def _probe(self, region: str, attempt: Attempt, result: str) -> Reason | None:
        return Reason(region, Why.OUTPUT_MISSING) if (region, attempt.number) in self.gone else None


# the table


@pytest.mark.parametrize(
    ("mode", "digest_now", "why"),
    [
        (ALWAYS, "a", Why.INPUT_REMADE),
        (ALWAYS, "b", Why.INPUT_REMADE),
        (VERIFY, "a", None),
        (VERIFY, "b", Why.INPUT_DIFFERS),
        (VERIFY, None, Why.INPUT_REMADE),
        (ASSUME, "a", None),
        (ASSUME, "b", None),
        (ASSUME, None, None),
    ],
)
def test_a_consumer_of_what_was_made_again(mode: Determinism, digest_now: str | None, why: Why | None) -> None:
    #  P@1, P@2 -> C@1, which read P@1
    case = Case(PAIR, P=mode).finish_all().finish("P", 2, digest=digest_now)
    reason = case.evaluate().why_must_run("C")
    assert (reason and reason.why) == why
    assert case.overtaken() == ({} if why is None else {"C": why})


@pytest.mark.parametrize("mode", Determinism)
def test_the_attempt_that_was_read_needs_no_digest(mode: Determinism) -> None:
    case = Case(PAIR, P=mode).finish("P", digest=None).finish("C")
    assert (case.standing(), case.overtaken(), case.cutoffs("C")) == ("PC", {}, [])


def test_without_a_word_the_mode_is_always() -> None:
    assert Case(PAIR).finish_all().finish("P", 2).standing() == "P"


def test_a_trace_without_digests_is_held_to_the_attempt() -> None:
    case = Case(PAIR, P=VERIFY).finish_all().finish("P", 2).forget_pinned_digests("C")
    reason = case.evaluate().why_must_run("C")
    assert (reason.why, reason.detail, reason.source) == (
        Why.INPUT_REMADE, "read P@1, now @2; P has no digest of both", "P",
    )  # fmt: skip


@pytest.mark.parametrize("digest", ["files1-b", "ordered1-b"])
def test_of_files_that_differ_nobody_says_that_the_rows_do(digest: str) -> None:
    reason = Case(PAIR, P=VERIFY).finish_all().finish("P", 2, digest=digest).evaluate().why_must_run("C")
    said = "read P@1, now @2; P has other files, or its rows in another order"
    assert reason == Reason("C", Why.INPUT_REMADE, said, source="P")


def test_the_reason_names_both_digests_and_the_result() -> None:
    reason = Case(PAIR, P=VERIFY).finish_all().finish("P", 2, digest="b").evaluate().why_must_run("C")
    assert reason == Reason("C", Why.INPUT_DIFFERS, "read P@1, now @2; P has other rows: digest a, now b", source="P")


# through several levels


def test_early_cut_off_holds_through_several_levels() -> None:
    #  P@2 -> C@1 -> E@1 -> G@1
    case = Case(CHAIN, P=VERIFY).finish_all().finish("P", 2)
    assert case.standing() == "PCEG"
    assert case.cutoffs("C") == ["digest equal: C read P@1, now @2"]
    assert case.cutoffs("E") == []


def test_a_trace_is_compared_with_the_current_finish_whatever_came_between() -> None:
    #  P@1: a, P@2: b, P@3: a
    case = Case(CHAIN, P=VERIFY).finish_all().finish("P", 2, digest="b")
    assert case.standing() == "P"
    assert case.finish("P", 3, digest="a").standing() == "PCEG"


def test_a_consumer_that_ran_again_with_equal_rows_is_where_it_is_cut_off() -> None:
    #  P@2 has other rows; C@2, which read them, has the same rows as C@1
    case = Case(CHAIN, P=VERIFY, C=VERIFY).finish_all().finish("P", 2, digest="b").finish("C", 2, reads="P@2")
    assert case.standing() == "PCEG"
    assert case.cutoffs("E") == ["digest equal: E read C@1, now @2"]


def test_each_producer_has_its_own_mode() -> None:
    #  P -> C <- Q
    case = Case(JOIN, P=VERIFY).finish_all()
    assert case.finish("P", 2).standing() == "PQC"
    assert case.finish("Q", 2).standing() == "PQ"


def test_branches_that_read_different_attempts_may_meet_again() -> None:
    #  P -> C, D -> E; D@2 read P@2, C@1 read P@1: equal digests
    case = Case(DIAMOND, P=VERIFY, C=VERIFY, D=VERIFY).finish_all().finish("P", 2).finish("D", 2, reads="P@2")
    assert case.standing() == "PCDE"
    assert case.finish("P", 3, digest="b").standing() == "P"


def test_a_consumer_stands_only_where_its_input_does() -> None:
    #  assume: any finish of P will do, but there must be one
    assert Case(CHAIN, P=ASSUME).finish_all().reset("P").standing() == ""


# undecided


@pytest.mark.parametrize(("mode", "undecided"), [(ALWAYS, ""), (VERIFY, "CEG"), (ASSUME, "CEG")])
def test_while_a_producer_has_no_finish_its_consumers_are_undecided(mode: Determinism, undecided: str) -> None:
    case = Case(CHAIN, P=mode).finish_all().reset("P")
    assert (case.standing(), case.undecided(), case.overtaken()) == ("", undecided, {"P": Why.RESET})
    evaluation = case.evaluate()
    assert evaluation.why_must_run("C").why is Why.INPUT_INVALID
    assert evaluation.always_follows("C", "P") is (mode is ALWAYS)


def test_who_must_run_in_any_case_is_not_undecided() -> None:
    case = Case(JOIN, P=VERIFY).finish_all().reset("P")
    assert case.undecided() == "C"
    assert case.finish("Q", 2).undecided() == ""  # always: Q was made again
    case = Case(JOIN, P=VERIFY).finish_all().reset("P").reset("Q")
    assert case.undecided() == ""


def test_whoever_reads_an_undecided_region_is_undecided_too_whatever_the_mode() -> None:
    #  P (verify) -> C (always) -> E: if C turns out to stand, E does
    case = Case(CHAIN, P=VERIFY, C=ALWAYS).finish_all().reset("P")
    assert case.undecided() == "CEG"
    assert case.finish("P", 2, digest="b").undecided() == ""
    assert case.undecided() == ""


def test_who_read_an_earlier_attempt_of_an_undecided_region_is_decided() -> None:
    #  P (assume) -> C (always) -> E: E@1 read C@1. Whether C@2 counts again or C runs, C@1 does not.
    case = Case(CHAIN, P=ASSUME).finish_all().finish("C", 2).reset("P")
    assert case.undecided() == "C"
    assert RestartSet(case.evaluate(), same_rows=True).why("E") == Reason(
        "E", Why.INPUT_REMADE, "read C@1, now @2", source="C"
    )


def test_who_read_other_rows_of_an_undecided_region_runs_where_that_is_kept() -> None:
    #  P (assume) -> C (verify) -> E: C@2 has other rows than C@1, which E read. It may yet be made as it was.
    case = Case(CHAIN, P=ASSUME, C=VERIFY).finish_all().finish("C", 2, digest="b").reset("P")
    assert case.undecided() == "CEG"
    assert set(RestartSet(case.evaluate(), same_rows=True)) == set("PEG")


# what is told


def test_an_assumed_input_with_another_number_of_rows_is_told() -> None:
    case = Case(PAIR, P=ASSUME).finish_all().finish("P", 2, rows=12)
    evaluation = case.evaluate()
    (found,) = evaluation.early_cutoffs("C", evaluation.basis("C", None))
    assert found == EarlyCutoff("C", "P", 1, 2, ASSUME, "P had 10 rows, has 12")
    assert found.text() == "assumed: C read P@1, now @2 (P had 10 rows, has 12)"


def test_one_that_is_overtaken_is_no_early_cut_off() -> None:
    assert Case(PAIR, P=VERIFY).finish_all().finish("P", 2, digest="b").cutoffs("C") == []


# an edge is what is read


def both(n: int, left: str, right: str) -> Attempt:
    outputs = tuple(
        PartitionManifest(name, f"s3://data/{n}/{name}", (), 1, digest=digest)
        for name, digest in (("left", left), ("right", right))
    )
    outcome = Outcome("P", n, AttemptState.FINISHED, "w", "now", fingerprint="f", outputs=outputs)
    return Attempt(n, is_claimed=True, has_outcome=True, outcome=outcome)


@pytest.mark.parametrize(
    ("modes", "reads", "stands"),
    [
        ({"left": VERIFY, "right": VERIFY}, ("left",), True),
        ({"left": VERIFY, "right": VERIFY}, ("right",), False),
        ({"left": VERIFY, "right": VERIFY}, ("left", "right"), False),
        ({"left": VERIFY}, ("left",), True),
        ({"left": VERIFY}, ("left", "right"), False),
        ({"left": VERIFY, "right": ASSUME}, ("left", "right"), True),
        ({"left": VERIFY, "right": ASSUME}, (), True),
        ({"left": VERIFY}, (), False),
        ({"left": VERIFY}, ("gone",), False),
    ],
)
def test_of_a_region_with_two_results_only_those_that_are_read_count(
    modes: dict[str, Determinism], reads: tuple[str, ...], stands: bool
) -> None:
    """``left`` has the same rows again, ``right`` has not. A plan that does not tell what is read means all of it."""
    plan = PlanRecord(
        "job",
        (
            RegionPlan("P", ("P",), ("left", "right"), (), False, "f", determinism=tuple(modes.items())),
            RegionPlan("C", ("C",), ("C",), ("P",), True, "f", reads=reads),
        ),
    )
    pin = InputRef("P", 1, (("left", "a"), ("right", "a")))
    consumer = Outcome("C", 1, AttemptState.FINISHED, "w", "now", fingerprint="f", inputs=(pin,))
    state = RunState(
        {
            "P": RegionState({1: both(1, "a", "a"), 2: both(2, "a", "b")}),
            "C": RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=consumer)}),
        }
    )
    evaluation = Evaluation(plan, state, available=lambda *asked: None)
    assert (evaluation.invalid_because("C") is None) is stands


# what the undecided want


def test_who_is_undecided_wants_nothing_yet() -> None:
    #  P (verify) -> C <- Q: P is being made again, Q is gone
    case = Case(JOIN, P=VERIFY).finish_all().reset("P")
    case.gone = {("Q", 1)}
    evaluation = case.evaluate()
    assert evaluation.why_must_run("Q") is None
    assert list(evaluation.lost_inputs("C")) == ["P"]

    evaluation = case.finish("P", 2, digest="b").evaluate()
    assert evaluation.why_must_run("Q").why is Why.OUTPUT_MISSING
    assert list(evaluation.lost_inputs("C")) == ["Q"]

    assert Case(JOIN, P=VERIFY).finish_all().finish("P", 2).evaluate().why_must_run("Q") is None


def test_who_has_lost_its_own_wanted_result_is_not_undecided() -> None:
    case = Case(JOIN, P=VERIFY).finish_all().reset("P")
    case.gone = {("C", 1), ("Q", 1)}
    evaluation = case.evaluate()
    assert (evaluation.is_undecided("C"), evaluation.why_must_run("C").why) == (False, Why.OUTPUT_MISSING)
    assert list(evaluation.lost_inputs("C")) == ["P", "Q"]
