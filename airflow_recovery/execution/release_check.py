"""Reader: claim, *then* look for release markers. Sweeper: marker, then look for claims. One sees the other."""

from __future__ import annotations

from collections.abc import Callable

from airflow_recovery.errors import AttemptLost, StoreError
from airflow_recovery.execution.attempt_outcome import fenced
from airflow_recovery.execution.run import Run
from airflow_recovery.journal.records import Claim, FenceCause


def check_release(run: Run, claim: Claim, stop: Callable[[], None]) -> None:
    """Was an input of the claimed attempt released? Then the attempt is fenced, and ``stop`` is called.

    Runs beside Spark's start. Where it can't ask, nothing is unsafe: Spark reads exactly the files of the manifests and
    fails on the first one that is gone.
    """
    if not claim.inputs:
        return
    try:
        listing = run.list()
        state = listing.state
        released = [pin for pin in claim.inputs if state.of(pin.region).is_let_go(pin.attempt)]
        if released:
            detail = ", ".join(f"{pin.region}@{pin.attempt}" for pin in released) + " was released"
            run.log.warning("%s after attempt %d was claimed; stopping it.", detail, claim.attempt)
            run.journal.fence(fenced(run, claim.region, claim.attempt, FenceCause.LOST_INPUT, detail))
            stop()
        # Spark works now: there is time to leave to others what they would have to read after a failure.
        run.journal.renew_snapshot(listing)
    except AttemptLost:
        run.log.info("Attempt %d had ended before it could be stopped; its outcome counts.", claim.attempt)
    except StoreError as error:
        run.log.warning("The release markers of the inputs could not be looked at: %s", error)


def check_base(run: Run, claim: Claim) -> None:
    """Was something that the claim adopts released, or reset? Then the attempt is fenced.

    Before anything else: parts are taken over and not read, so nothing would fail where they are gone. Raises
    `AttemptLost`, and the store's errors.
    """
    if not claim.base:
        return
    mine = run.list().state.of(claim.region)
    gone = [each.attempt for each in claim.base if each.attempt <= mine.mark or mine.is_let_go(each.attempt)]
    if gone:
        detail = ", ".join(f"{claim.region}@{number}" for number in gone) + " was released or reset"
        run.journal.fence(fenced(run, claim.region, claim.attempt, FenceCause.LOST_INPUT, detail))
        raise AttemptLost(f"{claim.region}@{claim.attempt}: {detail} after it was claimed; the next try reads it anew.")
