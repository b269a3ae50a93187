"""The last task of a job: name one coherent cut of results for readers outside the run."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from airflow_recovery.attempt.absent_inputs import FAILED_STATES
from airflow_recovery.attempt.clear_producers import clear_producers, refuse_without_clear_client
from airflow_recovery.attempt.declarations import declared_otherwise
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import ENDED_STATES, REMOVED_STATE, Observation
from airflow_recovery.attempt.withdraw import withdrawals
from airflow_recovery.errors import AttemptLost, InputFailed, InputPending, JobDefinitionError, PagesDisagree
from airflow_recovery.journal.journal import LISTING_ROUNDS
from airflow_recovery.model.keys import TaskKey
from airflow_recovery.model.records import PlanRecord, Publish, PublishedRegion
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason

CALLER = "publish"
NO_RESULT = FAILED_STATES | {"skipped"}
"""States of a region's task in which this DAG run has no result of it, whatever the journal has."""


def left_out_by_states(plan: PlanRecord, states: Mapping[str, str | None]) -> frozenset[str]:
    """The regions of which this DAG run has no result. ``states``: of the regions' tasks, by region.

    Pure. Raises `InputFailed` if one of them is final and has failed.
    """
    failed = [region.name for region in plan.regions if region.final and states[region.name] in FAILED_STATES]
    if failed:
        raise InputFailed(
            f"{', '.join(failed)} has failed in this run, and is to be published. Results of earlier tries do not "
            "count for this run, so this task writes no new publish. Repair what has failed, and clear it with its "
            "downstream tasks.",
            code="publish-of-failed",
            failed=list(failed),
        )
    return frozenset(region.name for region in plan.regions if states[region.name] in NO_RESULT)


def not_over(named: Iterable[str], states: Mapping[str, str | None]) -> tuple[str, ...]:
    """Those of the regions in ``named`` whose tasks have not ended in this DAG run. Pure."""
    return tuple(name for name in named if states[name] not in ENDED_STATES)


class PublishTask:
    """One try of the publish task.

    It looks at the final results as a consumer of all of them would: if one is not valid, or is not there, its producer
    is cleared, and this task retries. A region that this DAG run has skipped is named as skipped, and none of its
    results are named, whatever an earlier try has made. The same cut is published once. Raises `InputFailed` if a final
    region has failed in this run, and `InputPending` if a region whose results it would name has not ended.

    ``below``: the ids of the tasks that Airflow starts only after this one. Raises `JobDefinitionError` if it would
    wait for one of them.
    """

    def __init__(self, run: Run, below: Container[str] = ()) -> None:
        self._run = run
        self._below = below
        self.found_it = False
        """The present cut had been published before this try."""

    def execute(self) -> Publish:
        """The publish that names the present cut: a new one, or the newest where nothing has changed."""
        for _ in range(LISTING_ROUNDS):
            observation = self._run.task_instances.observe()
            states = self._states(observation)
            left_out = left_out_by_states(self._run.plan, states)
            skipped = tuple(name for name in self._run.regions if states[name] == "skipped")
            state = self._run.load()
            evaluation = self._run.evaluate(state, unkept=declared_otherwise(self._run, state, self._run.regions))
            lost = self._lost(evaluation, left_out)
            if lost:
                self._wait_for(not_over(lost, states), needs_all=len(lost))
                if observation is None:
                    raise refuse_without_clear_client(self._run, evaluation, CALLER, lost)
                raise clear_producers(self._run, evaluation, CALLER, lost, observation)
            cut = self._cut(evaluation, left_out)
            self._wait_for(not_over((region.region for region in cut if region.results), states))
            newest = self._run.journal.read_publish(state.newest_publish) if state.newest_publish else None
            if newest is not None and (newest.regions, newest.skipped) == (cut, skipped):
                self.found_it = True
                self._run.log.info("Publish %d names these results already.", newest.number)
                for withdrawal in withdrawals(self._run.journal, state, newest):
                    self._run.log.warning("Still withdrawn, since no newer attempt was made: %s.", withdrawal.text())
                return newest
            publish = Publish(state.newest_publish + 1, cut, skipped, self._run.now())
            self._run.task_instances.live_check()
            try:
                self._run.journal.publish(publish)
            except AttemptLost:
                continue
            self._run.log.info(
                "Publish %d: %s.", publish.number, ", ".join(f"{region.region}@{region.attempt}" for region in cut)
            )
            return publish
        raise PagesDisagree(f"Others have published {LISTING_ROUNDS} times meanwhile; this task retries.")

    def _wait_for(self, regions: Sequence[str], needs_all: int = 1) -> None:
        """Raise `InputPending` if there are as many ``regions`` as that, whose tasks have not ended in this run."""
        if not regions or len(regions) < needs_all:
            return
        names = ", ".join(regions)
        keys = (TaskKey.parse(self._run.task_keys[name]).task_id for name in regions)
        below = next((task_id for task_id in keys if task_id in self._below), None)
        if below is not None:
            raise JobDefinitionError(
                f"The results of {names} are to be published, and Airflow starts {below} only after this task. So this "
                "task would wait without end. Put the publish task after the last tasks of the job.",
                code="publish-before-its-results",
            )
        raise InputPending(
            f"The results of {names} are to be published, and that is not over in this run: it may still be skipped, "
            "or fail. This task waits until it has ended, and uses no retry for that.",
            code="publish-of-pending",
        )

    def _states(self, observation: Observation | None) -> dict[str, str | None]:
        """The present state of each region's task in Airflow, by region; ``removed`` where Airflow has none."""
        keys = self._run.task_keys
        if observation is None:
            states = self._run.task_instances.states(list(keys.values()))
        else:
            states = {key: task.state for key, task in observation.tries.items()}
        return {name: states.get(keys[name], REMOVED_STATE) for name in self._run.regions}

    def _lost(self, evaluation: Evaluation, left_out: Container[str]) -> dict[str, Reason]:
        lost: dict[str, Reason] = {}
        for region in self._run.plan.regions:
            if not region.final or region.name in left_out:
                continue
            reason = _why_missing(evaluation, region.name)
            if reason is not None:
                lost |= evaluation.lost_inputs(region.name)
                lost[region.name] = reason
        return {name: lost[name] for name in self._run.regions if name in lost}

    def _cut(self, evaluation: Evaluation, left_out: Container[str]) -> tuple[PublishedRegion, ...]:
        """Every region that is valid, so that the publish pins what its results rest on.

        One that was skipped, or has failed, is named without results: nobody can read them.
        """
        regions = []
        for region in self._run.plan.regions:
            attempt = evaluation.current(region.name)
            if attempt is None or evaluation.invalid_because(region.name) is not None:
                continue
            results = () if region.name in left_out else region.results
            regions.append(PublishedRegion(region.name, attempt.number, attempt.outcome_etag or "", results))
        return tuple(regions)


def _why_missing(evaluation: Evaluation, region: str) -> Reason | None:
    """Why what ``region`` makes can't be published as it is."""
    return evaluation.why_must_run(region) or evaluation.why_not_committed(region)
