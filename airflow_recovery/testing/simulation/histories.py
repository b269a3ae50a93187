"""A pure model of a run's states, for long searches: no stores, no threads, no processes.

A history is a sequence of whole acts. Airflow starts a task, and its try goes from its pre-check to its end; people
deploy, clear and mark; a branch decides otherwise; inputs change, results are lost, the run is made again. Who is kept,
who must run and which results are lost the product's own `Evaluation` decides, over a `RunState` made of `Attempt`
values. After each success the result is compared with what a run without a history makes.

What can't be found here: anything about two processes at the same time, requests, records as bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from airflow_recovery.attempt.absent_inputs import absent_by_states
from airflow_recovery.attempt.publish import left_out_by_states
from airflow_recovery.attempt.region_task import outdated_finish
from airflow_recovery.errors import InputFailed, InputPending, InputSkipped
from airflow_recovery.journal.run_state import NEVER_STARTED, Attempt, RegionState, RunState, in_order
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, Claim, ExternalObject, FenceCause, Outcome, PlanRecord
from airflow_recovery.planning.evaluation import Available, Evaluation
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.testing.fake_airflow import ALL_SUCCESS, BLOCKING, ENDED, RUNS, by_trigger_rule
from airflow_recovery.testing.simulation.dag_run import PUBLISH, PUBLISH_RULE
from airflow_recovery.testing.simulation.fresh_run import fresh_run
from airflow_recovery.testing.simulation.jobs import SimulatedJob, rows
from airflow_recovery.testing.simulation.settings import Violation

MOST_WAITS = 4
"""So many tries of a task in a row may wait for an input before Airflow has no retries left for it."""
WAITS = "waits"
MOST_TRIES = 400
"""Of all tasks between two acts."""


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


class Product(NamedTuple):
    """What is searched for histories against the rule: the two decisions that no pure function of the product makes."""

    look: Callable[[Question], Look]
    """Which attempts count for a try, and which inputs are absent."""
    left_out: Callable[[Evaluation, Mapping[str, str | None]], frozenset[str] | None]
    """The regions of which a publish hands out no result, by the states of all tasks; `None`: the publish fails."""
    respects_marks: bool = True
    """Recovery clears no task that a person has marked as failed."""


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


TODAY = Product(look, left_out)


@dataclass(frozen=True)
class Decision:
    """What a try comes to. ``lost``: what must be made again before; ``reported``: of these, what is not there."""

    lost: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    inputs: tuple[InputRef, ...] = ()
    runs: bool = False
    ends_as: str | None = None
    claimed: Mapping[str, Any] = field(default_factory=dict)
    finished: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    handed_out: tuple[str, ...] = ()


class Known:
    """What many histories of one job have in common. Everything in it is the answer of a pure function.

    ``regions``: the states that a region has come to, each with a number; so a run's state is a tuple of numbers.
    """

    def __init__(self, job: SimulatedJob, product: Product = TODAY) -> None:
        self.job = job
        self.product = product
        self.regions: list[RegionState] = [NEVER_STARTED]
        self._after: dict[tuple[int, Any], int] = {}
        self._jobs: dict[Any, SimulatedJob] = {}
        self._decisions: dict[Any, Decision] = {}
        self._overtaken: dict[Any, tuple[str, ...]] = {}

    def today(
        self, codes: tuple[tuple[int, str], ...], listings: tuple[tuple[str, tuple[str, ...]], ...]
    ) -> SimulatedJob:
        """The job with these versions of its regions' code, and these external inputs."""
        known = self._jobs.get((codes, listings))
        if known is None:
            known = replace(self.job, listings=dict(listings))
            for name, (version, end) in zip(self.job.regions, codes, strict=True):
                known = known.with_code(name, version, end) if version else known
            self._jobs[codes, listings] = known
        return known

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
        job: SimulatedJob,
        numbers: tuple[int, ...],
        region: str,
        states: Mapping[str, str | None],
        gone: frozenset[tuple[str, int]],
    ) -> Decision:
        """What a try of ``region`` comes to. ``gone``: the attempts of which no data is left."""
        seen = (
            tuple(states[name] for name in job.regions)
            if region == PUBLISH
            else tuple(map(states.get, job.regions[region].inputs))
        )
        key = id(job), numbers, region, seen, gone
        decision = self._decisions.get(key)
        if decision is None:
            state = self.state(numbers)
            decision = (
                self._publish(job, state, states, gone)
                if region == PUBLISH
                else self._try(job, state, region, states, gone)
            )
            self._decisions[key] = decision
        return decision

    def _try(
        self,
        job: SimulatedJob,
        state: RunState,
        region: str,
        states: Mapping[str, str | None],
        gone: Container[tuple[str, int]],
    ) -> Decision:
        planned, rule = job.regions[region], job.rules.get(region, ALL_SUCCESS)
        of_inputs = {name: states[name] for name in planned.inputs}
        question = Question(
            job.plan_of(region), state, region, rule, of_inputs, job.externals_of(region), _available(gone)
        )
        seen = self.product.look(question)
        if seen.ends_as is not None:
            return Decision(ends_as=seen.ends_as)
        assert seen.evaluation is not None
        if seen.evaluation.why_must_run(region) is None:
            return Decision(kept=seen.kept)
        lost = seen.evaluation.lost_inputs(region)
        if lost:
            return _waits(seen.evaluation, lost)
        return Decision(
            inputs=tuple(_ref(job, state, name, region) for name in planned.inputs if name not in seen.absent),
            runs=True,
            claimed=seen.claimed,
            finished=seen.finished,
        )

    def _publish(
        self, job: SimulatedJob, state: RunState, states: Mapping[str, str | None], gone: Container[tuple[str, int]]
    ) -> Decision:
        evaluation = Evaluation(job.shared_plan, state, available=_available(gone))
        without = self.product.left_out(evaluation, {name: states[name] for name in job.regions})
        if without is None:
            return Decision(ends_as="failed")
        lost: dict[str, Reason] = {}
        for region in job.plan.regions:
            reason = evaluation.why_must_run(region.name) if region.final and region.name not in without else None
            if reason is not None:
                lost |= {**evaluation.lost_inputs(region.name), region.name: reason}
        if lost:
            return _waits(evaluation, lost)
        valid = (name for name in job.regions if evaluation.invalid_because(name) is None)
        return Decision(handed_out=tuple(name for name in valid if name not in without))

    def overtaken(self, job: SimulatedJob, numbers: tuple[int, ...]) -> tuple[str, ...]:
        """The regions whose results rest on what does not count any more."""
        key = id(job), numbers
        if key not in self._overtaken:
            evaluation = Evaluation(job.shared_plan, self.state(numbers), available=_available(frozenset()))
            bases = ((name, evaluation.basis(name, None)) for name in job.regions)
            self._overtaken[key] = tuple(name for name, basis in bases if evaluation.why_overtaken(name, basis))
        return self._overtaken[key]


def _available(gone: Container[tuple[str, int]]) -> Available:
    def why_not(region: str, attempt: Attempt, result: str) -> Reason | None:
        return Reason(region, Why.OUTPUT_MISSING, result) if (region, attempt.number) in gone else None

    return why_not


def _waits(evaluation: Evaluation, lost: Mapping[str, Reason]) -> Decision:
    reported = tuple(name for name in lost if evaluation.current(name) and evaluation.invalid_because(name) is None)
    return Decision(lost=tuple(lost), reported=reported)


def _ref(job: SimulatedJob, state: RunState, producer: str, reader: str) -> InputRef:
    attempt = state.of(producer).current
    assert attempt is not None
    assert attempt.outcome is not None
    read = job.read_of(producer, reader)
    digests = ((output.result, output.digest) for output in attempt.outcome.outputs if output.result in read)
    return InputRef(producer, attempt.number, tuple((result, digest) for result, digest in digests if digest))


class Judged(NamedTuple):
    """What a task that is a success has looked at in this run: its code, which inputs it had, and what lies outside."""

    fingerprint: str | None
    inputs: tuple[str, ...]
    lines: tuple[str, ...]


class History:
    """One history of a run of ``known.job``. Everything that is random comes from ``rng``.

    ``states``: of each task in Airflow. ``judged``: of each region whose last try in this run has succeeded, what that
    try had; `None` if that is not known, or if a person has called it a success. ``told``: what happened, for people.
    """

    def __init__(self, known: Known, rng: random.Random) -> None:
        self.known = known
        self.rng = rng
        whole = known.job
        self.names = list(whole.regions)
        self._at = {name: at for at, name in enumerate(self.names)}
        self._codes: list[tuple[int, str]] = [(0, "")] * len(self.names)
        self._listings: dict[str, tuple[str, ...]] = {}
        self.job = whole
        self.numbers = [0] * len(self.names)
        self.gone: set[tuple[str, int]] = set()
        self.made: dict[tuple[str, int], tuple[str, ...]] = {}
        self.decides = {branch: frozenset(below[:1]) for branch, below in whole.branches.items()}
        self._above = {
            name: (*(branch for branch, below in whole.branches.items() if name in below), *region.inputs)
            for name, region in whole.regions.items()
        }
        self._tasks = [*whole.branches, *self.names, PUBLISH]
        self._above |= {**dict.fromkeys(whole.branches, ()), PUBLISH: whole.finals}
        self._rules = {**whole.rules, PUBLISH: PUBLISH_RULE}
        self._tried: dict[str, tuple[str | None, tuple[ExternalObject, ...]]] = {}
        self._published: dict[str, int] = {}
        self._versions = 0
        self.told: list[str] = []
        self.again()

    # what happens

    def again(self) -> None:
        """The run is deleted, and made again."""
        self.told.append("the run is made again")
        self.states: dict[str, str | None] = dict.fromkeys(self._tasks)
        self.judged: dict[str, Judged | None] = {}
        self._followed: dict[str, frozenset[str]] = {}
        self._waited = dict.fromkeys(self._tasks, 0)
        self._marked_failed: set[str] = set()

    def clear(self, *tasks: str, below: bool = False) -> None:
        """By a person."""
        cleared = {*tasks, *(self._below(tasks) if below else ())}
        self.told.append(f"clear {', '.join(task for task in self._tasks if task in cleared)}")
        for task in cleared:
            self.states[task] = None
            self._waited[task] = 0
            self._marked_failed.discard(task)

    def clear_all(self) -> None:
        """By a person."""
        self.clear(*self._tasks)

    def deploy(self, region: str, end: str = "", *, is_rollback: bool = False) -> None:
        """Other code of ``region``, or its first one again; ``end`` as of `SimulatedJob.with_code`."""
        self._versions += 1
        self._codes[self._at[region]] = (0, "") if is_rollback else (self._versions, end)
        self.told.append(f"deploy {'the first' if is_rollback else 'other'} code of {region}{end and ', which' + end}")
        self._finds()

    def relist(self, region: str, listed: tuple[str, ...]) -> None:
        """Other external inputs."""
        self._listings[region] = listed
        self.told.append(f"{region} finds {', '.join(listed) or 'nothing'} outside")
        self._finds()

    def lose(self, region: str) -> None:
        """The data of its newest attempt that counts is deleted."""
        current = self._region(region).current
        if current is not None:
            self.told.append(f"{region}@{current.number} is deleted")
            self.gone.add((region, current.number))

    def mark(self, task: str, state: str) -> None:
        """By a person."""
        self.told.append(f"mark {task} {state}")
        self.states[task] = state
        self._marked_failed.discard(task)
        if state == "failed":
            self._marked_failed.add(task)
        if state == "success":
            self.judged[task] = None
        if state != "failed":
            for name in self._below((task,)):
                if self.states[name] in BLOCKING:
                    self.states[name] = None

    def settle(self, tries: int = MOST_TRIES) -> None:
        """Airflow starts tasks until none can start, or so many tries are over. Raises `Violation`."""
        for _ in range(tries):
            ready = self._ready()
            if not ready:
                return
            task = self.rng.choice(ready) if len(ready) > 1 else ready[0]
            if task in self.decides:
                self._branch(task)
            elif task == PUBLISH:
                self._publish()
            else:
                self._try(task)
        if tries == MOST_TRIES:
            raise Violation(f"storm: no end in {MOST_TRIES} tries: {self.states}")

    def check_end(self) -> None:
        """Once every task has looked: the run has ended as one without a history. Raises `Violation`."""
        fresh = fresh_run(self.job, self.decides)
        ended = {name: self.states[name] for name in self.names}
        if fresh.is_certain and ended != {name: fresh.states[name] for name in self.names}:
            raise Violation(f"the run ends as {ended}, and a fresh run as {dict(fresh.states)}")

    def has_other_code(self, region: str) -> bool:
        """Than in the beginning."""
        return self._codes[self._at[region]] != (0, "")

    # Airflow

    def _ready(self) -> list[str]:
        ready = []
        states = self.states
        for task in self._tasks:
            if states[task] is None:
                above = self._above[task]
                found = by_trigger_rule(self._rules.get(task, ALL_SUCCESS), [states[name] for name in above])
                for name in above:
                    if name in self._followed and states[name] in ENDED and task not in self._followed[name]:
                        found = "skipped"
                if found == RUNS:
                    ready.append(task)
                elif found is not None:
                    states[task] = found
        # Between two tries of a task that waits there is time for all others.
        return [task for task in ready if not self._waited[task]] or ready

    def _branch(self, branch: str) -> None:
        self._followed[branch] = self.decides[branch]
        self.states[branch] = "success"
        for name in self.known.job.branches[branch]:
            if name not in self.decides[branch] and self.states[name] not in {"success", "failed"}:
                self.states[name] = "skipped"

    def _below(self, roots: Sequence[str]) -> list[str]:
        below: list[str] = []
        for task in self._tasks:
            if any(name in roots or name in below for name in self._above[task]):
                below.append(task)
        return below

    # tries

    def _try(self, region: str) -> None:
        decision = self.known.decide(self.job, tuple(self.numbers), region, self.states, frozenset(self.gone))
        if decision.runs or not (decision.ends_as or decision.lost):
            self._tried[region] = self.job.regions[region].fingerprint, self.job.externals_of(region)
        if decision.ends_as == WAITS:
            self._retries(region)
        elif decision.ends_as is not None:
            self._ends(region, decision.ends_as, f"by its inputs {decision.ends_as}")
        elif decision.lost:
            self._waits(region, decision)
        elif decision.runs:
            self._runs(region, decision)
        else:
            if decision.kept:
                self._change(region, ("kept", _key(decision.kept)), lambda now: _newest(now, **decision.kept))
            self._succeeds(region, "kept")

    def _runs(self, region: str, decision: Decision) -> None:
        planned, number = self.job.regions[region], self._region(region).latest_attempt + 1
        ends_as = self.job.ends_as(region, planned.fingerprint)
        externals = self.job.externals_of(region)
        made: tuple[str, ...] = ()
        if ends_as is None:
            read = [
                self._row(ref, result) for ref in decision.inputs for result in self.job.read_of(ref.region, region)
            ]
            read += self.job.lines_of(region)
            made = tuple(rows(region, result, planned.fingerprint, read) for result in planned.results)
        event = (
            "run",
            planned.fingerprint,
            decision.inputs,
            externals,
            made,
            ends_as,
            _key(decision.claimed),
            _key(decision.finished),
        )

        def change(now: RegionState) -> RegionState:
            more = {"cause": FenceCause.OWN_FAILURE} if ends_as is not None else dict(decision.finished)
            state = AttemptState.FINISHED if ends_as is None else AttemptState.FENCED
            outputs = (
                tuple(
                    PartitionManifest(
                        result, f"memory://{region}/{number}/{result}", (), rows=1, digest=f"digest of {row}"
                    )
                    for result, row in zip(planned.results, made, strict=True)
                )
                if ends_as is None
                else ()
            )
            outcome = Outcome(
                region, number, state, "writer", "now", planned.fingerprint, decision.inputs, externals, outputs, **more
            )
            claim = Claim(
                region, number, "writer", "plan", decision.inputs, "run", 1, "ti", "tag", "now", **decision.claimed
            )
            attempt = Attempt(number, is_claimed=True, has_outcome=True, claim=claim, outcome=outcome)
            return RegionState(in_order({**now.attempts, number: attempt}))

        self._change(region, event, change)
        if ends_as is not None:
            self._ends(region, ends_as, f"{region}@{number} {ends_as}")
            return
        self.made[region, number] = made
        self._succeeds(region, "ran")
        self._final_check(region)

    def _row(self, ref: InputRef, result: str) -> str:
        return self.made[ref.region, ref.attempt][self.job.regions[ref.region].results.index(result)]

    def _ends(self, task: str, state: str, why: str) -> None:
        self.told.append(f"{task}: {why}")
        self.states[task] = state
        self.judged.pop(task, None)

    def _waits(self, task: str, decision: Decision) -> None:
        """As `airflow_recovery.attempt.clear_producers`."""
        self.told.append(f"{task} waits for {', '.join(decision.lost)}")
        if any(self.states[name] == "skipped" for name in decision.lost):
            self._ends(task, "skipped", "an input was skipped")
            return
        for name in decision.reported:
            current = self._region(name).current
            assert current is not None
            self._change(name, ("lost", current.number), lambda now: _marked(now, is_lost=True))
        if self.known.product.respects_marks and self._marked_failed & {*decision.lost}:
            self._ends(task, "failed", "an input was marked as failed")
            return
        for name in decision.lost:
            if self.states[name] in ENDED:
                self.states[name] = None
        self._retries(task)

    def _retries(self, task: str) -> None:
        self._waited[task] += 1
        if self._waited[task] > MOST_WAITS:
            self._ends(task, "failed", "no retry is left")
        else:
            self.states[task] = None

    def _final_check(self, region: str) -> None:
        """As `airflow_recovery.attempt.final_check`: whoever rests on what was made again runs again."""
        overtaken = self.known.overtaken(self.job, tuple(self.numbers))
        chosen = [name for name in overtaken if name != region and self.states[name] in {"success", *BLOCKING}]
        if any(self._number(name) != n for name, n in self._published.items()) and self.states[PUBLISH] == "success":
            chosen.append(PUBLISH)
        below = self._below((region, *chosen)) if "upstream_failed" in self.states.values() else ()
        chosen += [name for name in below if self.states[name] == "upstream_failed"]
        for name in chosen:
            if not self.known.product.respects_marks or name not in self._marked_failed:
                self.states[name] = None

    def _publish(self) -> None:
        decision = self.known.decide(self.job, tuple(self.numbers), PUBLISH, self.states, frozenset(self.gone))
        if decision.ends_as is not None:
            self._ends(PUBLISH, decision.ends_as, decision.ends_as)
            return
        if decision.lost:
            self._waits(PUBLISH, decision)
            return
        self.states[PUBLISH] = "success"
        self._published = {name: self._number(name) for name in decision.handed_out}
        self.told.append(f"publish {', '.join(f'{name}@{n}' for name, n in self._published.items())}")
        for name, n in self._published.items():
            if self.states[name] in ENDED - {"success"}:
                raise Violation(f"the publish names {name}@{n}, and {name} is {self.states[name]}")
            self._check_rows(name, self.judged.get(name))

    # the rule

    def _succeeds(self, region: str, how: str) -> None:
        """Hold the rule against a try of ``region`` that reports a success."""
        self.states[region] = "success"
        planned, job = self.job.regions[region], self.job
        self.told.append(f"{region}@{self._number(region)} {how}")
        if region in self._marked_failed:
            raise Violation(f"{region} is {how}, and a person has marked it as failed")
        optional = job.optional.get(region, ())
        for name in planned.inputs:
            if self.states[name] != "success" and name not in optional:
                raise Violation(
                    f"{region}@{self._number(region)} is {how}, and its input {name} is {self.states[name]}"
                )
        ends_as = job.ends_as(region, planned.fingerprint)
        if ends_as is not None:
            raise Violation(f"{region}@{self._number(region)} is {how}, and today's code of it {ends_as}")
        present = tuple(name for name in planned.inputs if self.states[name] == "success")
        # What has not ended may be absent or not, if the trigger rule did not wait for it.
        is_early = any(self.states[name] not in ENDED for name in planned.inputs)
        seen = Judged(planned.fingerprint, present, tuple(job.lines_of(region)))
        self.judged[region] = judged = None if is_early else seen
        for name in present:
            self._check_is_of_newest_code(region, name)
        self._check_rows(region, judged)

    def _check_is_of_newest_code(self, region: str, name: str) -> None:
        """What a person calls a success counts only if no later try of it was of other code, or found other inputs."""
        current = self._region(name).current
        if self.judged.get(name) is None and current is not None and current.outcome is not None:
            made = current.outcome.fingerprint, current.outcome.externals
            if self._tried.get(name, made) != made:
                raise Violation(f"{region} rests on {name}@{current.number}, and a later try of {name} was of others")

    def _check_rows(self, region: str, judged: Judged | None) -> None:
        made = self.made[region, self._number(region)]
        if judged is not None and made != self._expected(region, judged):
            raise Violation(f"{region}@{self._number(region)} has other rows than in a fresh run")

    def _expected(self, region: str, judged: Judged) -> tuple[str, ...]:
        """The rows that today's code of ``region``, as far as it is known, makes of what its last try had."""
        job, read = self.job, list(judged.lines)
        for name in judged.inputs:
            above = self.judged.get(name)
            # What a person calls a success nobody has looked at but those who read it.
            made = self.made[name, self._number(name)] if above is None else self._expected(name, above)
            read += [made[job.regions[name].results.index(result)] for result in job.read_of(name, region)]
        planned = job.regions[region]
        # New code of an operator, whose task has not looked since, nobody else knows.
        code = judged.fingerprint if region in job.operators else planned.fingerprint
        return tuple(rows(region, result, code, read) for result in planned.results)

    # states

    def _finds(self) -> None:
        self.job = self.known.today(tuple(self._codes), tuple(sorted(self._listings.items())))

    def _region(self, name: str) -> RegionState:
        return self.known.regions[self.numbers[self._at[name]]]

    def _number(self, name: str) -> int:
        current = self._region(name).current
        return current.number if current is not None else 0

    def _change(self, region: str, event: Any, change: Callable[[RegionState], RegionState]) -> None:
        at = self._at[region]
        self.numbers[at] = self.known.after(self.numbers[at], event, change)


def _newest(now: RegionState, **fields: Any) -> RegionState:
    return RegionState({**now.attempts, now.latest_attempt: replace(now.attempts[now.latest_attempt], **fields)})


def _marked(now: RegionState, **fields: Any) -> RegionState:
    assert now.current is not None
    return RegionState({**now.attempts, now.current.number: replace(now.current, **fields)})


def _key(fields: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(fields.items()))
