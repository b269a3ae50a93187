"""Letting intermediate results go in the task that made it possible: the last consumer, or the publish.

Only where the policy asks for it at once; everything else is left to `airflow recovery gc`, and so is whatever can't be
done here. Best effort: a run that is good stays good.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import JournalError, StoreError
from airflow_recovery.model.retention import ReleasePolicy, Retention
from airflow_recovery.results.cached import CachedViews, views_of_run
from airflow_recovery.results.release import Candidate, Releaser
from airflow_recovery.results.release_rule import ReleaseRule
from airflow_recovery.results.table_tags import RunTags
from airflow_recovery.results.tables import Tables
from airflow_recovery.store.object_store import ObjectStore


def release_consumed(
    run: Run, region: str, results: ObjectStore, default: Retention, tables: Tables | None = None
) -> None:
    """After the final check of ``region``: release its inputs, if nobody else needs them and they are `AS_CONSUMED`.

    ``tables``: where tags of ours are taken off what is released.
    """
    _release(run, run.regions[region].inputs, results, default, ReleasePolicy.AS_CONSUMED, tables)


def release_published(run: Run, results: ObjectStore, default: Retention, tables: Tables | None = None) -> None:
    """After the run has published: let go of everything inside the job, where that is `ON_RUN_SUCCESS`."""
    _release(run, run.regions, results, default, ReleasePolicy.ON_RUN_SUCCESS, tables)


def drop_cached(run: Run, views: CachedViews) -> None:
    """At the end of a run: nobody reads its cached results any more. Those of all its attempts, and of no other run.

    A region that is cleared later finds them lost, and has them made again if it must run.
    """
    try:
        names = views_of_run(run.journal, run.plan, run.list().state).keys() & views.names()
        views.drop(names)
    except (StoreError, JournalError) as error:
        run.log.warning("The cached results of this run were not dropped, gc --connect will: %s", error)
    else:
        run.log.info("%d cached results of this run were dropped.", len(names))


def _release(
    run: Run,
    regions: Iterable[str],
    results: ObjectStore,
    default: Retention,
    policy: ReleasePolicy,
    tables: Tables | None,
) -> None:
    retention = run.plan.retention or default
    candidates = [region for region in regions if not run.regions[region].final]
    if retention.policy is not policy or retention.grace_s > 0 or not candidates:
        return
    try:
        state = run.journal.load(run.list())
        # What no longer counts is left to the sweeper.
        rule = ReleaseRule.at_once(run.journal, run.today, state, retention, orphan_grace_s=float("inf"))
        tags = RunTags(tables, run.journal, state) if tables is not None else None
        releaser = Releaser(run.journal, results, who=f"{run.task.airflow_run_id} ({policy.value})", tags=tags)
        released = []
        for name in candidates:
            current = state.of(name).current
            if current is not None and not current.is_released and rule.verdict(name, current.number).may_go:
                released.append(Candidate(name, current, rule.released_with(name, current.number)))
        for (name, current, *_), deleted in zip(released, releaser.release_all(released), strict=True):
            left = f"left to gc, since {deleted.readers} reads it" if deleted.readers else f"{deleted.size} bytes"
            run.log.info("%s@%d is released (%s): %s.", name, current.number, policy.value, left)
            if deleted.tags_left:
                run.log.warning("%s@%d is released; its %s", name, current.number, deleted.tags_left)
    except (StoreError, JournalError) as error:
        run.log.warning("Intermediate results were not released, gc will: %s", error)
