"""What a try of a pure history comes to: the product's own decisions over a `RunState` made of values.

Everything here is a function of values, and its answers are kept: many histories of one job come by the same states.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from airflow_recovery.attempt.absent_inputs import absent_by_states
from airflow_recovery.attempt.data_interval import of_another_interval
from airflow_recovery.attempt.publish import left_out_by_states, not_over
from airflow_recovery.attempt.region_task import outdated_finish
from airflow_recovery.errors import InputFailed, InputPending, InputSkipped
from airflow_recovery.journal.run_state import NEVER_STARTED, Attempt, RegionState, RunState
from airflow_recovery.model.committing import CommitMode
from airflow_recovery.model.dag_run import DagRunRecord
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import ExternalObject, Outcome, PlanRecord
from airflow_recovery.planning.evaluation import Available, Evaluation
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.sinks.committer import FoundRows, Rows
from airflow_recovery.testing.fake_airflow import ALL_SUCCESS
from airflow_recovery.testing.simulation.dag_run import PUBLISH
from simulation.dag_job import DagJob, code_of
from simulation.run_of_dag import InRun

WAITS = "waits"
Gone = frozenset[tuple[str, str]]
"""(region, writer) of the attempts of which no data is left."""


class Kept(Enum):
    """What a try does about what its valid attempt has left outside the run: in Airflow, or in a target."""

    AS_IT_IS = "nothing"
    AGAIN = "leaves it there again"
    RUNS = "runs"
    STOPS = "fails"


@dataclass(frozen=True)
class Question:
    """What a try of ``region`` begins with. ``states``: the tasks of its inputs in Airflow, by the input's name."""

    plan: PlanRecord
    state: RunState
    region: str
    trigger_rule: str
    states: Mapping[str, str | None]
    externals: tuple[ExternalObject, ...]
    available: Available
    unkept: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """Which attempts count for a try, and which inputs are absent.

    ``ends_as``: the try ends as ``skipped`` or ``failed`` at once, because of an input that this run does not have; or
    it `WAITS` for one that has not ended. ``evaluation`` is not looked at then.
    ``claimed`` and ``finished`` are further fields of its claim and of its outcome; ``kept`` those that the region's
    newest attempt gets if the try keeps what is there.
    """

    evaluation: Evaluation | None
    absent: tuple[str, ...] = ()
    ends_as: str | None = None
    claimed: Mapping[str, Any] = field(default_factory=dict)
    finished: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)


def leaves(are_stored: bool) -> Kept:
    """What a try does about the XComs of a valid attempt, as `airflow_recovery.task.drop_in` does."""
    return Kept.AGAIN if are_stored else Kept.RUNS


def xcom_counts(state: str | None) -> bool:
    """Whether an argument may hold the XCom of a task in this state, as in `airflow_recovery.task.rendered_xcoms`."""
    return state == "success"


def keeps_rows(found: FoundRows, mode: CommitMode, is_gone: bool) -> Kept:
    """What a try does about a valid attempt of a sink, as `airflow_recovery.attempt.commit.keep_rows` does.

    ``is_gone``: what the attempt has prepared is not there any more.
    """
    if found.rows is Rows.THERE:
        return Kept.AS_IT_IS
    if not found.may_be_committed_again(mode):
        return Kept.STOPS
    return Kept.RUNS if is_gone else Kept.AGAIN


def look(question: Question) -> Look:
    """As a try of `airflow_recovery.attempt.region_task` begins."""
    state, region = question.state, question.region
    try:
        absent = absent_by_states(question.plan.by_name[region], question.trigger_rule, question.states)
    except InputFailed:
        return Look(None, ends_as="failed")
    except InputSkipped:
        return Look(None, ends_as="skipped")
    except InputPending:
        return Look(None, ends_as=WAITS)
    evaluation = Evaluation(
        question.plan,
        state,
        available=question.available,
        externals={region: question.externals},
        absent={region: absent},
        unkept=question.unkept,
    )
    claimed = {"outdated": outdated_finish(evaluation, region), "absent": absent}
    kept = {"is_kept": True} if state.of(region).outdated_since is not None else {}
    return Look(evaluation, absent, None, claimed, {"absent": absent}, kept)


def left_out(evaluation: Evaluation, states: Mapping[str, str | None]) -> frozenset[str] | None:
    """As `airflow_recovery.attempt.publish` does."""
    try:
        return left_out_by_states(evaluation.topology, states)
    except InputFailed:
        return None


def is_declared_otherwise(made_by: str | None, today: str | None) -> bool:
    """Whether another task has the operator look first, as `airflow_recovery.attempt.declarations` does.

    ``made_by``, ``today``: fingerprints, of which others know the part that is not rendered.
    """
    return code_of(made_by) != code_of(today)


class Product(NamedTuple):
    """What is searched for histories against the rule: the decisions that a control replaces by others."""

    look: Callable[[Question], Look] = look
    """Which attempts count for a try, and which inputs are absent."""
    left_out: Callable[[Evaluation, Mapping[str, str | None]], frozenset[str] | None] = left_out
    """The regions of which a publish hands out no result, by the states of all tasks; `None`: the publish fails."""
    is_declared_otherwise: Callable[[str | None, str | None], bool] = is_declared_otherwise
    """Of an operator's attempt: whether the operator has to look before another task rests on it."""
    not_over: Callable[[Iterable[str], Mapping[str, str | None]], Sequence[str]] = not_over
    """Of the regions whose results a publish would name, those for which it waits."""
    respects_marks: bool = True
    """Recovery clears no task that a person has marked as failed."""
    leaves: Callable[[bool], Kept] = leaves
    """What a kept try does about XComs, which are stored or not."""
    xcom_counts: Callable[[str | None], bool] = xcom_counts
    """Whether an argument may hold the XCom of a task in this state."""
    refuses: Callable[[DagRunRecord, Iterable[Outcome]], Outcome | None] = of_another_interval
    """The finish that a run which was triggered by hand must not replace, and must not be joined with."""
    keeps_rows: Callable[[FoundRows, CommitMode, bool], Kept] = keeps_rows
    """What a kept try does about the rows of its sink."""
    has_tokens: bool = True
    """An attempt that is read is known by the process that has finished it, and not by its number alone."""


TODAY = Product()


@dataclass(frozen=True)
class Decision:
    """What a try comes to. ``lost``: what must be made again before; ``reported``: of these, what is not there.

    ``xcoms``: what a kept try does about those of its attempt. ``is_refused``: it ends because of the run's interval.
    """

    lost: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    inputs: tuple[InputRef, ...] = ()
    runs: bool = False
    ends_as: str | None = None
    claimed: Mapping[str, Any] = field(default_factory=dict)
    finished: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    handed_out: tuple[str, ...] = ()
    xcoms: Kept = Kept.AS_IT_IS
    is_refused: bool = False


class Known:
    """What many histories of one job have in common. Everything in it is the answer of a pure function.

    ``regions``: the states that a region has come to, each with a number; so a run's state is a tuple of numbers.
    """

    def __init__(self, job: DagJob, product: Product = TODAY) -> None:
        self.job = job
        self.product = product
        self.regions: list[RegionState] = [NEVER_STARTED]
        self._after: dict[tuple[int, Any], int] = {}
        self._jobs: dict[Any, DagJob] = {}
        self._given: dict[Any, DagJob] = {}
        self._decisions: dict[Any, Decision] = {}
        self._overtaken: dict[Any, tuple[str, ...]] = {}

    def today(
        self, codes: tuple[tuple[int, str], ...], listings: tuple[tuple[str, tuple[str, ...]], ...], run: InRun
    ) -> DagJob:
        """The job with these versions of its regions' code, and these external inputs, in that run."""
        arguments = run.interval, run.param
        known = self._jobs.get((codes, listings, arguments))
        if known is None:
            known = replace(self.job, listings=dict(listings))
            for name, (version, end) in zip(self.job.regions, codes, strict=True):
                known = known.with_code(name, version, end) if version else known
            known = known.of_run(*arguments)
            self._jobs[codes, listings, arguments] = known
        return known

    def given(self, job: DagJob, region: str, xcoms: Mapping[str, str | None]) -> DagJob:
        """``job`` as the task of ``region`` knows it that finds these XComs of its inputs."""
        if region not in job.pulls:
            return job
        key = id(job), region, tuple(xcoms.items())
        if key not in self._given:
            self._given[key] = job.given(region, xcoms)
        return self._given[key]

    def after(self, region: int, event: Any, change: Callable[[RegionState], RegionState]) -> int:
        """The number of the state to which ``event`` brings a region."""
        key = region, event
        if key not in self._after:
            self._after[key] = len(self.regions)
            self.regions.append(change(self.regions[region]))
        return self._after[key]

    def state(self, numbers: Sequence[int]) -> RunState:
        """The run's state, of the regions in the job's order."""
        return RunState({name: self.regions[number] for name, number in zip(self.job.regions, numbers, strict=True)})

    def decide(
        self,
        job: DagJob,
        numbers: tuple[int, ...],
        region: str,
        states: Mapping[str, str | None],
        gone: Gone,
        run: InRun,
    ) -> Decision:
        """What a try of ``region`` comes to."""
        seen = (
            tuple(states[name] for name in job.regions)
            if region == PUBLISH
            else tuple(map(states.get, job.regions[region].inputs))
        )
        key = id(job), numbers, region, seen, gone, run
        decision = self._decisions.get(key)
        if decision is None:
            state = self.state(numbers)
            decision = (
                self._publish(job, state, states, gone)
                if region == PUBLISH
                else self._try(job, state, region, states, gone, run)
            )
            self._decisions[key] = decision
        return decision

    def _try(
        self,
        job: DagJob,
        state: RunState,
        region: str,
        states: Mapping[str, str | None],
        gone: Gone,
        run: InRun,
    ) -> Decision:
        planned, rule = job.regions[region], job.rules.get(region, ALL_SUCCESS)
        of_inputs = {name: states[name] for name in planned.inputs}
        otherwise = self._declared_otherwise(job, state, {region})
        question = Question(
            job.plan_of(region), state, region, rule, of_inputs, job.externals_of(region), _available(gone), otherwise
        )
        seen = self.product.look(question)
        if seen.ends_as is not None:
            return Decision(ends_as=seen.ends_as)
        evaluation = seen.evaluation
        assert evaluation is not None
        if evaluation.why_must_run(region) is None:
            xcoms = self._leaves(state, region, gone)
            if xcoms is not Kept.RUNS:
                return Decision(kept=seen.kept, xcoms=xcoms)
            unkept = Reason(region, Why.XCOMS_LOST)
            seen = self.product.look(replace(question, unkept={**otherwise, region: unkept}))
            evaluation = seen.evaluation
            assert evaluation is not None
        if not run.by_timetable and self.product.refuses(run.record, self._finishes(state, (region, *planned.inputs))):
            return Decision(ends_as="failed", is_refused=True)
        lost = evaluation.lost_inputs(region)
        if lost:
            return _waits(evaluation, lost)
        return Decision(
            inputs=tuple(self._ref(job, state, name, region) for name in planned.inputs if name not in seen.absent),
            runs=True,
            claimed=seen.claimed,
            finished=seen.finished,
        )

    def _declared_otherwise(self, job: DagJob, state: RunState, but: Container[str] = ()) -> dict[str, Reason]:
        """The operators of which the DAG declares other code than made their attempts, as far as that is known."""
        found = {}
        for name in job.operators - job.unsteady:
            current = state.of(name).current
            if name in but or current is None or current.outcome is None:
                continue
            if self.product.is_declared_otherwise(current.outcome.fingerprint, job.regions[name].fingerprint):
                found[name] = Reason(name, Why.DECLARED_OTHERWISE)
        return found

    def _leaves(self, state: RunState, region: str, gone: Gone) -> Kept:
        current = state.of(region).current
        if current is None or current.outcome is None or current.outcome.xcoms is None:
            return Kept.AS_IT_IS
        is_stored = bool(current.outcome.xcoms.digest) and (region, current.outcome.writer) not in gone
        return self.product.leaves(is_stored)

    def _finishes(self, state: RunState, regions: Iterable[str]) -> list[Outcome]:
        currents = (state.of(region).current for region in regions)
        return [now.outcome for now in currents if now is not None and now.outcome is not None]

    def _publish(self, job: DagJob, state: RunState, states: Mapping[str, str | None], gone: Gone) -> Decision:
        otherwise = self._declared_otherwise(job, state)
        evaluation = Evaluation(job.shared_plan, state, available=_available(gone), unkept=otherwise)
        without = self.product.left_out(evaluation, {name: states[name] for name in job.regions})
        if without is None:
            return Decision(ends_as="failed")
        lost: dict[str, Reason] = {}
        for region in job.plan.regions:
            reason = evaluation.why_must_run(region.name) if region.final and region.name not in without else None
            if reason is not None:
                lost |= {**evaluation.lost_inputs(region.name), region.name: reason}
        if lost and len(self.product.not_over(lost, states)) == len(lost):
            return Decision(ends_as=WAITS)
        if lost:
            return _waits(evaluation, lost)
        valid = (name for name in job.regions if evaluation.invalid_because(name) is None)
        handed_out = tuple(name for name in valid if name not in without)
        if self.product.not_over(handed_out, states):
            return Decision(ends_as=WAITS)
        return Decision(handed_out=handed_out)

    def overtaken(self, job: DagJob, numbers: tuple[int, ...]) -> tuple[str, ...]:
        """The regions whose results rest on what does not count any more."""
        key = id(job), numbers
        if key not in self._overtaken:
            evaluation = Evaluation(job.shared_plan, self.state(numbers), available=_available(frozenset()))
            bases = ((name, evaluation.basis(name, None)) for name in job.regions)
            self._overtaken[key] = tuple(name for name, basis in bases if evaluation.why_overtaken(name, basis))
        return self._overtaken[key]

    def _ref(self, job: DagJob, state: RunState, producer: str, reader: str) -> InputRef:
        attempt = state.of(producer).current
        assert attempt is not None
        assert attempt.outcome is not None
        read = job.read_of(producer, reader)
        digests = ((output.result, output.digest) for output in attempt.outcome.outputs if output.result in read)
        digested = tuple((result, digest) for result, digest in digests if digest)
        return InputRef(producer, attempt.number, digested, attempt.outcome.writer if self.product.has_tokens else "")


def _available(gone: Container[tuple[str, str]]) -> Available:
    def why_not(region: str, attempt: Attempt, result: str) -> Reason | None:
        writer = attempt.outcome.writer if attempt.outcome is not None else ""
        return Reason(region, Why.OUTPUT_MISSING, result) if (region, writer) in gone else None

    return why_not


def _waits(evaluation: Evaluation, lost: Mapping[str, Reason]) -> Decision:
    reported = tuple(name for name in lost if evaluation.current(name) and evaluation.invalid_because(name) is None)
    return Decision(lost=tuple(lost), reported=reported)
