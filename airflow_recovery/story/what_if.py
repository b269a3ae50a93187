"""What would happen if: a question about a run, its plan, and whether the plan still holds when it is to be done.

The commands, the REST API and the preview of a release all ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_recovery.attempt.apply_plan import AppliedPlan
from airflow_recovery.attempt.rebuild import asked_for
from airflow_recovery.attempt.task_instances import FINISHED_STATES, RUNNING_STATES, Observation
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.result_type import kept_by
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan import CLEARED, Plan
from airflow_recovery.planning.plan_diff import diff
from airflow_recovery.planning.plan_making import plan_if
from airflow_recovery.planning.scenario import (
    REBUILD,
    CodeChanged,
    PartitionGone,
    RecomputeAll,
    RegionFailure,
    Request,
    RestartFrom,
    RestartRegion,
    Together,
    together,
)
from airflow_recovery.results.places import Look, ResultPlaces
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.results.tables import TableLost
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.clearing import task_keys
from airflow_recovery.story.run_view import RunView


@dataclass(frozen=True)
class WhatIf:
    """What is asked; nothing: the run as it is, so that what is lost or has failed is made again. Else all at once.

    ``restart``, ``failed``: regions. ``from_``, ``changed``: vertices. ``lost``: results, or regions for all of theirs.
    ``cause``: of the failures.
    """

    restart: tuple[str, ...] = ()
    from_: tuple[str, ...] = ()
    recompute: bool = False
    failed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    cause: str | None = None

    def request(self, who: str) -> Request:
        """All that is asked, as one request in the name of user ``who``."""
        requests: list[Request] = [
            *(RegionFailure(region, self.cause or RegionFailure.cause) for region in self.failed),
            *(PartitionGone(result) for result in self.lost),
            *(CodeChanged(vertex) for vertex in self.changed),
            *(RestartRegion(region, who) for region in self.restart),
            *(RestartFrom(vertex, who) for vertex in self.from_),
            *((RecomputeAll(who),) if self.recompute else ()),
        ]
        return together(requests)


@dataclass(frozen=True)
class Prepared:
    """A plan, and the tries of the tasks that it would clear (key -> TI id), as both were seen at one time."""

    plan: Plan
    tries: Mapping[str, str]

    @property
    def id(self) -> str:
        """Names what was seen, whoever computes it: equal plans of one moment of a run have equal ids."""
        regions = [
            [region.name, region.action.value, region.attempt, region.latest_attempt, region.reset_watermark]
            for region in self.plan.regions
        ]
        resets = None if self.plan.resets is None else [[reset.region, reset.attempt] for reset in self.plan.resets]
        seen = {
            "asked": self.plan.request.text(),
            "regions": regions,
            "resets": resets,
            "tries": dict(sorted(self.tries.items())),
        }
        return digest_of(seen)[:32]

    @property
    def can_run(self) -> bool:
        """Whether it asks for something that somebody can bring about: a loss or a failure is only supposed."""
        return self.plan.resets is not None


def evaluate_run(
    view: RunView,
    places: ResultPlaces,
    open_location: Callable[[str], ObjectStore],
    ask_cached: Callable[[PartitionManifest], str | None] | None = None,
    ask_table: Callable[[PartitionManifest], TableLost | None] | None = None,
) -> Evaluation:
    """The run as it was read, for one plan: the results that are asked for in any case are looked for at once."""
    prober = ResultProber(open_location, ask_cached=ask_cached, places=places, ask_table=ask_table)
    evaluation = Evaluation(view.in_use.plan, view.in_use.state, available=prober)
    prober.look_ahead(asked_for(evaluation))
    return evaluation


def not_asked(places: ResultPlaces, view: RunView) -> list[str]:
    """The regions with a result at a location that is not opened, and taken to be as registered."""

    def is_taken(output: PartitionManifest) -> bool:
        is_own = bool(kept_by(output.location)) or output.managed
        return not is_own and places.look_at(output) is Look.TAKEN_TO_BE_THERE

    return [
        region.name
        for region in view.in_use.plan.regions
        if (current := view.in_use.state.of(region.name).current) is not None
        and current.outcome is not None
        and any(is_taken(output) for output in current.outcome.outputs)
    ]


def plan_run(view: RunView, evaluation: Evaluation, request: Request = REBUILD) -> Plan:
    """The plan of ``request`` for the run as it was read and evaluated. Raises `UnknownRegion`, and store errors."""
    return plan_if(evaluation, request, published=view.published)


def prepare(view: RunView, evaluation: Evaluation, request: Request, observation: Observation) -> Prepared:
    """The plan of ``request`` for the run as it is now. Raises `UnknownRegion`, and the store's errors."""
    prepared_plan = plan_run(view, evaluation, request)
    regions = view.in_use.plan.by_name
    keys = task_keys(view.journal.identity, [regions[name] for name in prepared_plan.names(*CLEARED)])
    known = {key: observation.tries[key].ti_id for key in keys if key in observation.tries}
    return Prepared(prepared_plan, known)


def changes(seen: Prepared, now: Prepared, observation: Observation) -> tuple[str, ...]:
    """What has changed between the plan that a person has seen and the same plan made anew; empty: nothing."""
    texts = [difference.text() for difference in diff(seen.plan, now.plan)]
    for key, ti_id in now.tries.items():
        if seen.tries.get(key) != ti_id:
            task_try = observation.tries[key]
            texts.append(
                f"task {key}: tried again or cleared, now try {task_try.try_number}, {task_try.state or 'not begun'}"
            )
    texts += [f"task {key}: would not be cleared any more" for key in seen.tries if key not in now.tries]
    return tuple(texts)


def tasks_to_clear(view: RunView, applied: AppliedPlan, prepared: Prepared, observation: Observation) -> dict[str, str]:
    """Of an applied plan, the tasks that Airflow clears, with the tries that were seen.

    A task that has not begun needs no clear: its own pre-check honours what was reset. One that works on something that
    the plan does not concern is cleared only where it has ended.
    """
    regions = view.in_use.plan.by_name
    identity = view.journal.identity
    at_work = set(task_keys(identity, [regions[name] for name in applied.at_work]))
    wanted = task_keys(identity, [regions[name] for name in (*applied.clear, *applied.at_work)])
    return {
        key: prepared.tries[key]
        for key in wanted
        if key in prepared.tries
        and observation.tries[key].state in (FINISHED_STATES if key in at_work else FINISHED_STATES | RUNNING_STATES)
    }


def asked_by(request: Request, who: str) -> Request:
    """``request`` in the name of ``who``, whoever it names: what comes from outside is not believed in this."""
    if isinstance(request, Together):
        return Together(tuple(asked_by(part, who) for part in request.requests))
    if isinstance(request, RestartRegion | RestartFrom | RecomputeAll):
        return replace(request, who=who)
    return request


def prepared_from_json(plan_json: Any, tries: Any) -> Prepared:
    """A plan that a page has kept. Raises `ValueError` where it is none."""
    try:
        kept_plan = Plan.from_json(plan_json)
        seen = {str(key): str(ti_id) for key, ti_id in tries.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected a plan as this API has answered it, and its tries: {error!r}") from error
    return Prepared(kept_plan, seen)
