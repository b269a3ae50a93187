"""Settle (PROTOCOL 5.3): before every success, whether run, kept or adopted.

Has anything that I read been superseded meanwhile? Has anybody read, or published, what I superseded? Each region
writes its finish and then reads the others'; so of two that race, one sees the other.
"""

from __future__ import annotations

from airflow_recovery.errors import NoDoor, Overtaken, PagesDisagree
from airflow_recovery.execution.run import LISTING_ROUNDS, Run, is_untouched
from airflow_recovery.execution.scheduler import FINISHED_STATES, RUNNING_STATES, ClearRequest, Observation
from airflow_recovery.failover.judgement import Judgement
from airflow_recovery.journal.run_state import RunState


def settle(run: Run, region: str, attempt: int) -> None:
    """Returns once ``region`` may report success with ``attempt``; clears whoever stands on a superseded input.

    An inner region at its first attempt and try has superseded nobody, and its consumers look at it themselves: it
    skips this. Raises `Overtaken` where its own basis is superseded, `NoDoor` where somebody would have to be cleared
    and no way is configured.
    """
    first_try = attempt == 1 and run.task.try_number <= 1
    if run.consumers[region] and first_try:
        return
    observation: Observation | None = None
    for _ in range(LISTING_ROUNDS):
        # Observe, then list, in this order: a try that starts between the two is no longer the observed one.
        if not first_try and run.scheduler.can_clear:
            observation = run.scheduler.observe()
        listing = run.list()
        if is_untouched(listing.state, run.plan_hash) and not _is_blocked(observation):
            return
        if observation is None and run.scheduler.can_clear:
            first_try = False
            continue
        try:
            state = run.journal.load(listing)
        except PagesDisagree:
            continue
        judged = run.judge(state)
        mine = judged.current(region)
        why = judged.why_overtaken(region, mine.outcome.inputs if mine is not None and mine.outcome else None)
        if mine is None or why is not None:
            raise Overtaken(
                f"{region}@{attempt} was overtaken while it ran: {why.text() if why else 'it was reset'}. "
                "This task retries and is judged again."
            )
        _clear_overtaken(run, region, judged, observation, _why_published_anew(run, state, judged))
        return
    raise PagesDisagree(f"The journal of {region} did not settle in {LISTING_ROUNDS} listings; this task retries.")


def _why_published_anew(run: Run, state: RunState, judged: Judgement) -> str | None:
    """What the newest publish names that is superseded: its readers would wait for it, or miss it, for ever."""
    if not run.publish_keys or not state.newest_publish:
        return None
    for each in run.journal.read_publish(state.newest_publish).regions:
        now = judged.current(each.region) if each.region in run.regions else None
        if now is not None and now.number != each.attempt:
            return f"publish {state.newest_publish} names {each.region}@{each.attempt}, now @{now.number}"
    return None


def _clear_overtaken(
    run: Run, region: str, judged: Judgement, observation: Observation | None, publish_anew: str | None
) -> None:
    tries = run.tries(observation) if observation is not None else {}
    targets: dict[str, str] = {}
    reasons: list[str] = []
    for other in run.regions:
        if other == region:
            continue
        seen = tries.get(other)
        why = judged.why_overtaken(other, judged.basis(other, seen.ti_id if seen is not None else None))
        if why is None:
            continue
        if observation is None:
            reasons.append(why.text())
        elif seen is not None and seen.state in FINISHED_STATES | RUNNING_STATES:
            targets[run.task_keys[other]] = seen.ti_id
            reasons.append(why.text())
    if observation is None and reasons:
        raise NoDoor(
            f"{region} has made again what others had read ({'; '.join(reasons)}), and this deployment gives no way to "
            "clear them: set `[state_store] backend = airflow_recovery.plugins.state_backend.RecoveryStateBackend` on "
            "the API server, or `[recovery] api_conn_id` to a connection of type airflow_recovery; then clear them."
        )
    if publish_anew is not None and observation is not None:
        for key in run.publish_keys:
            task = observation.tries.get(key)
            if task is not None and task.state in FINISHED_STATES | RUNNING_STATES:
                targets[key] = task.ti_id
                reasons.append(publish_anew)
    elif publish_anew is not None:
        run.log.warning("%s; this deployment gives no way to clear %s.", publish_anew, ", ".join(run.publish_keys))
    if targets or _is_blocked(observation):
        result = run.scheduler.clear(ClearRequest(consumers=targets, unblock=_is_blocked(observation)))
        run.log.info("Settled: %s; cleared %s.", "; ".join(reasons) or "downstream was blocked", result.cleared)


def _is_blocked(observation: Observation | None) -> bool:
    """Somebody is stuck behind a failure that may just have been repaired (fault 65)."""
    return observation is not None and any(each.state == "upstream_failed" for each in observation.tries.values())
