"""Whether a published result can be relied on: what the sensor and its trigger look at, again and again."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_recovery.errors import NotPublished, ObjectMissing
from airflow_recovery.hooks.result import RecoveryResultHook, RegisteredResult, result_run_key
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.job.templates import checked_moment

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from airflow_recovery.attempt.heartbeat_watch import HeartbeatWatch
    from airflow_recovery.journal.journal import Journal
    from airflow_recovery.journal.published import PublishedResult
    from airflow_recovery.model.records import Claim

MAY_REPLACE = ("queued", "running")
"""States of a DAG run in Airflow: its tasks may publish something else."""


class ResultWatch:
    """Looks for one published result that no run and no driver is about to replace.

    The run is named as in `RecoveryResultHook.get_result`. ``accept_failed``: a run that has failed in Airflow does not
    matter. ``of_own_run``: the result is one of the run whose task waits, so Airflow's state of that run says nothing.
    ``looks_once``: the process ends after one look, so that look itself waits for a driver's next heartbeat.
    """

    def __init__(  # noqa: PLR0913 - a result's name has five parts
        self,
        dag_id: str,
        vertex: str,
        *,
        group_id: str,
        logical_date: str | None = None,
        partition_key: str | None = None,
        run_id: str | None = None,
        accept_failed: bool = False,
        of_own_run: bool = False,
        looks_once: bool = False,
    ) -> None:
        self._dag_id = dag_id
        self._vertex = vertex
        self._group_id = group_id
        self._logical_date = logical_date
        self._partition_key = partition_key
        self._run_id = run_id
        self._accept_failed = accept_failed
        self._of_own_run = of_own_run
        self._looks_once = looks_once
        self._settings = RecoverySettings.load()
        self._hook = RecoveryResultHook(self._settings)
        self._beats: dict[str, HeartbeatWatch] = {}

    def look(self) -> RegisteredResult:
        """Return the result if nobody is about to replace it, and its files can be read.

        Raises `NotPublished` with the reason to wait, and the errors of `RecoveryResultHook.get_result`.
        """
        from airflow_recovery.attempt.settled_result import settled_result

        key = result_run_key(logical_date=self._logical_date, partition_key=self._partition_key, run_id=self._run_id)
        journal = self._hook.journal(self._dag_id, key, self._group_id)
        settled = settled_result(
            journal,
            f"{self._vertex!r} of {self._dag_id} / {key} / {self._group_id}",
            lambda: self._hook.find(journal, self._vertex, accept_failed=self._accept_failed),
            lambda result, newer: self._check_run(self._runs_of(journal, result, newer)),
            lambda claim: self._may_finish(journal, claim),
        )
        return self._hook.readable(journal, self._vertex, settled)

    def _runs_of(self, journal: Journal, result: PublishedResult, newer: Collection[Claim]) -> list[str]:
        """The ids of the runs that may replace the result, if it is not a logical date that names the one run.

        Airflow can't be asked for the runs of a partition key: the journal names those that have claimed.
        """
        if self._logical_date is not None:
            return []
        runs = {claim.airflow_run_id for claim in newer}
        if self._run_id is not None:
            return sorted(runs | {self._run_id})
        publish = journal.read_publish(result.publish)
        of_result = next(region for region in publish.regions if self._vertex in region.results)
        with suppress(ObjectMissing):
            runs.add(journal.read_claim(of_result.region, of_result.attempt).airflow_run_id)
        return sorted(runs)

    def _check_run(self, run_ids: list[str]) -> None:
        """Raise `NotPublished` if Airflow has the run, and it may replace what it has published."""
        if self._of_own_run or (self._logical_date is None and not run_ids):
            return
        refused = MAY_REPLACE if self._accept_failed else (*MAY_REPLACE, "failed")
        if not self._count(run_ids, refused):
            return
        run = f"the run of {self._logical_date}" if self._logical_date is not None else f"run {' or '.join(run_ids)}"
        if self._count(run_ids, MAY_REPLACE):
            raise NotPublished(
                f"{self._dag_id}: {self._vertex!r} is published, and {run} is queued or running, so that it may be "
                "replaced: expected the run to end with success."
            )
        raise NotPublished(
            f"{self._dag_id}: {self._vertex!r} is published, and {run} has failed since, or was marked failed: "
            "expected it to end with success. Repair the run, or set accept_failed=True to take its newest publish."
        )

    def _count(self, run_ids: list[str], states: tuple[str, ...]) -> int:
        """How many of the runs are in one of these states. Airflow's Execution API answers tasks and the triggerer."""
        from airflow_recovery.airflow_compat import RuntimeTaskInstance

        dates: list[datetime] | None = None
        if self._logical_date is not None:
            dates = [checked_moment(self._logical_date, "logical_date")]
        try:
            return RuntimeTaskInstance.get_dr_count(
                dag_id=self._dag_id, logical_dates=dates, run_ids=run_ids or None, states=list(states)
            )
        except Exception as error:
            raise NotPublished(
                f"{self._dag_id}: {self._vertex!r} is published, and Airflow did not say whether its run has ended: "
                f"{type(error).__name__}: {error}. It is asked again."
            ) from error

    def _may_finish(self, journal: Journal, claim: Claim) -> bool:
        """Whether a claim gives heartbeats. False after ``[recovery] previous_worker_timeout`` without a new one."""
        from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts, HeartbeatWatch, beat_of

        timeouts = HeartbeatTimeouts.of(self._settings.previous_worker_timeout_s)
        watch = self._beats.setdefault(claim.tag, HeartbeatWatch(timeouts.timeout_s))
        first = beat = beat_of(journal, claim)
        while True:
            if (beat is not None and beat.ended) or watch.has_timed_out(claim.attempt, beat):
                # What has ended meanwhile gives no heartbeats either, and may have made another result.
                return journal.has_outcome(claim.region, claim.attempt)
            if not self._looks_once or beat != first:
                return True
            time.sleep(timeouts.poll_s)
            beat = beat_of(journal, claim)
