"""I10: an attempt commits once, and nobody begins the next one before that is known (docs/protocol.md#commits)."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_recovery.verify.finding import Finding
from airflow_recovery.verify.history import Attempt, History, Region

_LOOK = "Look at the sink for what was committed twice."


def wrong_commits(history: History, *, ended: bool) -> Iterator[Finding]:
    """What contradicts I10 in the commits to sinks. ``ended``: the run has ended in success, so all of it is done."""
    for region in history.regions.values():
        for attempt in region.attempts.values():
            yield from _of_attempt(region, attempt)
            yield from _turns(attempt)
        current = region.current
        if ended and current is not None and _is_prepared(current):
            yield Finding(
                (current.entries["outcome"].key,),
                f"a commit of {current.of.text} in a run that has succeeded",
                "a finish that is only prepared",
                f"Clear the task of {region.name}: its pre-check commits it.",
            )


def _of_attempt(region: Region, attempt: Attempt) -> Iterator[Finding]:
    if attempt.has("committed") and attempt.outcome is not None and not attempt.is_finished:
        yield Finding(
            (attempt.entries["committed"].key,),
            f"a commit of {attempt.of.text} only after its finish",
            "the attempt was fenced, and has committed",
            _LOOK,
        )
    following = region.attempts.get(attempt.of.attempt + 1)
    if _is_prepared(attempt) and following is not None and following.has("claim"):
        yield Finding(
            (following.entries["claim"].key,),
            f"{following.of.text} only after the commit of {attempt.of.text}",
            "no record of how that ended: both may have been committed",
            _LOOK,
        )


def _turns(attempt: Attempt) -> Iterator[Finding]:
    """A process may commit in place of an earlier one only once that is confirmed to be dead."""
    for kind, entry in attempt.entries.items():
        name, _, number = kind.partition("-")
        before = f"confirmed-{int(number or 0) - 1:04d}"
        if name == "committer" and not attempt.has(before):
            yield Finding(
                (entry.key,),
                f"{before} of {attempt.of.text} before another process commits",
                "nobody has said that the process before it is dead: both may have committed",
                _LOOK,
            )


def _is_prepared(attempt: Attempt) -> bool:
    return (
        attempt.is_finished and attempt.outcome is not None and attempt.outcome.commits and not attempt.has("committed")
    )
