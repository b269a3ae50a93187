"""Reader: claim, *then* look for release markers. Sweeper: marker, then look for claims. One sees the other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.attempt_outcome import fenced
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, InputReleased, StoreError
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Claim, FenceCause


class ReleaseCheck:
    """Was an input of the claimed attempt released? One listing, in a thread beside Spark's start.

    A region that reads exactly the files of the manifests fails on the first one that is gone: there, nothing is unsafe
    where the question gets no answer, or a late one. Whoever hands out folders asks `ensure_inputs_kept` before the
    finish.
    """

    def __init__(self, run: Run, claim: Claim, stop: Callable[[], None]) -> None:
        self._run = run
        self._claim = claim
        self._stop = stop
        self._is_over = threading.Event()
        self._is_kept = not claim.inputs

    def look(self) -> None:
        """List the journal once. Where an input was released, the attempt is fenced, and what runs is stopped."""
        run, claim = self._run, self._claim
        try:
            if not claim.inputs:
                return
            listing = run.list()
            released = _released(listing.state, claim)
            self._is_kept = not released
            if released:
                run.log.warning("%s after attempt %d was claimed; stopping it.", released, claim.attempt)
                _fence(run, claim, released)
                self._stop()
            # Spark works now: there is time to leave to others what they would have to read after a failure.
            run.journal.renew_snapshot(listing)
        except AttemptLost:
            run.log.info("Attempt %d had ended before it could be stopped; its outcome counts.", claim.attempt)
        except StoreError as error:
            run.log.warning("The release markers of the inputs could not be looked at: %s", error)
        finally:
            self._is_over.set()

    def found_them_kept(self) -> bool:
        """Wait for the answer. True: a listing that was made after the claim shows no marker of an input."""
        self._is_over.wait()
        return self._is_kept


def ensure_inputs_kept(run: Run, attempt: ClaimedAttempt) -> None:
    """Before the finish of an application that was given folders: what is missing in one of them it does not notice.

    Returns only if a listing made after the claim shows no release marker of an input. That is the one that was made
    beside Spark's start; it is made anew where that one got no answer, and for an attempt of an earlier process. Raises
    `InputReleased` where there is one: the attempt is fenced then. Raises the store's errors.
    """
    if attempt.found_inputs_kept is not None and attempt.found_inputs_kept():
        return
    claim = attempt.claim
    if not claim.inputs:
        return
    released = _released(run.list().state, claim)
    if released:
        _fence(run, claim, released)
        raise InputReleased(
            f"{claim.region}@{claim.attempt}: {released} after it was claimed: its application may have read a part of "
            "that. Nothing that it wrote counts; the next try has the input made again."
        )


def _released(state: RunState, claim: Claim) -> str:
    """The inputs whose data may be gone, as text; empty where there is none."""
    released = [ref for ref in claim.inputs if state.of(ref.region).may_be_gone(ref.attempt)]
    return ", ".join(f"{ref.region}@{ref.attempt}" for ref in released) + " was released" if released else ""


def _fence(run: Run, claim: Claim, detail: str) -> None:
    run.journal.fence(fenced(run, claim.region, claim.attempt, FenceCause.LOST_INPUT, detail))
