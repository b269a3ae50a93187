"""How an attempt ends: one outcome, which says FINISHED or FENCED (docs/protocol.md#states)."""

from __future__ import annotations

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, Failure
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome


def fenced(
    run: Run, region: str, attempt: int, cause: FenceCause, detail: str, failure: Failure | None = None
) -> Outcome:
    """The outcome that ends an attempt without a result. Writes nothing: `Journal.fence` does."""
    return Outcome(
        region=region,
        attempt=attempt,
        state=AttemptState.FENCED,
        writer=run.journal.writer,
        ended_at=run.now(),
        cause=cause,
        detail=detail,
        # A failure counts against the code that failed.
        fingerprint=run.regions[region].fingerprint if cause is FenceCause.OWN_FAILURE else None,
        failure=failure,
    )


def own_finish(run: Run, claim: Claim) -> Outcome | None:
    """The finish of the claimed attempt, if the journal has it. Raises `AttemptLost` where it was fenced instead."""
    outcome = run.journal.read_outcome(claim.region, claim.attempt)
    if outcome is None or (outcome.state is AttemptState.FINISHED and outcome.writer == claim.writer):
        return outcome
    raise AttemptLost(
        f"{claim.region}@{claim.attempt} of process {claim.writer} was fenced by process {outcome.writer} "
        f"({outcome.detail or 'no reason given'}) while it ran; nothing that it wrote counts.",
        code="fenced-while-running",
        region=claim.region,
        attempt=claim.attempt,
    )
