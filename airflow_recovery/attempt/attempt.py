"""One attempt: claimed once, run to its end, and finished or fenced."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.attempt_outcome import own_finish
from airflow_recovery.attempt.failed_attempt import FailedAttempt
from airflow_recovery.attempt.inputs_kept import ReleaseCheck
from airflow_recovery.attempt.mode import attempt_of
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import DriverLeft, Failure, NotMine, RegionFailed
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.inputs import InputRef, Inputs
from airflow_recovery.model.mode import RegionMode
from airflow_recovery.model.records import Claim, ExternalObject, Outcome, RunAttempt
from airflow_recovery.model.region_plan import RegionPlan


def claim_attempt(  # noqa: PLR0913 - what one claim says
    run: Run,
    region: str,
    state: RunState,
    inputs: Sequence[InputRef],
    *,
    mode: RegionMode,
    epoch: str | None,
    owner: RunAttempt | None,
    process: str | None,
    commit_number: int | None,
    outdated: int | None,
    absent: tuple[str, ...],
    after_clear: bool,
    assets: tuple[ExternalObject, ...] = (),
    prepare_journal: Callable[[], None],
) -> Claim:
    """Claim the attempt after the newest that ``state`` has, reading ``inputs``. Raises `AttemptLost`.

    A process claims once. One that loses never fights back: the winner is the present task, or will be fenced.
    ``mode``: what the region's mode pins with the claim. ``process``: the process with which the attempt ends; `None`
    where the driver outlives it. ``commit_number``: the number under which its sink's target counts the attempt.
    ``outdated``, ``absent``, ``after_clear`` and ``assets`` are those of `Claim`. ``prepare_journal`` is called before
    the first claim with this plan.
    """
    run.task_instances.live_check()
    if run.plan_hash not in state.plans:
        prepare_journal()
        run.journal.put_plan(run.plan)
    components = run.components_record(region)
    if components is not None and components.name not in state.fingerprints:
        run.journal.put_components(components)
    number = state.of(region).latest_attempt + 1
    claim = Claim(
        region=region,
        attempt=number,
        writer=run.journal.writer,
        plan_hash=run.plan_hash,
        inputs=inputs,
        airflow_run_id=run.task.airflow_run_id,
        try_number=run.task.try_number,
        ti_id=run.task.ti_id,
        tag=f"airflow-recovery-{uuid.uuid5(uuid.NAMESPACE_OID, f'{run.journal.writer}/{region}/{number}')}",
        claimed_at=run.now(),
        epoch=epoch,
        owner=owner,
        process=process,
        max_tries=run.task.grant.max_tries if run.task.grant is not None else None,
        mode=mode,
        commit_number=commit_number,
        outdated=outdated,
        absent=absent,
        assets=assets,
        dag_run=run.dag_run_record(region),
        # The writer is random. So the folder is no other claim's, and a test with a seed gets the same one again.
        folder=f"{number:08d}-{hashlib.sha256(run.journal.writer.encode()).hexdigest()[:8]}",
        components=None if components is None else components.name,
        after_clear=after_clear,
        declared=run.declaration(region),
    )
    run.journal.claim(claim)
    run.log.info(
        "Attempt %d of %s claimed; it reads %s.",
        number,
        region,
        ", ".join(Inputs.of(claim.inputs).texts()) or "no other region",
    )
    return claim


def refs_of(run: Run, region: str, inputs: Mapping[str, Outcome]) -> Sequence[InputRef]:
    """What a claim of ``region`` says that it reads, where these are its ``inputs``."""
    refs = [_ref(run.regions[region], producer, outcome) for producer, outcome in inputs.items()]
    return run.plan.grouped(region, refs)


def _ref(reader: RegionPlan, region: str, outcome: Outcome) -> InputRef:
    """What is read of ``region``, with the digests by which a later attempt of it may turn out to be the same."""
    digests = (
        (output.result, output.digest)
        for output in outcome.outputs
        if not reader.reads or output.result in reader.reads
    )
    digested = tuple((result, digest) for result, digest in digests if digest)
    return InputRef(region, outcome.attempt, digested, outcome.writer)


def run_claimed(
    run: Run,
    attempt: ClaimedAttempt,
    application: SparkApplication,
    restarts: Restarts,
    label: Callable[[Failure], Failure],
) -> Outcome:
    """Run it, and return the finish that is in the journal. Whatever is raised, the attempt is not open any more.

    Raises `DriverLeft` where this process ends before its driver: the attempt is open then, and the next try decides.
    """
    claim = attempt.claim
    mode = attempt_of(run.regions[claim.region])
    failed = FailedAttempt(run, claim, restarts, label, lambda: set(attempt.externals) <= set(application.externals()))
    check = ReleaseCheck(run, claim, application.stop)
    looking = threading.Thread(target=check.look, args=(), name="release check", daemon=True)
    attempt = replace(attempt, found_inputs_kept=check.found_them_kept)
    try:
        looking.start()
        if attempt.comes_back:
            run.journal.put_plan(run.plan)
        mode.check_claim(run, claim)
        confirmed = mode.finish_early(run, attempt) or application.run(attempt)
    except DriverLeft:
        if not run.was_set_by_hand(claim.region):
            run.log.warning("This process ends. The driver of %s@%d goes on.", claim.region, claim.attempt)
            raise
        application.stop()
        outcome = failed.end(
            NotMine(
                f"The task of {claim.region} was set to another state; its driver is ended.",
                code="task-set-to-another-state",
            )
        )
    except BaseException as error:
        outcome = failed.end(error)
    else:
        outcome = confirmed or own_finish(run, claim) or failed.end(_ended_without_outcome(claim))
    finally:
        looking.join()
    # The driver has written it, not this process.
    run.journal.noticed(outcome)
    return outcome


def _ended_without_outcome(claim: Claim) -> RegionFailed:
    return RegionFailed(
        f"{claim.region}@{claim.attempt}: the Spark application ended without an error, and without an outcome in the "
        "journal. Look into its log above; was it stopped, or did it call sys.exit()?",
        code="application-without-outcome",
    )
