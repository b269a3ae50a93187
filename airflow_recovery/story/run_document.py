"""One run as the Recovery tab and the REST API show it: its regions, who reads whom, and what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_recovery.attempt.recovery_report import Recovered, recovered
from airflow_recovery.attempt.task_instances import Observation, TaskTry
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.story.clearing import task_keys
from airflow_recovery.story.decisions import Decision, decisions_of
from airflow_recovery.story.edges import Edge, edges_of
from airflow_recovery.story.region_status import RegionStatus, Seen, status_of
from airflow_recovery.story.run_events import events_of
from airflow_recovery.story.run_story import RegionStory, tell
from airflow_recovery.story.run_view import RunView


@dataclass(frozen=True)
class TaskView:
    """The Airflow task of a region. ``state`` is `None` before it is scheduled."""

    key: str
    task_id: str
    map_index: int
    try_number: int
    state: str | None


@dataclass(frozen=True)
class RegionView:
    """One region: what it does, its task, and its story.

    ``is_final``: its results leave the job. ``is_pinned``: a person wants the data of the attempt that counts kept.
    """

    status: RegionStatus
    is_final: bool
    is_pinned: bool
    inputs: Sequence[str]
    task: TaskView | None
    story: RegionStory


@dataclass(frozen=True)
class RunDocument:
    """``statuses``: how many regions are in each. ``others``: other groups of the run, each with a journal.

    ``holes``: why the history is not whole, a line each. Recovery itself never reads it.
    """

    dag_id: str
    run_id: str
    run_key: str
    group_id: str
    others: tuple[str, ...]
    run_state: str | None
    job: str
    header: str
    is_active: bool
    statuses: dict[str, int]
    regions: tuple[RegionView, ...]
    edges: tuple[Edge, ...]
    decisions: tuple[Decision, ...]
    holes: tuple[str, ...]
    saved: Recovered


def run_document(
    view: RunView,
    *,
    run_id: str,
    run_state: str | None = None,
    observation: Observation | None = None,
    others: tuple[str, ...] = (),
) -> RunDocument:
    """``observation``: what Airflow says of the run's tasks; without it the journal alone speaks."""
    plan, state, identity = view.in_use.plan, view.in_use.state, view.journal.identity
    tries = observation.tries if observation is not None else {}
    events = events_of(view.journal)
    evaluation = Evaluation(plan, state, available=lambda region, attempt, result: None)
    by_name = {region.name: region for region in plan.regions}
    regions = tuple(_region(view, evaluation, by_name[story.name], story, tries) for story in tell(view, events))
    counts = Counter(region.status.value for region in regions)
    return RunDocument(
        dag_id=identity.dag_id,
        run_id=run_id,
        run_key=identity.run_key,
        group_id=identity.group_id,
        others=others,
        run_state=run_state,
        job=plan.job,
        header=view.header(),
        is_active=run_state in ("running", "queued") or counts[RegionStatus.RUNNING.value] > 0,
        statuses={status.value: counts[status.value] for status in RegionStatus if counts[status.value]},
        regions=regions,
        edges=tuple(edges_of(plan, state)),
        decisions=tuple(decisions_of(events)),
        holes=events.holes,
        saved=recovered(plan, state, events.newest_kept()),
    )


def _region(
    view: RunView, evaluation: Evaluation, region: RegionPlan, story: RegionStory, tries: Mapping[str, TaskTry]
) -> RegionView:
    state = view.in_use.state.of(region.name)
    task = tries.get(task_keys(view.journal.identity, [region])[0])
    current = state.current
    reported_to = None
    if current is not None and current.is_lost and task is not None:
        reported_to = view.journal.read_lost(region.name, current.number).producer_ti_id
    seen = Seen(
        state, evaluation.invalid_because(region.name), task, was_kept=story.kept is not None, reported_to=reported_to
    )
    return RegionView(
        status=status_of(seen),
        is_final=region.final,
        is_pinned=current is not None and current.is_pinned,
        inputs=region.inputs,
        task=TaskView(task.key, task.task_id, task.map_index, task.try_number, task.state)
        if task is not None
        else None,
        story=story,
    )
