"""One run with its crashes, from an empty journal to its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_recovery.attempt.commit import token_of
from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.committing import CommitMode
from airflow_recovery.model.records import AttemptState
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.probe import RACED
from airflow_recovery.testing.crash_kit.job_setup import PUBLISH, JobSetup, Scenario
from airflow_recovery.testing.crash_kit.plain_driver import rows_of
from airflow_recovery.testing.crash_kit.points import CrashPoint, Harm, Passed, Step, When
from airflow_recovery.testing.crash_kit.supervisor import Supervisor
from airflow_recovery.testing.crash_kit.target import applied
from airflow_recovery.testing.simulation.settings import Violation
from airflow_recovery.verify import verify_run


@dataclass(frozen=True)
class Course:
    """What a run came to. ``passed``: its points in order, those of the scenario only.

    ``finished``: how often each region has. ``started``: how many drivers. ``rows`` of each published result.
    """

    passed: tuple[Passed, ...]
    finished: Mapping[str, int]
    started: Mapping[str, int]
    rows: Mapping[str, tuple[str, ...]]
    events: tuple[str, ...]


def conduct(setup: JobSetup, armed: Mapping[CrashPoint, Harm]) -> Course:
    """Run the scenario with these crashes, until everything is green; then ask the journal and the results.

    Raises `Violation` where the run does not end, where the independent checker finds an invariant broken, or where
    results that were promised are not there.
    """
    setup.folder.mkdir(parents=True)
    record = setup.folder / "points"
    record.touch()
    open_store(setup.journal).put(RACED, b"")  # eight writers at once are no points, and cost more than the rest
    supervisor = Supervisor(setup, armed)
    try:
        _until_green(setup, supervisor)
        if setup.scenario is Scenario.LOSS:
            _lose(setup, supervisor)
            record.write_text("")
            _until_green(setup, supervisor)
    except Violation as violation:
        raise Violation("\n  ".join([str(violation), *supervisor.events])) from None
    finally:
        supervisor.kill_frozen()
    passed = tuple(Passed.from_json(line) for line in record.read_text(encoding="utf-8").splitlines())
    return _look_at(setup, passed, tuple(supervisor.events))


def _until_green(setup: JobSetup, supervisor: Supervisor) -> None:
    """With a person who, where a commit is in doubt, makes sure that its process is dead, and says so."""
    supervisor.until_green()
    while supervisor.in_doubt:
        journal, _ = _open(setup)
        for region in supervisor.in_doubt:
            supervisor.kill_frozen(region)
            confirmed = confirm_dead(journal, _state(setup, journal), region, "ann", "its process was looked for")
            supervisor.events.append(
                f"ann confirms that epoch {confirmed.epoch} of {region}@{confirmed.attempt} is dead"
            )
            supervisor.airflow.clear(region, downstream=True)
        supervisor.in_doubt.clear()
        supervisor.until_green()


def _lose(setup: JobSetup, supervisor: Supervisor) -> None:
    """Somebody deletes results, and a person has the run's last results made once more."""
    journal, results = _open(setup)
    for region in setup.lost:
        below = journal.layout.data_of_number(region, _state(setup, journal).of(region).latest_attempt)
        results.delete([info.key for info in results.list(below)])
        supervisor.events.append(f"the results of {region} are deleted")
    supervisor.airflow.clear(setup.lost[0], downstream=True)


def _look_at(setup: JobSetup, passed: tuple[Passed, ...], events: tuple[str, ...]) -> Course:
    report = verify_run(
        open_store(setup.journal),
        open_store,
        dag_id=setup.identity.dag_id,
        run_key=setup.identity.run_key,
        group_id=setup.identity.group_id,
        ended=True,
        deep=True,
    )
    if report.violated:
        raise Violation("\n  ".join([report.text(), *events]))
    journal, results = _open(setup)
    state = _state(setup, journal)
    _check_target(setup, state, events)
    finished = Counter(
        name
        for name, region in state.regions.items()
        for attempt in region.attempts.values()
        if attempt.outcome is not None and attempt.outcome.state is AttemptState.FINISHED
    )
    started = Counter(
        passing.point.task
        for passing in passed
        if (passing.point.step, passing.point.when) == (Step.SUBMIT, When.BEFORE) and passing.point.task != PUBLISH
    )
    return Course(passed, finished, started, _published_rows(setup, journal, state, results), events)


def _check_target(setup: JobSetup, state: RunState, events: tuple[str, ...]) -> None:
    """I10: nothing was applied twice, and what counts was applied last."""
    store = open_store(setup.target)
    for region in setup.plan.record.regions:
        current = state.of(region.name).current
        if region.commit is None or current is None:
            continue
        attempts = applied(store, token_of(setup.identity, region.name, current.number).lineage)
        appended_twice = region.commit.mode is CommitMode.APPEND and len(attempts) != 1
        if appended_twice or len(set(attempts)) != len(attempts) or max(attempts, default=0) != current.number:
            what = f"I10: expected {region.name}@{current.number} to be committed once, and last; found {attempts}"
            raise Violation("\n  ".join([what, *events]))


def _published_rows(
    setup: JobSetup, journal: Journal, state: RunState, results: ObjectStore
) -> dict[str, tuple[str, ...]]:
    rows = {}
    for region in journal.read_publish(state.newest_publish).regions:
        outcome = state.of(region.region).attempts[region.attempt].outcome
        if region.region in setup.finals and outcome is not None:
            for manifest in outcome.outputs:
                rows[f"{region.region}: {manifest.result}"] = tuple(rows_of(results, manifest))
    return rows


def _open(setup: JobSetup) -> tuple[Journal, ObjectStore]:
    journal = Journal(open_store(setup.journal), setup.identity, writer="crash test")
    return journal, open_store(setup.results)


def _state(setup: JobSetup, journal: Journal) -> RunState:
    return journal.load(journal.list(setup.plan.regions))
