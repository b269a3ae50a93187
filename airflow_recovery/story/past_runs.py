"""The newest runs of a DAG, as `airflow_recovery.advice` wants them: read from the journal alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from airflow_recovery.advice.history import PastRun
from airflow_recovery.errors import JournalError, NothingRecorded
from airflow_recovery.journal.journal import Journal
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.run_lookup import newest_runs
from airflow_recovery.story.run_view import RunView, view_run

RUNS = 30
CLAIMS_A_RUN = 50
"""Of so many attempts of a run it is read when they were claimed: two would do to know what a region takes."""


@dataclass(frozen=True)
class PastRuns:
    """``runs``: the oldest first. ``notes``: which could not be read, and why, each in a sentence."""

    group_id: str
    runs: list[PastRun]
    notes: list[str]


def past_runs(
    store: ObjectStore,
    dag_id: str,
    group_id: str | None = None,
    most: int = RUNS,
    read: Callable[[Journal], RunView] = view_run,
) -> PastRuns:
    """The newest ``most`` runs of a group, as `newest_runs` has them. One that can't be read is named and left out.

    Raises `NothingRecorded` where the journal has no such DAG or group, where its runs have several groups and none is
    named, and where none of several can be read. What is wrong with an only one, and the store's errors, pass through.
    """
    identities = newest_runs(store, dag_id, group_id, most=most)
    groups = Counter(identity.group_id for identity in identities)
    if len(groups) > 1:
        raise NothingRecorded(
            f"The runs of DAG {dag_id!r} have {len(groups)} groups, each a pipeline of its own: name one with --group: "
            f"{', '.join(sorted(groups))}."
        )
    runs: list[PastRun] = []
    notes: list[str] = []
    for identity in identities:
        try:
            view = read(Journal(store, identity, writer="reader"))
            runs.append(PastRun(identity.run_key, view.in_use.plan, view.in_use.state, attempt_seconds(view)))
        except JournalError as error:  # noqa: PERF203 - one run that can't be read is not the others
            if len(identities) == 1:
                raise
            notes.append(f"Run {identity.run_key} can't be read, and is left out: {' '.join(str(error).split())}")
    if not runs:
        raise NothingRecorded(f"DAG {dag_id!r} has no run that can be read. {' '.join(notes)}")
    return PastRuns(identities[-1].group_id, runs, notes)


def attempt_seconds(view: RunView) -> dict[tuple[str, int], float]:
    """From claim to end, of the first `CLAIMS_A_RUN` attempts that have ended, by region and number."""
    ended = {
        (name, number): attempt.outcome.ended_at
        for name, region in view.in_use.state.regions.items()
        for number, attempt in region.attempts.items()
        if attempt.outcome is not None and attempt.is_claimed
    }
    asked = list(ended)[:CLAIMS_A_RUN]
    seconds = {}
    for key, claim in zip(asked, view.journal.read_claims(asked), strict=True):
        try:
            spent = datetime.fromisoformat(ended[key]) - datetime.fromisoformat(claim.claimed_at)
        except ValueError:
            continue
        seconds[key] = max(0.0, spent.total_seconds())
    return seconds
