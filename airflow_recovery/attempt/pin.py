"""Pin the data of a finished attempt, so that they stay whatever the release policy says; and unpin them."""

from __future__ import annotations

from airflow_recovery.errors import AttemptLost, NothingRecorded, Refused
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.records import Pin
from airflow_recovery.results.batches_in_use import made_of


def finished_attempt(state: RunState, region: str, number: int | None) -> Attempt:
    """The finished attempt that is meant: ``number``, else the one that counts. Raises `NothingRecorded`."""
    region_state = state.of(region)
    attempt = region_state.current if number is None else region_state.attempts.get(number)
    if attempt is None or not attempt.is_finished or attempt.number <= region_state.closed_at:
        which = "an attempt that counts" if number is None else f"attempt {number}, finished"
        raise NothingRecorded(
            f"Expected {which}, found {_what_is_there(region_state)} of {region}. `show` lists the attempts."
        )
    return attempt


def pin(journal: Journal, state: RunState, region: str, number: int | None, who: str, why: str) -> Pin:
    """Pin the data of an attempt: no release policy, `gc` or purge deletes them. Pinning twice is once.

    Whoever pins writes that, *then* looks for ``released``; whoever releases writes ``released``, *then* looks for
    pins. So of two that race, one sees the other. A finish that took over batches of earlier attempts is pinned with
    them; not once a later one counts, since the sweeper may have deleted what that does not use.

    Raises `NothingRecorded` without such a finish, and `Refused` where the data were released.
    """
    attempt = finished_attempt(state, region, number)
    if attempt.is_pinned:
        return journal.read_pin(region, attempt.number, attempt.pin_turn)
    _check_is_whole(state.of(region), region, attempt)
    pinned = _write(journal, attempt, region, who, why)
    now = journal.load(journal.list([region])).of(region)
    if any(now.may_be_gone(number) for number in (attempt.number, *made_of(now, attempt.number))):
        raise Refused(
            f"{region}@{attempt.number} has been released already: there is nothing left to pin. It is made again when "
            "somebody wants it.",
            code="pin-released",
            region=region,
        )
    _check_is_whole(now, region, attempt)
    return pinned


def unpin(journal: Journal, state: RunState, region: str, number: int | None, who: str, why: str) -> Pin:
    """End a pin: the release policy counts again. Raises `NothingRecorded` where there is none.

    Also of an attempt of a purged life of the run: a pin that raced with the purge keeps its data until then.
    """
    region_state = state.of(region)
    attempt = region_state.current if number is None else region_state.attempts.get(number)
    if attempt is None or not attempt.is_pinned:
        which = f"{region}@{attempt.number if attempt is not None else number or 'its attempt'}"
        raise NothingRecorded(f"Expected {which} to be pinned, found that it is not. `pin DAG RUN` lists what is.")
    return _write(journal, attempt, region, who, why)


def _check_is_whole(state: RegionState, region: str, attempt: Attempt) -> None:
    if attempt.outcome is None or not attempt.outcome.mode.attempts or state.current is None:
        return
    if state.current.number > attempt.number:
        raise Refused(
            f"{region}@{attempt.number} was committed in batches, and @{state.current.number} counts now: some of its "
            "files may be gone. Pin that one.",
            code="pin-of-old-batches",
            region=region,
        )


def _write(journal: Journal, attempt: Attempt, region: str, who: str, why: str) -> Pin:
    next_turn = Pin(region, attempt.number, attempt.pin_turn + 1, who, why)
    try:
        journal.pin(next_turn)
    except AttemptLost as error:
        raise Refused(
            f"Somebody else has just pinned {region}@{attempt.number}, or unpinned it: look again."
        ) from error
    return next_turn


def _what_is_there(state: RegionState) -> str:
    numbers = [str(n) for n, attempt in state.attempts.items() if attempt.is_finished and n > state.closed_at]
    return f"finished attempts {', '.join(numbers)}" if numbers else "no finished attempt"
