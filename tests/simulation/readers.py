"""Sensors of other DAGs, and people who withdraw what was published: by the real code, but for what asks Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_recovery.attempt.heartbeat_watch import HeartbeatWatch, beat_of
from airflow_recovery.attempt.settled_result import settled_result
from airflow_recovery.attempt.withdraw import withdraw
from airflow_recovery.errors import (
    NothingRecorded,
    NotPublished,
    ObjectMissing,
    PagesDisagree,
    Refused,
    StoreError,
)
from airflow_recovery.journal.published import PublishedResult, published_result
from airflow_recovery.model.records import Claim
from airflow_recovery.testing.simulation.dag_run import PUBLISH
from airflow_recovery.testing.simulation.settings import Violation
from airflow_recovery.testing.simulation.strands import current_runner
from simulation.dag_simulated_run import DagSimulatedRun, Given

MOST_LOOKS = 40
"""After so many the sensor has timed out."""
NOT_YET = (NotPublished, ObjectMissing, PagesDisagree, StoreError)
"""What the sensor waits after, as `airflow_recovery.hooks.result` has it."""


def waits_for(run: DagSimulatedRun, result: str) -> None:
    """A sensor of another DAG, which looks again and again until it is given ``result``."""
    journal = run.world.journal("reader")
    watches: dict[str, HeartbeatWatch] = {}

    def check_run(found: PublishedResult, newer: Sequence[Claim]) -> None:
        current_runner().switch("airflow: the state of the run")
        if run_state(run) != "success":
            raise NotPublished(f"the run is {run_state(run)}")

    def may_finish(claim: Claim) -> bool:
        timeout_s = run.settings.heartbeat_timeout_s
        watch = watches.setdefault(claim.tag, HeartbeatWatch(timeout_s, lambda: run.world.clock.now_s))
        beat = beat_of(journal, claim)
        if watch.has_timed_out(claim.attempt, beat):
            return journal.has_outcome(claim.region, claim.attempt)
        return True

    for _ in range(MOST_LOOKS):
        happened, withdrawn = run.happened, frozenset(run.withdrawn)
        try:
            found = settled_result(journal, result, lambda: published_result(journal, result), check_run, may_finish)
        except NOT_YET as reason:
            current_runner().switch(f"waits for {result}: {reason}"[:120])
            run.world.clock.sleep(1.0)
            continue
        if (found.region, found.attempt) in withdrawn:
            raise Violation(f"a reader was given {found.region}@{found.attempt}, which was withdrawn")
        run.given.append(Given(found.region, found.attempt, happened))
        current_runner().switch(f"is given {found.region}@{found.attempt}")
        return


def run_state(run: DagSimulatedRun) -> str:
    """The state of the DAG run, as Airflow has it."""
    airflow = run.world.airflow
    if airflow.ready() or not airflow.has_ended:
        return "running"
    has_failed = any(airflow.state(task) in {"failed", "upstream_failed"} for task in airflow.upstream)
    return "failed" if has_failed else "success"


def withdraws(run: DagSimulatedRun, region: str, *, gives_back: bool) -> None:
    """A person withdraws what is published of ``region``, or gives it back."""
    try:
        turns = withdraw(run.world.journal("user"), region, "user", "its rows are bad", withdrawn=not gives_back)
    except (NothingRecorded, Refused, StoreError) as error:
        current_runner().switch(f"is refused: {type(error).__name__}")
        return
    for turn in turns:
        (run.withdrawn.discard if gives_back else run.withdrawn.add)((turn.region, turn.attempt))


def check_given(run: DagSimulatedRun, publishes: Mapping[int, Mapping[str, int]]) -> None:
    """At rest: if nothing has happened to the run since a reader was given a result, that is the published one."""
    if not (run.given and run.world.airflow.state(PUBLISH) == "success"):
        return
    published = publishes[max(publishes)]
    for given in run.given:
        if given.happened == run.happened and published.get(given.region) != given.attempt:
            now = f"{given.region}@{published.get(given.region, 0)}"
            raise Violation(
                f"a reader was given {given.region}@{given.attempt}, and the run at work has published {now}"
            )
