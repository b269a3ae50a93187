"""Results that outlive a run (``BLOCKING_PERSISTENT``): made once, whatever number of runs wants them.

A region whose results are all persistent, and which reads nothing but external files and other such regions, has a
second journal besides its run's: that of the shared result, named by what it is made of (`shared_key`). The region's
task goes through the ordinary protocol twice. In the run's own journal it claims attempt n; then, instead of Spark,

    in the shared journal: the protocol of every region: keep what is valid, else claim, run Spark, finish
                           somebody else has claimed it: wait until that attempt ends, or gives no heartbeat
    read what came of it:  a claim in the shared journal, open until the run lets go of n
    look for `released`, as every reader does after its claim
    finish n in the run's own journal, with the shared manifests as its outputs

So everything else (consumers, publish, losses, resets) sees an ordinary attempt, and whoever sweeps the shared journal
sees who reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication, WrappedApplication
from airflow_recovery.attempt.builder import Builder, build_of
from airflow_recovery.attempt.heartbeat_watch import HeartbeatWatch, last_beat
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run
from airflow_recovery.driver.heartbeat import Heartbeat, interval_s
from airflow_recovery.errors import AttemptLost, PagesDisagree, RegionFailed
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import SHARED, shared_identity
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.stream import NoEvents
from airflow_recovery.model.build_in_progress import BuildInProgress, BuiltElsewhere
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    ExternalObject,
    Outcome,
    PlanRecord,
    RunAttempt,
    RunIdentity,
    SharedRef,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results.readers import end_reading, reader_name

POLL_S = 2.0
"""How often the journal is looked at by whoever waits in its own process."""


def shared_key(region: RegionPlan, externals: tuple[ExternalObject, ...], inputs: Mapping[str, Outcome]) -> str:
    """The name of a shared result: equal exactly where the same code reads the same external objects and results.

    An input counts by its digests, where its rows were digested, else by which attempt of which shared result it is.
    """
    described = {
        "region": region.name,
        "fingerprint": region.fingerprint,
        "externals": sorted([external.vertex, external.uri, external.size, external.etag] for external in externals),
        "inputs": sorted([name, _identity_of(outcome)] for name, outcome in inputs.items()),
    }
    return digest_of(described)[:32]


def _identity_of(outcome: Outcome) -> list[str]:
    if outcome.outputs and all(output.digest is not None for output in outcome.outputs):
        return sorted(f"{output.result} {output.digest}" for output in outcome.outputs)
    if outcome.shared is None:
        raise AssertionError(f"{outcome.region} is read by a shared region, and is not shared itself")
    return [f"{outcome.shared.key}@{outcome.shared.attempt}"]


def shared_plan(region: RegionPlan) -> PlanRecord:
    """The plan in the shared journal: this region alone, and wanted. The same for every job that declares it."""
    alone = replace(region, inputs=(), reads=(), final=True, finals=(), persistent=True)
    return PlanRecord(SHARED, (alone,))


class SharedApplication(SparkApplication):
    """That of a shared region in its run's own journal: makes or adopts, claims to read, and finishes the attempt.

    ``make_application(identity)`` gives what starts Spark for the journal of ``identity``. ``silent``: see
    `Builder`. ``timeout_s``: after how long without a heartbeat the build is taken over. ``waits_here``: wait in
    this process while another run makes the result; else the attempt is given up, and `BuiltElsewhere` raised, so
    that the caller can wait where it costs nothing.
    """

    def __init__(
        self,
        run: Run,
        region: str,
        make_application: Callable[[RunIdentity], SparkApplication],
        *,
        timeout_s: float,
        silent: BuildInProgress | None = None,
        waits_here: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._run = run
        self._region = region
        self._plan = run.regions[region]
        self._make_application = make_application
        self._own = make_application(run.journal.identity)
        self._timeout_s = timeout_s
        self._silent = silent
        self._waits_here = waits_here
        self._stopped = threading.Event()
        self._sleep = sleep or self._stopped.wait
        self._watch = HeartbeatWatch(timeout_s, clock)
        self._running: SparkApplication | None = None

    # what RegionTask asks for

    def externals(self) -> tuple[ExternalObject, ...]:
        """The files that the region's sources would read now."""
        return self._own.externals()

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Make or adopt the result, claim to read it, and finish.

        Raises as the application it starts, and `AttemptLost` where it was fenced.
        """
        key = shared_key(self._plan, attempt.externals, attempt.inputs)
        owner = self._owner(attempt.claim.attempt)
        shared = self._made_or_adopted(key, owner, attempt)
        ref = SharedRef(key, self._region, shared.attempt)
        # Claim, then look: whoever sweeps marks, then looks.
        self._read_shared(ref, owner, attempt.claim)
        self._ensure_kept(ref, owner)
        outcome = Outcome(
            region=self._region,
            attempt=attempt.claim.attempt,
            state=AttemptState.FINISHED,
            writer=attempt.claim.writer,
            ended_at=self._run.now(),
            fingerprint=attempt.fingerprint,
            inputs=attempt.claim.inputs,
            externals=attempt.externals,
            outputs=shared.outputs,
            spark_seconds=shared.spark_seconds,
            application_id=shared.application_id,
            shared=ref,
            dag_run=attempt.claim.dag_run,
        )
        try:
            self._run.journal.finish(outcome)
        except AttemptLost:
            end_reading(self._run.journal, ref, owner, "its own run, which has fenced the attempt")
            raise
        return outcome

    def stop(self) -> None:
        """End the wait for another run, or stop the Spark application."""
        self._stopped.set()
        if self._running is not None:
            self._running.stop()

    # before the own claim

    def find_build(self) -> BuildInProgress | None:
        """Whose open attempt this run would have to wait for, if any: so that it waits before it claims anything."""
        try:
            state = self._run.journal.load(self._run.list())
        except PagesDisagree:
            return None
        externals = self.externals()
        evaluation = self._run.evaluate(state, {self._region: externals})
        if evaluation.why_must_run(self._region) is None or evaluation.lost_inputs(self._region):
            return None
        inputs = {
            producer: current.outcome
            for producer in self._plan.inputs
            if (current := evaluation.current(producer)) is not None
        }
        known = {name: outcome for name, outcome in inputs.items() if outcome is not None}
        journal = self._journal(shared_key(self._plan, externals, known))
        opened = journal.load(journal.list([self._region])).of(self._region).open_attempt
        if opened is None or opened.claim is None:
            return None
        build = build_of(journal, self._region, opened)
        is_own = Builder(self._owner(0)).is_own(build.owner)
        return None if is_own or build == self._silent else build

    # in the shared journal

    def _made_or_adopted(self, key: str, owner: RunAttempt, attempt: ClaimedAttempt) -> Outcome:
        while True:
            if self._stopped.is_set():
                raise RegionFailed(f"{self._region} was stopped while it waited for the shared result {key}")
            journal = self._journal(key)
            self._running = _WithInputs(
                self._make_application(journal.identity), attempt, journal, interval_s(self._timeout_s), self._run
            )
            run = replace(
                self._run,
                plan=shared_plan(self._plan),
                journal=journal,
                events=NoEvents(),
                publish_keys=(),
                fingerprints={},
                dag_run=None,
            )
            try:
                result = RegionTask(run, self._region, self._running, builder=Builder(owner, self._silent)).execute()
            except BuiltElsewhere as elsewhere:
                if elsewhere.build is not None and not self._waits_here:
                    raise
                self._wait(journal, elsewhere)
            except AttemptLost as error:
                # Taken for dead by somebody who waits, and who makes it now.
                self._run.log.warning("%s", error)
            else:
                self._run.log.info("%s: shared result %s@%d, %s.", self._region, key, result.attempt, result.why)
                return result.outcome
            finally:
                self._running = None

    def _wait(self, journal: Journal, elsewhere: BuiltElsewhere) -> None:
        """Until that attempt has ended, or for one look where it is not known which."""
        build = elsewhere.build
        self._run.log.info("%s; waiting.", elsewhere)
        while build is not None and not self._stopped.is_set():
            if journal.has_outcome(build.region, build.attempt):
                return
            beat = last_beat(journal, build.region, build.attempt)
            if self._watch.has_timed_out(build.attempt, beat):
                self._silent = replace(build, beat=beat)
                return
            self._sleep(POLL_S)

    def _read_shared(self, ref: SharedRef, owner: RunAttempt, own: Claim) -> None:
        """The claim in the shared journal, open until the run lets go of its own attempt."""
        self._journal(ref.key).claim(
            replace(
                own,
                region=reader_name(owner),
                plan_hash=plan_hash(shared_plan(self._plan)),
                inputs=(InputRef(ref.region, ref.attempt),),
                owner=owner,
                folder=None,
            )
        )

    def _ensure_kept(self, ref: SharedRef, owner: RunAttempt) -> None:
        """Raises `RegionFailed` where it was released before it was claimed, or meanwhile."""
        if self._journal(ref.key).list([ref.region]).state.of(ref.region).may_be_gone(ref.attempt):
            end_reading(self._run.journal, ref, owner, "its own run, which came too late")
            raise RegionFailed(
                f"{ref.region}: the shared result {ref.key}@{ref.attempt} was released while this run adopted it. "
                "The next try makes it again.",
                code="shared-released",
            )

    def _journal(self, key: str) -> Journal:
        return self._run.journal.sibling(shared_identity(key))

    def _owner(self, attempt: int) -> RunAttempt:
        return RunAttempt(*RegionKey.of(self._run.journal.identity, self._region), attempt)


class _WithInputs(WrappedApplication):
    """An application for the shared journal: with the inputs of the run's own attempt, and with heartbeats."""

    def __init__(
        self, inner: SparkApplication, own: ClaimedAttempt, journal: Journal, interval_s: float, run: Run
    ) -> None:
        super().__init__(inner)
        self._own = own
        self._journal = journal
        self._interval_s = interval_s
        self._run = run

    def externals(self) -> tuple[ExternalObject, ...]:
        return self._own.externals

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        claim, journal = attempt.claim, self._journal
        with Heartbeat(
            lambda: journal.store,
            journal.layout.heartbeat(claim.region, claim.attempt),
            claim.tag,
            log=self._run.log,
            every_s=self._interval_s,
            is_driver=False,
        ):
            return self._inner.run(replace(attempt, inputs=self._own.inputs))
