"""Waiting for the attempt that an earlier try of the same task left open (FLIP-383's previous worker recovery).

It is over     its outcome is there; its driver has said that it failed; its process is known to be gone
it lives       its heartbeat changes, or the cluster manager says that it is queued or running
nobody knows   no change for the time-out: it is taken for dead

A driver that lives is followed to its end, however long that takes, and what it finishes is evaluated as any finish is.
Meanwhile a sign in the journal tells the driver's keeper that a try follows. After a clear by a person the driver is
ended, not followed.
So work is not done twice because a worker was lost; and one that is wrongly taken for dead can only lose its own work,
since its attempt is fenced before another one is claimed.
"""

from __future__ import annotations

import math

from airflow_recovery.attempt.application import ApplicationStatus, ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.heartbeat_watch import HeartbeatWatch, beat_of
from airflow_recovery.attempt.run import Run
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.driver.process_identity import is_gone, own_process
from airflow_recovery.errors import AttemptLost, InputReleased, JournalInUse, NotMine, ObjectMissing, StoreError
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.records import Claim, ExternalObject
from airflow_recovery.planning.evaluation import Evaluation

LIVE_CHECK_EVERY_S = 15.0
"""Each live check is a write to Airflow's database; a kill of the task ends the waiting anyway."""


def is_worth_reconnecting(
    run: Run, state: RunState, evaluation: Evaluation, opened: Attempt, application: SparkApplication, epoch: str | None
) -> bool:
    """Would what the open attempt finishes be used? Not where it was reset, or rests on old inputs or on other code."""
    claim = opened.claim
    if claim is None or run.heartbeat_timeouts.timeout_s <= 0 or application.is_killed:
        return False
    if run.was_cleared_by_hand(claim):
        run.log.info("The task was cleared since attempt %d was claimed: its driver is ended.", claim.attempt)
        return False
    region = claim.region
    mark = state.of(region).reset_watermark
    if opened.number <= mark or any(number <= mark for number in claim.mode.attempts):
        return False
    if epoch is not None and claim.epoch != epoch:
        return False
    if not run.today.reads(region, claim.inputs, claim.absent) or claim.absent != evaluation.absent(region):
        return False
    if evaluation.why_overtaken(region, claim.inputs) is not None:
        return False
    return claim.plan_hash == run.plan_hash or _fingerprint_then(run, claim) == _fingerprint_now(run, region)


def reconnect(run: Run, claim: Claim, application: SparkApplication, externals: tuple[ExternalObject, ...]) -> bool:
    """Wait until the attempt has ended, or is taken for dead. True: it has an outcome; evaluate again.

    False: fence it. Raises `JournalInUse` where it is another run's and lives, `NotMine` where this try was cleared or
    told to end meanwhile.
    """
    try:
        return _follow(run, claim, application, externals)
    except Exception:
        raise
    except BaseException:  # the time of this task is over (``execution_timeout``), so that of the driver is, too
        application.stop_previous(claim)
        raise


def _follow(  # noqa: C901 - what each look may find, in the order in which it counts
    run: Run, claim: Claim, application: SparkApplication, externals: tuple[ExternalObject, ...]
) -> bool:
    name = f"{claim.region}@{claim.attempt}"
    is_of_live_run = claim.airflow_run_id != run.task.airflow_run_id and run.is_live_run(claim.airflow_run_id)
    watch = HeartbeatWatch(run.heartbeat_timeouts.timeout_s, run.heartbeat_timeouts.clock)
    checked_s = run.heartbeat_timeouts.clock()
    first = beat_of(run.journal, claim)
    active = 0
    logged = ""
    # No keeper looks for a sign of a driver that a cluster runs.
    said_s = math.inf if application.can_be_asked or not application.outlives_task else -math.inf
    while True:
        # Asked before the outcome is read: a driver that has ended by then may have finished.
        status, beat = application.status(claim), beat_of(run.journal, claim)
        if run.journal.has_outcome(claim.region, claim.attempt):
            return True
        has_succeeded = status is ApplicationStatus.SUCCEEDED or (
            beat is not None and beat.succeeded and status is not ApplicationStatus.OVER
        )
        if has_succeeded and _finish_previous(run, claim, application, externals):
            return True
        if _is_over(claim, status, beat):
            if beat_of(run.journal, claim) != beat:
                continue  # it has said more before its process ended
            run.log.info("The driver of %s has ended without an outcome.", name)
            return False
        # Of a driver that gives signs by itself, the cluster manager only knows that it is not gone: it may be frozen.
        active += beat is None and status is ApplicationStatus.ACTIVE
        lives = active > 0 or beat != first
        if lives and is_of_live_run:
            raise JournalInUse(
                f"Journal in use by run {claim.airflow_run_id}, which makes {name}: expected one DAG run at work on "
                f"{run.journal.identity.run_key}, found two. Wait for that run to end, or end it; then clear this "
                "task.",
                code="journal-of-another-run",
                run_id=claim.airflow_run_id,
            )
        if watch.has_timed_out(claim.attempt, (beat, active)):
            run.log.warning(
                "%s has given no heartbeat for %.0f s: it is ended.", name, run.heartbeat_timeouts.timeout_s
            )
            return False
        now = "lives" if lives else "may live"
        progress = f" {beat.progress}." if beat is not None and beat.progress else ""
        if now + progress != logged:
            logged = now + progress
            by = f" (Spark application {beat.application_id})" if beat is not None and beat.application_id else ""
            run.log.info("The driver of %s%s, left by an earlier try, %s: waiting for it.%s", name, by, now, progress)
        if run.heartbeat_timeouts.clock() - said_s >= LIVE_CHECK_EVERY_S:
            said_s = run.heartbeat_timeouts.clock()
            _say_followed(run, claim)
        run.heartbeat_timeouts.sleep(run.heartbeat_timeouts.poll_s)
        if application.is_killed:
            if run.was_set_by_hand(claim.region):
                application.stop_previous(claim)
            raise NotMine(
                f"This process was told to end while it waited for {name}; nothing was changed.",
                code="told-to-end-while-waiting",
            )
        if run.heartbeat_timeouts.clock() - checked_s >= LIVE_CHECK_EVERY_S:
            checked_s = run.heartbeat_timeouts.clock()
            _check_alive(run)


def _is_over(claim: Claim, status: ApplicationStatus, beat: Beat | None) -> bool:
    """Nothing more will come of it: what runs it says so, it says so itself, or its process is known to be gone.

    One try at a time runs in a process: an earlier one in this very process is over. A driver that has a keeper on this
    machine goes on without the process that claimed the attempt.
    """
    if status in (ApplicationStatus.OVER, ApplicationStatus.SUCCEEDED):
        return True
    if beat is not None and (beat.ended or beat.succeeded):
        return True
    process = beat.process if beat is not None else None
    if process is None and status is not ApplicationStatus.ACTIVE:
        process = claim.process
    return is_gone(process) or (process is not None and process == own_process())


def _say_followed(run: Run, claim: Claim) -> None:
    """A sign for the keeper of a driver whose task has gone (`airflow_recovery.driver.submit_keeper`). Best effort."""
    sign = f"{run.journal.writer} {run.heartbeat_timeouts.clock()}"
    try:
        run.journal.store.put(run.journal.layout.follower(claim.region, claim.attempt), sign.encode())
    except StoreError as error:
        run.log.warning("That the driver is followed could not be written: %s", error)


def _check_alive(run: Run) -> None:
    try:
        run.task_instances.live_check()
    except NotMine:
        raise
    except Exception as error:
        # Nothing is written while waiting, and what follows checks again: an API server that restarts ends no waiting.
        run.log.warning("Whether this task was cleared could not be asked: %s", error)


def _finish_previous(
    run: Run, claim: Claim, application: SparkApplication, externals: tuple[ExternalObject, ...]
) -> bool:
    """What the task's own process would have done after its driver's success."""
    inputs = {}
    for ref in claim.inputs:
        outcome = run.journal.read_outcome(ref.region, ref.attempt)
        if outcome is None:
            return False
        inputs[ref.region] = outcome
    region = run.regions[claim.region]
    attempt = ClaimedAttempt(claim, inputs, externals, region.fingerprint or "", commit=region.commit)
    try:
        return application.finish_previous(attempt) is not None
    except (AttemptLost, InputReleased):
        return True  # ended, by somebody else meanwhile or for its input


def _fingerprint_then(run: Run, claim: Claim) -> str | None:
    try:
        plan = run.journal.read_plan(claim.plan_hash)
    except ObjectMissing:
        return ""
    return next((region.fingerprint for region in plan.regions if region.name == claim.region), "")


def _fingerprint_now(run: Run, region: str) -> str | None:
    return next(planned.fingerprint for planned in run.plan.regions if planned.name == region)
