"""Removing a whole run that has been silent for long (docs/protocol.md#release), in two sweeps.

    first:   fence what is still open;  PUT closed, with the highest attempt of each region
    later, a grace time after:  LIST again;  the data and the channels, then t/ and the rest;  LIST again

``closed`` stays: attempts up to those that it names do not count any more, and a later run of the same key goes on
above them. So a zombie of the old run can neither start at attempt 1 nor finish anything that counts.

What a task reads or writes *before* its claim shows nobody that the run has come back. So ``_splits`` stays as well:
of two subtasks that went by two assignments, one would read a split that the other one has read. A stream goes only
where it was begun before the run was closed. And a plan that a claim of just now names is put back by us, or by the
task, whoever comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from airflow_recovery.errors import AttemptLost, ObjectExists
from airflow_recovery.journal.layout import SHARED
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.mode import all_answers
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import Claim, Closed, RunAttempt
from airflow_recovery.model.retention import duration_text
from airflow_recovery.results.batches_in_use import made_of
from airflow_recovery.results.mode import ResultsMode
from airflow_recovery.results.readers import end_reading, ended, read_by
from airflow_recovery.results.release import Releaser
from airflow_recovery.results.sweep_found import CLOCK_MARGIN_S, modified_s
from airflow_recovery.results.sweep_report import Action, SweepReport
from airflow_recovery.results.swept_run import SweepOptions, SweptRun
from airflow_recovery.store.object_store import ObjectStore


class Purge:
    """The purge of one run, as far as it can go now."""

    def __init__(
        self,
        run: SweptRun,
        releaser: Releaser,
        results: ObjectStore,
        report: SweepReport,
        options: SweepOptions,
        *,
        who: str,
        is_live_run: Callable[[str, str], bool | None],
        live_run: Callable[[str, str], str | None],
    ) -> None:
        self._run = run
        self._journal = run.journal
        self._layout = run.journal.layout
        self._releaser = releaser
        self._results = results
        self._report = report
        self._options = options
        self._who = who
        self._is_live_run, self._live_run = is_live_run, live_run
        self._tombstones = run.tombstones
        self._rest = [key for key in run.ages.stored_s if key not in self._tombstones]

    def execute(self) -> bool:
        """Take the step that is due, if any. False: this run is not being purged, and is swept like every other."""
        if self._run.state.is_purged:
            if self._rest or self._purged_data():
                self._delete()
            return True
        limit_s = self._options.purge_older_than_s
        if limit_s is None or not self._rest or self._run.silent_s < limit_s:
            return False
        return self._close()

    def _close(self) -> bool:
        run = self._run
        silent = f"silent for {duration_text(run.silent_s)}"
        claims = self._journal.open_claims()
        readers = [f"{claim.region}@{claim.attempt}" for claim in claims if claim.region not in run.state.regions]
        if readers:
            self._report.add(run.where, Action.KEPT, f"{silent}, but {', '.join(readers)} reads it")
            return False
        pinned = [f"{name}@{attempt.number}" for name, state in run.state.regions.items() for attempt in state.pinned]
        if pinned:
            self._report.add(run.where, Action.KEPT, f"{silent}, but {', '.join(pinned)} is pinned")
            return False
        at_work = next((why for claim in claims if (why := self._why_at_work(claim))), None)
        if at_work is not None:
            self._report.add(run.where, Action.KEPT, f"{silent}, but {at_work}")
            return False
        identity = self._journal.identity
        waiting = None if identity.dag_id == SHARED else self._live_run(identity.dag_id, identity.run_key)
        if waiting is not None:
            why = f"Airflow's run {waiting} has not ended: it runs, or waits (for a sensor, an approval, a slot)"
            self._report.add(run.where, Action.KEPT, f"{silent}, but {why}")
            return False
        if not self._options.dry_run:
            try:
                for claim in claims:
                    self._journal.fence(ended(self._journal, claim.region, claim.attempt, "its run is purged"))
                latest = {name: region.latest_attempt for name, region in run.state.regions.items()}
                highest = tuple(InputRef(name, number) for name, number in latest.items() if number)
                self._journal.close(Closed(highest), self._next_tombstone())
            except AttemptLost:
                return False  # an attempt has ended, or another sweeper was here: it is not as it was read
        grace = duration_text(self._options.grace_s)
        self._report.add(run.where, Action.CLOSED, f"{silent}; its data goes at a sweep {grace} later")
        return True

    def _why_at_work(self, claim: Claim) -> str | None:
        """Why the driver of an open attempt may be running, which in cluster mode gives no heartbeat.

        What Airflow says comes first: it knows whether the DAG run has ended, where it can be asked and has it.
        """
        attempt = f"{claim.region}@{claim.attempt}"
        dag_id = claim.owner.dag_id if claim.owner is not None else self._journal.identity.dag_id
        is_live = self._is_live_run(dag_id, claim.airflow_run_id)
        if is_live is not None:
            return f"{attempt} is open, and Airflow's run {claim.airflow_run_id} has not ended" if is_live else None
        key = self._layout.attempt(claim.region, claim.attempt, "claim")
        age_s, limit_s = self._run.ages.since_newest_s([key]), self._options.open_attempt_s
        if age_s >= limit_s:
            return None
        return (
            f"{attempt} is open, was claimed {duration_text(age_s)} ago, and Airflow does not say whether its run has "
            f"ended: kept for {duration_text(limit_s)} (or --force)"
        )

    def _delete(self) -> None:
        run, grace_s = self._run, self._options.grace_s
        age_s = run.ages.since_newest_s(self._tombstones)
        if age_s < grace_s:
            why = f"closed {duration_text(age_s)} ago, grace time {duration_text(grace_s)}"
            self._report.add(run.where, Action.KEPT, why)
            return
        streams = self._old_streams()
        pinned, has_come_back = self._look_again()
        objects = size = 0
        tags_left = list(run.data.unasked)
        for name, number in self._purged_data():
            data = run.data.attempts[name, number]
            if (name, number) in pinned:
                self._report.add(
                    f"{run.where} / {name}@{number}", Action.KEPT, "it is read or pinned", data.objects, data.size
                )
                continue
            deleted = self._releaser.delete_data(run.names[name], number)
            if deleted.tags_left:
                tags_left.append(deleted.tags_left)
            objects, size = objects + deleted.objects, size + deleted.size
        for mode in all_answers("results", ResultsMode):
            beside = mode.purged(run, self._results, has_come_back=has_come_back)
            if not self._options.dry_run:
                self._results.delete([info.key for info in beside])
            objects, size = objects + len(beside), size + sum(info.size for info in beside)
        if tags_left:
            # Without its records nobody would know whose tags those are.
            self._report.add(run.where, Action.KEPT, "its records, until its tables have answered")
        elif not pinned:
            self._stop_reading_shared()
            keys = (
                [key for key in self._rest if self._is_old(key)]
                if has_come_back
                else [*streams, *self._servers(), *self._rest]
            )
            if not self._options.dry_run:
                plans = {key: self._journal.store.get(key).body for key in keys if self._is_plan(key)}
                # The plans last: they hold the names of the regions, should this be interrupted.
                self._journal.store.delete(sorted(keys, key=self._is_plan))
                self._put_back(plans)
            objects += len(keys)
        self._report.add(run.where, Action.DELETED, f"closed {duration_text(age_s)} ago", objects, size)

    def _look_again(self) -> tuple[set[tuple[str, int]], bool]:
        """What is in use all the same, by the region's name as a path segment; and whether the run has come back.

        In use is what runs that share it have claimed to read, or people have pinned, when the tombstone was not there
        yet for them to see: after `_close` had looked for claims and pins.
        """
        run = self._run
        used = read_by(self._journal.open_claims())
        state = self._journal.list(run.names.values()).state
        used |= {(name, attempt.number) for name, region in state.regions.items() for attempt in region.pinned}
        used |= {(name, maker) for name, number in used for maker in made_of(run.state.of(name), number)}
        has_come_back = any(region.latest_attempt > region.closed_at for region in state.regions.values())
        return {(encode(name), number) for name, number in used}, has_come_back or self._has_unnamed_attempts()

    def _has_unnamed_attempts(self) -> bool:
        """Whether a task has claimed that had listed the journal before the run was closed, after its plan was purged.

        No plan and no tombstone names its region. They name no readers of a shared result either, but those had ended
        long before it was closed.
        """
        closed_s = max(self._run.ages.stored_s[key] for key in self._tombstones) - CLOCK_MARGIN_S
        recent = (key for key in self._rest if self._run.ages.stored_s[key] > closed_s)
        return any(
            (of := self._layout.parse_attempt(key)) is not None and of.region not in self._run.names for key in recent
        )

    def _old_streams(self) -> list[str]:
        """The history until the run was closed, and of the closing itself, which is written right after it."""
        latest_s = CLOCK_MARGIN_S + max(self._run.ages.stored_s[key] for key in self._tombstones)
        listed = self._journal.store.list(self._layout.streams)
        return [info.key for info in listed if modified_s(info) <= latest_s]

    def _servers(self) -> list[str]:
        """Where the run's own Spark was: one that is still there ends when it is idle."""
        return [info.key for info in self._journal.store.list(self._layout.servers)]

    def _put_back(self, plans: Mapping[str, bytes]) -> None:
        """What was deleted of a run that has come back after the second look: its claim names one of them."""
        state = self._journal.list(self._run.names.values()).state
        if any(region.latest_attempt > region.closed_at for region in state.regions.values()):
            for key, body in plans.items():
                with suppress(ObjectExists):
                    self._journal.store.put_if_absent(key, body)

    def _stop_reading_shared(self) -> None:
        identity = self._journal.identity
        for region, state in self._run.state.regions.items():
            for number, attempt in state.attempts.items():
                shared = attempt.outcome.shared if attempt.outcome is not None else None
                if shared is not None and number <= state.closed_at and not self._options.dry_run:
                    owner = RunAttempt(*RegionKey.of(identity, region), number)
                    end_reading(self._journal, shared, owner, self._who)

    def _purged_data(self) -> list[tuple[str, int]]:
        """The attempts with data that were closed: the region's name as a path segment, and the number."""
        attempts = sorted(self._run.data.attempts)
        return [(name, number) for name, number in attempts if number <= self._closed_at(name)]

    def _closed_at(self, name: str) -> int:
        return self._run.state.of(self._run.names.get(name, "")).closed_at

    def _is_old(self, key: str) -> bool:
        parsed = self._layout.parse_attempt(key)
        return parsed is not None and parsed.attempt <= self._closed_at(parsed.region)

    def _is_plan(self, key: str) -> bool:
        return self._layout.parse_plan(key) is not None

    def _next_tombstone(self) -> int:
        return max((self._layout.parse_closed(key) or 0 for key in self._tombstones), default=0) + 1
