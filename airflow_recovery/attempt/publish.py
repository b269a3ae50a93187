"""The last task of a job: name one coherent cut of results for readers outside the run."""

from __future__ import annotations

from airflow_recovery.attempt.clear_producers import clear_producers, refuse_without_clear_client
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.attempt.withdraw import withdrawals
from airflow_recovery.errors import AttemptLost, PagesDisagree
from airflow_recovery.journal.journal import LISTING_ROUNDS
from airflow_recovery.model.records import Publish, PublishedRegion
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason

CALLER = "publish"


class PublishTask:
    """One try of the publish task.

    It looks at the final results as a consumer of all of them would: if one is not valid, or is not there, its producer
    is cleared, and this task retries. A final result whose region was skipped in this run, and has none from an earlier
    attempt that is valid and there, is left out and named as skipped. The same cut is published once.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def execute(self) -> Publish:
        """The publish that names the present cut: a new one, or the newest where nothing has changed."""
        for _ in range(LISTING_ROUNDS):
            observation = self._run.task_instances.observe()
            state = self._run.load()
            evaluation = self._run.evaluate(state)
            skipped = self._skipped(evaluation, observation)
            lost = self._lost(evaluation, skipped)
            if lost:
                if observation is None:
                    raise refuse_without_clear_client(self._run, evaluation, CALLER, lost)
                raise clear_producers(self._run, evaluation, CALLER, lost, observation)
            cut = self._cut(evaluation, skipped)
            newest = self._run.journal.read_publish(state.newest_publish) if state.newest_publish else None
            if newest is not None and (newest.regions, newest.skipped) == (cut, skipped):
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

    def _skipped(self, evaluation: Evaluation, observation: Observation | None) -> tuple[str, ...]:
        keys = self._run.task_keys
        if observation is None:
            waiting = [keys[name] for name in self._run.regions if _why_missing(evaluation, name) is not None]
            states = self._run.task_instances.states(waiting) if waiting else {}
        else:
            states = {key: task.state for key, task in observation.tries.items()}
        return tuple(
            name
            for name in self._run.regions
            if states.get(keys[name]) == "skipped" and _why_missing(evaluation, name) is not None
        )

    def _lost(self, evaluation: Evaluation, skipped: tuple[str, ...]) -> dict[str, Reason]:
        lost: dict[str, Reason] = {}
        for region in self._run.plan.regions:
            if not region.final or region.name in skipped:
                continue
            reason = _why_missing(evaluation, region.name)
            if reason is not None:
                lost |= evaluation.lost_inputs(region.name)
                lost[region.name] = reason
        return {name: lost[name] for name in self._run.regions if name in lost}

    def _cut(self, evaluation: Evaluation, skipped: tuple[str, ...]) -> tuple[PublishedRegion, ...]:
        """Every region that is valid, so that the publish pins what its results rest on.

        A skipped one that others rest on is named without results: nobody can read them.
        """
        regions = []
        for region in self._run.plan.regions:
            attempt = evaluation.current(region.name)
            if attempt is None or evaluation.invalid_because(region.name) is not None:
                continue
            results = () if region.name in skipped else region.results
            regions.append(PublishedRegion(region.name, attempt.number, attempt.outcome_etag or "", results))
        return tuple(regions)


def _why_missing(evaluation: Evaluation, region: str) -> Reason | None:
    """Why what ``region`` makes can't be published as it is."""
    return evaluation.why_must_run(region) or evaluation.why_not_committed(region)
