"""What every step of the protocol knows of the run it works on."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from airflow_recovery.attempt.heartbeat_watch import NO_HEARTBEAT_TIMEOUTS, HeartbeatTimeouts
from airflow_recovery.attempt.task_instances import ENDED_STATES, Observation, TaskInstances, TaskTry
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.journal import Journal, Listing, until_pages_agree
from airflow_recovery.journal.owner import digest_key
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.journal.stream import EventSink, NoEvents
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.components import Component
from airflow_recovery.model.dag_run import DagRunFacts, DagRunRecord, is_by_timetable
from airflow_recovery.model.mode import answers_of, modes_of
from airflow_recovery.model.records import (
    Claim,
    Declaration,
    ExternalObject,
    FingerprintRecord,
    Outcome,
    PlanRecord,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import AskedResult, Evaluation
from airflow_recovery.planning.reason import Reason
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.sinks.committer import Committer
from airflow_recovery.store.object_store import ObjectStore

ALL_SUCCESS = "all_success"
"""Airflow's default trigger rule: a task starts once all tasks directly above it have succeeded."""


def no_committers(spec: CommitSpec) -> Committer:
    """Where nothing is lent to sinks. Raises `ConfigurationError`."""
    raise ConfigurationError(f"Expected a way to commit {spec.result} to its sink, found none in this process.")


@dataclass(frozen=True)
class RetryGrant:
    """The tries of a task from its start, or from the last clear by a person, on. A restart budget is one grant's.

    ``max_tries`` is Airflow's, which only a clear changes: it names the grant. A clear by recovery itself
    (of a producer, or by a final check) begins no new one; ``cancelled`` are the tries that such a clear has ended.
    ``is_renewed``: a person's clear began it.
    """

    max_tries: int
    is_renewed: bool = False
    cancelled: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TaskIdentity:
    """The task instance that this process works for. ``ti_id`` is new with every try and every clear.

    ``trigger_rule``: Airflow's, by which this task was started.
    """

    airflow_run_id: str
    try_number: int
    ti_id: str
    grant: RetryGrant | None = None
    trigger_rule: str = ALL_SUCCESS


@dataclass(frozen=True)
class DeclaredOperators:
    """What this process has read of the operators in the DAG's file, before Airflow renders their arguments.

    ``own``: a digest of what an operator declares, by its region; `None` if there is none. ``own_again``: the same
    after the DAG's file was read a second time. What differs between the two is no change of code.
    """

    own: Callable[[str], str | None]
    own_again: Callable[[str], str | None]


class RunMode:
    """What a run's modes are asked before it is evaluated. Another mode has its answer in ``run`` of its package."""

    def known(self, plan: PlanRecord, journal: Journal) -> object:
        """What it knows of the run besides its records, for `Evaluation`. Batch: nothing."""
        return None


@dataclass(frozen=True)
class Run:
    """One DAG run's job, as one task of it sees it.

    ``task_keys`` maps each region to its task's key in Airflow; ``publish_keys`` are those of the tasks that publish
    them. ``now`` gives the time as ISO 8601, for people only: no decision looks at it.
    """

    plan: PlanRecord
    journal: Journal
    task_instances: TaskInstances
    available: ResultProber
    task_keys: Mapping[str, str]
    task: TaskIdentity
    now: Callable[[], str]
    log: logging.Logger
    events: EventSink = field(default_factory=NoEvents)
    publish_keys: tuple[str, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Today's fingerprints that stay out of `plan`: one that a single task knows would make its plan its own."""
    open_committer: Callable[[CommitSpec], Committer] = no_committers
    """The way to the target of a sink that was, or is to be, prepared for."""
    heartbeat_timeouts: HeartbeatTimeouts = NO_HEARTBEAT_TIMEOUTS
    """With the driver of an attempt that an earlier try has left open."""
    is_live_run: Callable[[str], bool] = lambda run_id: True
    """Whether Airflow has the DAG run of that id, and has not ended it."""
    dag_tasks: Collection[str] = ()
    """The ids of all tasks of today's DAG; empty: only those of `plan` are known."""
    waits_for_past: Collection[str] = ()
    """The ids of tasks that begin only when their previous run has ended (``depends_on_past``)."""
    has_dag: Callable[[str], bool | None] = lambda dag_id: None
    """Whether Airflow has the DAG of that id in a file; `None`: not known."""
    check_owner: Callable[[], None] = lambda: None
    """Asked before anything in the journal is taken over: is it this deployment's? Raises `ConfigurationError`. The
    first attempt of a region does not ask: the tasks of its inputs have."""
    results: ObjectStore | None = None
    """The store of the results, for a mode that keeps more there than results."""
    dag_run: DagRunFacts | None = None
    """The DAG run that results are made for; `None` if it is not recorded: by shared results, or with recovery off."""
    components_of: Callable[[str], Sequence[Component]] = lambda region: ()
    """The components of a region's fingerprint today; none if they are not recorded."""
    is_secret: Callable[[str], bool] = lambda text: False
    """Whether a text must not be readable in the journal."""
    declared: DeclaredOperators | None = None
    """What the DAG declares of its operators; `None` for a declared job, whose plan has fingerprints."""
    xcoms_counted: Mapping[str, bool] = field(default_factory=dict)
    """The tasks whose XComs were read for this task's arguments, and whether each was a success in this run then."""
    _evaluated: list[Evaluation] = field(default_factory=list, init=False, repr=False, compare=False)
    """The last evaluation, if any, from which the next one goes on."""

    def __post_init__(self) -> None:
        self.journal.take_groups(self.plan)

    @cached_property
    def plan_hash(self) -> str:
        """The hash by which claims name `plan`; equal for equal plans."""
        return plan_hash(self.plan)

    @cached_property
    def today(self) -> PlanRecord:
        """`plan` with every fingerprint that is known here: what is evaluated."""
        if not self.fingerprints:
            return self.plan
        regions = (
            replace(region, fingerprint=self.fingerprints.get(region.name, region.fingerprint))
            for region in self.plan.regions
        )
        return replace(self.plan, regions=tuple(regions))

    def declaration(self, region: str) -> Declaration | None:
        """What the records of an attempt of ``region`` say of its operator; `None` if that is not known."""
        own = None if self.declared is None else self.declared.own(region)
        if self.declared is None or own is None:
            return None
        above = [[name, self.declared.own(name) or ""] for name in self.above(region)]
        return Declaration(own, digest_of(above)[:32])

    def above(self, region: str) -> list[str]:
        """The regions that ``region`` reads, directly or through others, in topological order."""
        above: set[str] = set()
        waiting = [region]
        while waiting:
            new = set(self.regions[waiting.pop()].inputs) - above
            above |= new
            waiting += new
        return [name for name in self.regions if name in above]

    def dag_run_record(self, region: str) -> DagRunRecord | None:
        """What the records of an attempt of ``region`` say of its DAG run. Raises the store's errors."""
        return None if self.dag_run is None else self.dag_run.record(region, lambda: self._digest_key)

    def components_record(self, region: str) -> FingerprintRecord | None:
        """What the claim of an attempt of ``region`` refers to; `None` if its components are not known.

        A secret value is replaced by a digest with the journal's own key: a change of it can still be seen. Raises the
        store's errors.
        """

        def shown(component: Component) -> Component:
            if not self.is_secret(component.value):
                return component
            digest = hashlib.blake2b(component.value.encode(), key=self._digest_key.encode()[:64], digest_size=8)
            return replace(component, value=f"(secret, digest {digest.hexdigest()})")

        components = tuple(shown(component) for component in self.components_of(region))
        return FingerprintRecord(components) if components else None

    @property
    def dag_run_is_by_timetable(self) -> bool:
        """Whether the timetable has chosen the data interval of the DAG run, if that is known."""
        return self.dag_run is not None and is_by_timetable(self.dag_run.run_id)

    def changes_since(self, outcome: Outcome) -> str:
        """What differs between the DAG run that ``outcome`` was made for and this one; empty if that is not known."""
        now = None if outcome.dag_run is None else self.dag_run_record(outcome.region)
        return "" if now is None or outcome.dag_run is None else ", ".join(now.changes_since(outcome.dag_run))

    @cached_property
    def _digest_key(self) -> str:
        return digest_key(self.journal.store, deadline_s=self.journal.deadline_s)

    @property
    def regions(self) -> Mapping[str, RegionPlan]:
        """Regions by name, in topological order, as of `today`."""
        return self.today.by_name

    @property
    def consumers(self) -> Mapping[str, Sequence[str]]:
        """Names of the regions that read each region."""
        return self.today.readers

    def results_read(self, region: str, state: RunState) -> list[AskedResult]:
        """What ``region`` reads of the attempts of its inputs that count, as far as these are not released."""
        reader = self.regions[region]
        currents = ((self.regions[producer], state.of(producer).current) for producer in reader.inputs)
        return [
            AskedResult(producer.name, now, result)
            for producer, now in currents
            if now is not None and not now.is_released
            for result in reader.reads_of(producer)
        ]

    def list(self) -> Listing:
        """List the journal once; reads no record. Raises the store's errors."""
        return self.journal.list(self.regions)

    def load(self, regions: Iterable[str] | None = None, *, listing: Listing | None = None) -> RunState:
        """The state of ``listing``, or of now, with the outcomes of ``regions``, or of all.

        Lists again where the pages of a listing disagree. Raises `PagesDisagree` where they always do.
        """

        def look() -> RunState:
            nonlocal listing
            listed, listing = listing or self.list(), None
            return self.journal.load(listed, regions)

        return until_pages_agree(look)

    def evaluate(
        self,
        state: RunState,
        externals: Mapping[str, tuple[ExternalObject, ...]] | None = None,
        absent: Mapping[str, tuple[str, ...]] | None = None,
        unkept: Mapping[str, Reason] | None = None,
    ) -> Evaluation:
        """The state, evaluated by the one pure function, with what the modes of the run read for that.

        ``externals`` and ``unkept`` as `Evaluation` takes them.

        What this process has evaluated before, and what has not changed since, is not evaluated again.
        """
        # After the listing of ``state``: what a finish has read was entered before it.
        known = {mode: answers.known(self.today, self.journal) for mode, answers in self._modes.items()}
        before = self._evaluated.pop() if self._evaluated else None
        evaluation = Evaluation(
            self.today,
            state,
            available=self.available,
            externals=externals,
            absent=absent,
            unkept=unkept,
            known=known,
            before=before,
            changes_since=self.changes_since,
        )
        self._evaluated.append(evaluation)
        return evaluation

    @cached_property
    def _modes(self) -> Mapping[str, RunMode]:
        modes = modes_of(group.template for group in self.today.groups)
        return {mode: answers_of(mode, "run", RunMode) for mode in modes}

    def was_set_by_hand(self, region: str) -> bool:
        """Whether Airflow has ended the task of ``region``, so that no other try comes. False where it can't be asked.

        A person has marked it, or its run has timed out. A clear, and a scheduler that takes an orphan back, lead to
        another try.
        """
        key = self.task_keys.get(region)
        try:
            return key is not None and self.task_instances.states([key]).get(key) in ENDED_STATES
        except Exception as error:
            self.log.warning("The state of this task could not be asked: %s", error)
            return False

    def was_cleared_by_hand(self, claim: Claim) -> bool:
        """Whether a person has cleared the task since ``claim``, in the same DAG run."""
        grant = self.task.grant
        return (
            claim.airflow_run_id == self.task.airflow_run_id
            and claim.max_tries is not None
            and grant is not None
            and grant.max_tries > claim.max_tries
        )

    def tries(self, observation: Observation) -> dict[str, TaskTry]:
        """The observed tries by region; a region without a task instance is left out."""
        return {region: observation.tries[key] for region, key in self.task_keys.items() if key in observation.tries}


def is_untouched(state: RunState, plan: str) -> bool:
    """One plan, attempts 1 only, nothing reset, lost, released or closed: nothing can have been superseded."""
    return (
        state.plans == {plan}
        and not state.is_closed
        and all(
            n == 1 and not (attempt.is_reset or attempt.is_lost or attempt.is_released)
            for region in state.regions.values()
            for n, attempt in region.attempts.items()
        )
    )
