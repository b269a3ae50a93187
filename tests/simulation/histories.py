"""A pure model of a run's states, for long searches: no stores, no threads, no processes.

A history is a sequence of whole acts. Airflow starts a task, and its try goes from its pre-check to its end; people
deploy, clear and mark; a branch decides otherwise; inputs change, results are lost, the run is made again. Who is kept,
who must run and which results are lost the product's own `Evaluation` decides, over a `RunState` made of `Attempt`
values. After each success the result is compared with what a run without a history makes.

What can't be found here: anything about two processes at the same time, requests, records as bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from airflow_recovery.errors import SinkRefused
from airflow_recovery.journal.run_state import Attempt, RegionState, in_order
from airflow_recovery.model.committing import CommitMode, CommitSpec
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    CommitEnd,
    Committed,
    ExternalObject,
    FenceCause,
    Outcome,
    StoredXComs,
)
from airflow_recovery.sinks.committer import CommitToken
from airflow_recovery.testing.fake_airflow import ALL_SUCCESS, BLOCKING, ENDED, RUNS, by_trigger_rule
from airflow_recovery.testing.fake_sink import FakeTarget
from airflow_recovery.testing.simulation.dag_run import PUBLISH
from airflow_recovery.testing.simulation.jobs import rows
from airflow_recovery.testing.simulation.settings import Violation
from simulation.dag_job import DagJob, code_of, xcom_of
from simulation.fresh_run import fresh_run
from simulation.history_decisions import WAITS, Decision, Gone, Kept, Known
from simulation.run_of_dag import PUBLISH_RULE, InRun

MOST_WAITS = 4
"""So many tries of a task in a row may wait for an input before Airflow has no retries left for it."""
MOST_TRIES = 400
"""Of all tasks between two acts."""


class Judged(NamedTuple):
    """What a task that is a success has looked at in this run: its code, which inputs it had, and what lies outside.

    ``xcoms``: those that it has pulled, by the region that had pushed them.
    """

    fingerprint: str | None
    inputs: tuple[str, ...]
    lines: tuple[str, ...]
    xcoms: Mapping[str, str | None]


class History:
    """One history of a run of ``known.job``. Everything that is random comes from ``rng``.

    ``states``: of each task in Airflow. ``judged``: of each region whose last try in this run has succeeded, what that
    try had; `None` if that is not known, or if a person has called it a success. ``xcoms``: what each region's task has
    pushed and Airflow still has. ``target``: where sinks commit. ``told``: what happened, for people.
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
        self.gone: Gone = frozenset()
        self.made: dict[tuple[str, str], tuple[str, ...]] = {}
        self.made_in: dict[tuple[str, str], InRun] = {}
        self.target = FakeTarget()
        self.in_run = InRun()
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
        self._finds()
        self.again()

    # what happens

    def again(self, *, by_timetable: bool = True) -> None:
        """The run is deleted, and made again: by a backfill, or triggered, which gives it another data interval."""
        self.in_run = self.in_run.again(by_timetable=by_timetable)
        self._finds()
        self.told.append(f"the run is made again{'' if by_timetable else ', triggered by hand'}")
        self.xcoms: dict[str, str | None] = {}
        self.is_held_up = False
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
        """Other code of ``region``, or its first one again; ``end`` as of `DagJob.with_code`."""
        self._versions += 1
        self._codes[self._at[region]] = (0, "") if is_rollback else (self._versions, end)
        self.told.append(f"deploy {'the first' if is_rollback else 'other'} code of {region}{end and ', which' + end}")
        self._finds()

    def set_param(self, value: int) -> None:
        """The run's param, or the Variable that its tasks render, has another value from now on."""
        self.in_run = self.in_run._replace(param=value)
        self.told.append(f"the param is {value}")
        self._finds()

    def relist(self, region: str, listed: tuple[str, ...]) -> None:
        """Other external inputs."""
        self._listings[region] = listed
        self.told.append(f"{region} finds {', '.join(listed) or 'nothing'} outside")
        self._finds()

    def lose(self, region: str) -> None:
        """The data of its newest attempt that counts is deleted, and the XComs that are stored with it."""
        current = self._region(region).current
        if current is not None:
            self.told.append(f"{region}@{current.number} is deleted")
            self.gone |= {(region, _writer(current))}

    def forget(self, region: str, *, newer_than: int | None = None) -> None:
        """The journal loses what it had of ``region`` before its finish that counts, or else after an attempt."""
        now = self._region(region)
        current = now.current
        if newer_than is None:
            kept = [n for n in now.attempts if current is None or n >= current.number]
        else:
            kept = [n for n in now.attempts if n <= newer_than]
            # What nobody can know any more is held against nobody.
            self._tried.pop(region, None)
            self._published = {}
            self.judged = dict.fromkeys(self.judged)
        self.told.append(f"of {region} the journal has {', '.join(f'@{n}' for n in kept) or 'nothing'} from now on")
        self._change(region, ("forget", *kept), lambda now: RegionState(in_order({n: now.attempts[n] for n in kept})))

    def meddle(self, region: str, how: str) -> None:
        """Somebody changes the target of ``region``."""
        self.told.append(f"somebody {how} the target of {region}")
        if how == "empties":
            self.target.empty(region)
        elif how == "overwrites":
            self.target.overwrite(region)
        elif how == "thins out":
            self.target.thin_out(region)
        elif how == "drops":  # so that nothing is left of its tokens either: as if the connection named another place
            self.target.undo(region)
        else:
            own = [each for each in self.target.applied if each[0] == region]
            for each in own[1:]:
                self.target.applied.remove(each)

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
                    self._marked_failed.discard(name)

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
        """Once every task has looked: the run has ended as one without a history. Raises `Violation`.

        Unless a task has stopped for a person: because of the interval of a run that was triggered, or of its target.
        """
        if self.is_held_up:
            return
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
        self.xcoms.pop(region, None)
        pulled = self._pulled(region)
        job = self.known.given(self.job, region, pulled)
        decision = self.known.decide(job, tuple(self.numbers), region, self.states, self.gone, self.in_run)
        if decision.runs or not (decision.ends_as or decision.lost):
            self._tried[region] = job.regions[region].fingerprint, job.externals_of(region)
        self.is_held_up |= decision.is_refused
        if decision.ends_as == WAITS:
            self._looks_later(region)
        elif decision.ends_as is not None:
            self._ends(region, decision.ends_as, f"by its inputs {decision.ends_as}")
        elif decision.lost:
            self._waits(region, decision)
        elif decision.runs:
            self._runs(job, region, decision, pulled)
        else:
            self._keeps(region, decision, pulled)

    def _pulled(self, region: str) -> dict[str, str | None]:
        """The XComs that its arguments get. Airflow keeps those of a task that was skipped, or cleared and waits."""
        waits = self.job.rules.get(region, ALL_SUCCESS) == ALL_SUCCESS
        return {
            name: self.xcoms.get(name) if waits or self.known.product.xcom_counts(self.states[name]) else None
            for name in self.job.pulls.get(region, ())
        }

    def _keeps(self, region: str, decision: Decision, pulled: Mapping[str, str | None]) -> None:
        spec = self.job.regions[region].commit
        if spec is not None:
            current = self._region(region).current
            assert current is not None
            token, is_gone = self._token(current), (region, _writer(current)) in self.gone
            found = self.target.rows(token)
            does = self.known.product.keeps_rows(found, spec.mode, is_gone)
            if does is Kept.STOPS:
                self._stops(region, f"its target: {found.text}")
                return
            if does is Kept.RUNS:
                self.target.undo(region)
                self._change(region, "reset", lambda now: _marked(now, is_reset=True))
                self._try(region)
                return
            if does is Kept.AGAIN:
                if region in self.target.overwritten:
                    raise Violation(f"{region}@{current.number} was committed again over the rows of somebody else")
                if is_gone:
                    raise Violation(f"{region}@{current.number} was committed again, and what it had prepared is gone")
                self.target.apply(token, spec, again=True)
        if decision.kept:
            self._change(region, ("kept", _key(decision.kept)), lambda now: _newest(now, **decision.kept))
        if decision.xcoms is Kept.AGAIN:
            self.xcoms[region] = xcom_of(self.made[region, self._writer_of(region)])
        self._succeeds(region, "kept", pulled)

    def _stops(self, region: str, why: str) -> None:
        """Until a person comes."""
        self.is_held_up = True
        self._ends(region, "failed", why)

    def _runs(self, job: DagJob, region: str, decision: Decision, pulled: Mapping[str, str | None]) -> None:
        planned, number = job.regions[region], self._region(region).latest_attempt + 1
        self._check_interval(region)
        spec = planned.commit
        if spec is not None and spec.mode is CommitMode.APPEND and self.target.visible(region, spec.mode):
            self._stops(region, "its target has rows of an earlier attempt, and it appends")
            return
        ends_as = job.ends_as(region, planned.fingerprint)
        externals = job.externals_of(region)
        made: tuple[str, ...] = ()
        if ends_as is None:
            read = [row for ref in decision.inputs for row in self._rows_read(ref.region, region)]
            read += job.lines_of(region)
            made = tuple(rows(region, result, planned.fingerprint, read) for result in planned.results)
        writer = f"process {len(self.made) + 1}" if ends_as is None else "process"
        held = self.target.held(CommitToken("simulated", "run", "job", region, 0))
        commit = None if spec is None else replace(spec, number=max(number, held.attempt + 1 if held else 0))
        event = (
            "run",
            writer,
            planned.fingerprint,
            tuple((ref, ref.token) for ref in decision.inputs),
            externals,
            made,
            ends_as,
            commit,
            self.in_run,
            _key(decision.claimed),
            _key(decision.finished),
        )

        record = self.in_run.record

        def change(now: RegionState) -> RegionState:
            more: dict[str, Any] = {"cause": FenceCause.OWN_FAILURE} if ends_as is not None else dict(decision.finished)
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
            if ends_as is None:
                stored = StoredXComs("", 1, "too large") if region in job.unstored else StoredXComs("digest", 1)
                xcoms = stored if region in job.operators else None
                more |= {"commit": commit, "xcoms": xcoms, "dag_run": record}
            outcome = Outcome(
                region, number, state, writer, "now", planned.fingerprint, decision.inputs, externals, outputs, **more
            )
            claim = Claim(
                region, number, writer, "plan", decision.inputs, "run", 1, "ti", "tag", "now", **decision.claimed
            )
            attempt = Attempt(number, is_claimed=True, has_outcome=True, claim=claim, outcome=outcome)
            if outcome.commit is not None:
                committed = Committed(region, number, CommitEnd.COMMITTED, "who", "commit", "")
                attempt = replace(attempt, is_committed=True, committed=committed)
            return RegionState(in_order({**now.attempts, number: attempt}))

        self._change(region, event, change)
        if ends_as is not None:
            self._ends(region, ends_as, f"{region}@{number} {ends_as}")
            return
        self.made[region, writer], self.made_in[region, writer] = made, self.in_run
        if region in job.operators:
            self.xcoms[region] = xcom_of(made)
        current = self._region(region).current
        assert current is not None
        if commit is not None and not self._commits(region, current, commit):
            return
        self._succeeds(region, "ran", pulled)
        self._final_check(region)

    def _commits(self, region: str, current: Attempt, spec: CommitSpec) -> bool:
        try:
            self.target.apply(self._token(current), spec)
        except SinkRefused as error:
            self._stops(region, str(error))
            return False
        return True

    def _check_interval(self, region: str) -> None:
        """A run that was triggered by hand replaces nothing that another interval has made, if all else is equal."""
        before = self.made_in.get((region, self._writer_of(region)))
        if before is None or self.in_run.by_timetable or before.param != self.in_run.param:
            return
        if before.interval != self.in_run.interval:
            raise Violation(f"{region}@{self._number(region)} of {before.interval} is replaced by a triggered run")

    def _rows_read(self, producer: str, reader: str) -> list[str]:
        made, results = self.made[producer, self._writer_of(producer)], self.job.regions[producer].results
        return [made[results.index(result)] for result in self.job.read_of(producer, reader)]

    def _token(self, attempt: Attempt) -> CommitToken:
        outcome = attempt.outcome
        assert outcome is not None
        number = outcome.commit.number if outcome.commit is not None else None
        return CommitToken("simulated", "run", "job", outcome.region, number or attempt.number, outcome.writer)

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

    def _looks_later(self, task: str) -> None:
        """It is started again without a retry, when all others had time."""
        self._waited[task] = max(self._waited[task], 1)
        self.states[task] = None

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
        decision = self.known.decide(self.job, tuple(self.numbers), PUBLISH, self.states, self.gone, self.in_run)
        if decision.ends_as == WAITS:
            self._looks_later(PUBLISH)
            return
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
            if self.states[name] != "success":
                raise Violation(f"the publish names {name}@{n}, and {name} is {self.states[name]}")
            self._check_rows(name, self.judged.get(name))
            self._check_is_as_declared(PUBLISH, name)

    # the rule

    def _succeeds(self, region: str, how: str, pulled: Mapping[str, str | None]) -> None:
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
        seen = Judged(planned.fingerprint, present, tuple(job.lines_of(region)), pulled)
        self.judged[region] = judged = None if is_early else seen
        for name in present:
            self._check_is_of_newest_code(region, name)
            self._check_is_as_declared(region, name)
        self._check_rows(region, judged)
        self._check_target(region)

    def _check_target(self, region: str) -> None:
        spec, current = self.job.regions[region].commit, self._region(region).current
        if spec is not None and current is not None:
            token = self._token(current)
            visible = self.target.visible(region, spec.mode)
            is_whole = (region, token.attempt) not in self.target.thinned and region not in self.target.overwritten
            if visible != [token.attempt] or not is_whole:
                raise Violation(f"{region}@{current.number} is a success, and its target has {visible or 'no rows'}")

    def _check_is_of_newest_code(self, region: str, name: str) -> None:
        """What a person calls a success counts only if no later try of it was of other code, or found other inputs."""
        current = self._region(name).current
        if self.judged.get(name) is None and current is not None and current.outcome is not None:
            made = current.outcome.fingerprint, current.outcome.externals
            if self._tried.get(name, made) != made:
                raise Violation(f"{region} rests on {name}@{current.number}, and a later try of {name} was of others")

    def _check_is_as_declared(self, reader: str, name: str) -> None:
        """All that a success rests on was made by the code that the DAG declares now."""
        outcome = current.outcome if (current := self._region(name).current) is not None else None
        if outcome is None:
            return
        made_by, declared = code_of(outcome.fingerprint), code_of(self.job.regions[name].fingerprint)
        if made_by != declared and name not in self.job.unsteady:
            raise Violation(f"{reader} rests on {name}@{outcome.attempt} of {made_by!r}; the DAG declares {declared!r}")
        for ref in outcome.inputs:
            self._check_is_as_declared(reader, ref.region)

    def _check_rows(self, region: str, judged: Judged | None) -> None:
        made = self.made[region, self._writer_of(region)]
        if judged is not None and made != self._expected(region, judged):
            raise Violation(f"{region}@{self._number(region)} has other rows than in a fresh run")

    def _expected(self, region: str, judged: Judged) -> tuple[str, ...]:
        """The rows that today's code of ``region``, as far as it is known, makes of what its last try had."""
        job, read = self.job, list(judged.lines)
        # What is absent has left no XCom in a fresh run.
        xcoms = {name: xcom if name in judged.inputs else None for name, xcom in judged.xcoms.items()}
        for name in judged.inputs:
            above = self.judged.get(name)
            # What a person calls a success nobody has looked at but those who read it.
            made = self.made[name, self._writer_of(name)] if above is None else self._expected(name, above)
            read += [made[job.regions[name].results.index(result)] for result in job.read_of(name, region)]
            if above is not None:
                xcoms[name] = xcom_of(made)
        planned = job.regions[region]
        # New code of an operator, whose task has not looked since, nobody else knows.
        code = judged.fingerprint if region in job.operators else planned.fingerprint
        code = job.rendered(region, code, xcoms)
        return tuple(rows(region, result, code, read) for result in planned.results)

    # states

    def _finds(self) -> None:
        self.job = self.known.today(tuple(self._codes), tuple(sorted(self._listings.items())), self.in_run)

    def _region(self, name: str) -> RegionState:
        return self.known.regions[self.numbers[self._at[name]]]

    def _number(self, name: str) -> int:
        current = self._region(name).current
        return current.number if current is not None else 0

    def _writer_of(self, name: str) -> str:
        current = self._region(name).current
        return _writer(current) if current is not None else ""

    def _change(self, region: str, event: Any, change: Callable[[RegionState], RegionState]) -> None:
        at = self._at[region]
        self.numbers[at] = self.known.after(self.numbers[at], event, change)


def _writer(attempt: Attempt) -> str:
    return attempt.outcome.writer if attempt.outcome is not None else ""


def _newest(now: RegionState, **fields: Any) -> RegionState:
    return RegionState({**now.attempts, now.latest_attempt: replace(now.attempts[now.latest_attempt], **fields)})


def _marked(now: RegionState, **fields: Any) -> RegionState:
    assert now.current is not None
    return RegionState({**now.attempts, now.current.number: replace(now.current, **fields)})


def _key(fields: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(fields.items()))
