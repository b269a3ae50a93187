"""``execution.batch.job-recovery.enabled: false``: plain Airflow, for a job as for a drop-in operator.

Every region runs whenever its task does, under Airflow's own retries. Nothing is read from the journal or written to
it: nothing is kept, fenced, cleared, published or counted, and nobody but the user deletes what was written. What a
task must know of those before it lies beside the results, and the last one to write it is believed:

    <results>/_plain/<dag id>/<run id>/<group id>/<region>.json       what the region's last successful try has made
                                                 /<task instance id>/ what one try wrote
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.errors import ConfigurationError, NotSetUp, ObjectMissing, RegionFailed, UserCodeError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.journal.codec import decode_record, encode_record
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import AttemptTrace, Claim, ExternalObject, Outcome, RunIdentity
from airflow_recovery.task.references import filled, qualified

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.attempt.job_plan import JobPlan
    from airflow_recovery.driver.region_spec import RunFacts
    from airflow_recovery.job import Job
    from airflow_recovery.store.object_store import ObjectStore
    from airflow_recovery.task.references import DropIn
    from airflow_recovery.task.spark_submission import SparkSubmission

FOLDER = "_plain"
WHY = "recovery is off"
log = logging.getLogger(__name__)


class PlainRun:
    """One DAG run whose job does not recover, as one try of one of its tasks sees it."""

    def __init__(self, context: Mapping[str, Any], group_id: str) -> None:
        self._settings = RecoverySettings.load()
        self._instance = context["ti"]
        run = context["dag_run"]
        self._run_id = str(run.run_id)
        # No run key begins like this, so that nothing of it can be taken for an attempt that a journal knows.
        self.identity = RunIdentity(run.dag_id, f"plain-{run.run_id}", group_id)
        path = "/".join(encode(each) for each in (run.dag_id, self._run_id, group_id))
        self._base = f"{self._settings.results}/{FOLDER}/{path}"
        self._shared = open_stores(self._settings).open_external(self._base)

    @property
    def stores(self) -> Stores:
        """Stores of this try alone. Its "journal" is where a driver leaves its outcome for the task that waits."""
        folder = f"{self._base}/{encode(str(self._instance.id))}"
        return Stores(replace(self._settings, journal=f"{folder}/_driver", results=folder))

    def location(self, region: str, output: str) -> str:
        """Where this try of an operator writes a managed output."""
        return f"{self.stores.results.base_uri}/{encode(region)}/{encode(output)}"

    def outcome_of(self, region: str) -> Outcome:
        """What ``region`` made in this DAG run. Raises `ObjectMissing`."""
        key = f"{encode(region)}.json"
        try:
            body = self._shared.get(key).body
        except ObjectMissing as error:
            raise ObjectMissing(
                f"{region} has made nothing in run {self._run_id} ({WHY}: what other runs made does not count). "
                f"Clear {region}."
            ) from error
        return decode_record(self.identity, Outcome, body, where=f"{self._base}/{key}")

    def hand_over(self, outcome: Outcome) -> None:
        """Tell the tasks to come what a region has made."""
        self._shared.put(f"{encode(outcome.region)}.json", encode_record(self.identity, outcome))

    def attempt(self, region: str, inputs: Sequence[str], externals: tuple[ExternalObject, ...]) -> ClaimedAttempt:
        """This try as an application takes it. It is claimed nowhere."""
        number = max(int(self._instance.try_number), 1)
        claim = Claim(
            region=region,
            attempt=number,
            writer=uuid.uuid4().hex,
            plan_hash="",
            inputs=(),
            airflow_run_id=self._run_id,
            try_number=number,
            ti_id=str(self._instance.id),
            tag=f"airflow-recovery-{uuid.uuid4()}",
            claimed_at=_now(),
        )
        return ClaimedAttempt(claim, {each: self.outcome_of(each) for each in inputs}, externals, "")

    def run(self, attempt: ClaimedAttempt, application: SparkApplication) -> RegionResult:
        """Run it to its end. Raises `RegionFailed`, whatever it was: Airflow's retries are all there is."""
        claim = attempt.claim
        log.info("%s runs: %s, so nothing is kept and nothing is recorded.", claim.region, WHY)
        try:
            outcome = application.run(attempt)
        except RegionFailed as error:
            error.forget()  # nobody reads it again
            if isinstance(error, (NotSetUp, UserCodeError)):
                raise RegionFailed(str(error), error.cause) from error
            raise
        if outcome is None:
            left = Journal(self.stores.journal, self.identity, writer=claim.writer)
            outcome = left.read_outcome(claim.region, claim.attempt)
        if outcome is None:
            raise RegionFailed(f"{claim.region}: the Spark application ended without an error and left no outcome.")
        self.hand_over(outcome)
        return RegionResult(claim.region, Decision.RAN, claim.attempt, WHY, outcome)


def plain_keys(run: PlainRun, job: Job) -> dict[str, Sequence[str]]:
    """The subtasks that were decided in this run. Raises `ObjectMissing`."""
    from airflow_recovery.job.chains import initializers

    return {name: run.outcome_of(name).subtasks for name in initializers(job)}


def hand_over_keys(run: PlainRun, initializer: str, keys: Sequence[str]) -> None:
    """Tell the tasks to come which subtasks there are."""
    trace = AttemptTrace(initializer, 1, uuid.uuid4().hex, "", (), ())
    run.hand_over(trace.finished(_now(), (), subtasks=tuple(keys)))


def run_plain_region(
    run: PlainRun, plan: JobPlan, name: str, make_application: Callable[[Stores, RunIdentity], SparkApplication]
) -> RegionResult:
    """One region, or subtask, of a declared job. Raises `ConfigurationError` for a sink that commits."""
    _check_not_committed(name, any(each.name == name and each.commit is not None for each in plan.record.regions))
    application = make_application(run.stores, run.identity)
    return run.run(run.attempt(name, plan.regions[name].inputs, application.externals()), application)


def plain_plan(job: Job, ref: str, facts: RunFacts, run: PlainRun) -> JobPlan:
    """The job as this run has it."""
    from airflow_recovery.attempt.job_plan import plan_job

    return plan_job(job, ref, facts, plain_keys(run, job))


def run_plain_application(
    drop_in: DropIn, context: Context, make_submission: Callable[[RunIdentity, ObjectStore], SparkSubmission]
) -> RegionResult:
    """One try of a drop-in operator: its placeholders are filled, and the rest is the provider's operator.

    Raises `ConfigurationError` for one that commits.
    """
    from airflow_recovery.model.keys import OPERATORS_GROUP

    _check_not_committed(drop_in.task_id, drop_in.commit is not None)
    run = PlainRun(context, OPERATORS_GROUP)
    producers = tuple(dict.fromkeys(reference.task_id for reference in drop_in.references.values()))
    attempt = run.attempt(drop_in.task_id, producers, ())
    outputs = {name: uri or run.location(drop_in.task_id, name) for name, uri in drop_in.outputs.items()}
    locations = {("output", name): spark_path(uri) for name, uri in outputs.items()}
    for name, given in drop_in.inputs.items():
        if isinstance(given, str):
            locations["input", name] = spark_path(given)
        else:
            made = {each.result: each.location for each in attempt.inputs[given.task_id].outputs}
            locations["input", name] = spark_path(made[qualified(given.task_id, given.name)])
    log.info("%s runs: %s, so nothing is kept and nothing is recorded.", drop_in.task_id, WHY)
    submission = make_submission(run.identity, run.stores.results)
    job = submission.new_job(attempt)
    job.application_args = filled(submission.operator.application_args, locations)
    submission.submit(job, str(attempt.claim.attempt))
    manifests = tuple(
        PartitionManifest(qualified(drop_in.task_id, name), uri, (), managed=drop_in.outputs[name] is None)
        for name, uri in outputs.items()
    )
    outcome = attempt.trace.finished(_now(), manifests)
    run.hand_over(outcome)
    return RegionResult(drop_in.task_id, Decision.RAN, attempt.claim.attempt, WHY, outcome)


def _check_not_committed(name: str, commits: bool) -> None:
    if commits:
        raise ConfigurationError(
            f"{name}: expected recovery to be on, since it has commit=, found {WHY}: without a journal nobody would "
            "know what was committed. Leave commit= out, or let the job recover."
        )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()
