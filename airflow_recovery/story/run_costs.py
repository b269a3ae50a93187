"""What each of some runs has cost, what recovery has saved in it, and which regions that comes from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from airflow_recovery.advice.advising import advise
from airflow_recovery.advice.history import PastRun, history_of
from airflow_recovery.attempt.recovery_report import recovered
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.records import FenceCause, RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.asked import AskedDag
from airflow_recovery.story.past_runs import past_runs
from airflow_recovery.story.run_events import events_of
from airflow_recovery.story.run_story import MAX_REGIONS

SHOWN = 5
RUNS = 10


@dataclass(frozen=True)
class RunCost:
    """One run. ``ended_at``: when its newest attempt did, ISO 8601; `None` where none has.

    ``seconds_spent``: of all attempts, as `seconds_of` counts one; ``seconds_again``: of the ``again`` ones that are
    not the first of their region. ``seconds_saved``: see `airflow_recovery.attempt.recovery_report.Recovered`.
    ``finished``: attempts that have; where they are some and the seconds none, no driver has measured its Spark time.
    """

    run_key: str
    ended_at: str | None
    seconds_spent: float
    seconds_again: float
    seconds_saved: float
    again: int
    finished: int


@dataclass(frozen=True)
class RegionCost:
    """A region over some runs; the subtasks of one are counted together.

    ``seconds``: of a finish, on the average; `None` where none was measured. ``again``: attempts beyond the first, in
    ``runs_again`` of the runs; ``seconds_again``: theirs.
    """

    region: str
    seconds: float | None
    again: int
    runs_again: int
    seconds_again: float


@dataclass(frozen=True)
class CostsAnswer:
    """What the newest runs cost and saved, and one line of advice; `airflow recovery advise` prints all of it.

    ``costs``: of each run that can be read, the oldest first; ``slowest`` and ``repeated``: regions over these runs.
    ``notes``: which runs can't be read, and why, each in a sentence.
    """

    dag_id: str
    group_id: str
    runs: int
    first_line: str
    costs: list[RunCost]
    slowest: list[RegionCost]
    repeated: list[RegionCost]
    notes: list[str]


def costs_of_runs(dag: AskedDag) -> CostsAnswer:
    """Report what the newest `RUNS` runs of a DAG cost and saved. Raises as `past_runs`."""
    past = past_runs(dag.journal, dag.dag_id, dag.group_id, RUNS, read=dag.read)
    advice, regions = advise(history_of(past.runs)), region_costs(past.runs)
    identities = [RunIdentity(dag.dag_id, run.run_key, past.group_id) for run in past.runs]
    return CostsAnswer(
        dag.dag_id,
        past.group_id,
        advice.runs,
        advice.in_one_line(),
        [run_cost(run, kept_in(dag.journal, each, run)) for run, each in zip(past.runs, identities, strict=True)],
        slowest(regions),
        most_repeated(regions),
        past.notes,
    )


def kept_in(store: ObjectStore, identity: RunIdentity, run: PastRun) -> Collection[str]:
    """The regions of which the run's events say that a later try found them valid. Of a large run these aren't read."""
    if len(run.plan.regions) > MAX_REGIONS:
        return ()
    return events_of(Journal(store, identity, writer="reader")).newest_kept()


def run_cost(run: PastRun, kept: Collection[str] = ()) -> RunCost:
    """Pure. ``kept``: as `kept_in` reads it."""
    attempts = [attempt for group in run.plan.groups for name in group.names for attempt in _attempts(run, name)]
    ended = [attempt.outcome.ended_at for _, attempt, _ in attempts if attempt.outcome is not None]
    return RunCost(
        run.run_key,
        max(ended, default=None),
        sum(seconds_of(run, name, attempt) or 0.0 for name, attempt, _ in attempts),
        sum(seconds_of(run, name, attempt) or 0.0 for name, attempt, is_again in attempts if is_again),
        recovered(run.plan, run.state, kept).seconds_saved,
        sum(is_again for _, _, is_again in attempts),
        sum(attempt.is_finished for _, attempt, _ in attempts),
    )


def region_costs(runs: Sequence[PastRun]) -> list[RegionCost]:
    """Of every region of ``runs`` that has an attempt, in the order in which they first come. Pure."""
    by_region: dict[str, list[tuple[PastRun, str, Attempt, bool]]] = {}
    for run in runs:
        for group in run.plan.groups:
            for name in group.names:
                by_region.setdefault(group.name, []).extend((run, *attempt) for attempt in _attempts(run, name))
    costs = []
    for region, attempts in by_region.items():
        if not attempts:
            continue
        finishes = [seconds_of(run, name, attempt) for run, name, attempt, _ in attempts if attempt.is_finished]
        measured = [seconds for seconds in finishes if seconds is not None]
        again = [(run, seconds_of(run, name, attempt) or 0.0) for run, name, attempt, is_again in attempts if is_again]
        costs.append(
            RegionCost(
                region,
                sum(measured) / len(measured) if measured else None,
                len(again),
                len({run.run_key for run, _ in again}),
                sum(seconds for _, seconds in again),
            )
        )
    return costs


def slowest(costs: Sequence[RegionCost]) -> list[RegionCost]:
    """At most `SHOWN`, the slowest first."""
    return sorted((cost for cost in costs if cost.seconds), key=lambda cost: -(cost.seconds or 0.0))[:SHOWN]


def most_repeated(costs: Sequence[RegionCost]) -> list[RegionCost]:
    """At most `SHOWN` that ran more than once in a run: most often first, then what took longer."""
    return sorted((cost for cost in costs if cost.again), key=lambda cost: (-cost.again, -cost.seconds_again))[:SHOWN]


def seconds_of(run: PastRun, region: str, attempt: Attempt) -> float | None:
    """Its Spark seconds; of one that failed itself and has none, from its claim to its end. `None`: not known.

    An attempt that was lost or given up may have been ended long after it stopped, so its time is not known. One that
    took a shared result did no work.
    """
    outcome = attempt.outcome
    if outcome is None:
        return None
    if outcome.shared is not None:
        return 0.0
    if outcome.spark_seconds is None and outcome.cause is FenceCause.OWN_FAILURE:
        return run.attempt_s.get((region, attempt.number))
    return outcome.spark_seconds


def _attempts(run: PastRun, region: str) -> Iterator[tuple[str, Attempt, bool]]:
    """The claimed attempts of a region since its journal began, in order; whether each is beyond the first."""
    state = run.state.of(region)
    claimed = (attempt for n, attempt in sorted(state.attempts.items()) if n > state.closed_at and attempt.is_claimed)
    for at, attempt in enumerate(claimed):
        yield region, attempt, at > 0
