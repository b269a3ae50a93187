"""One run as the Recovery tab and the REST API show it: its regions, who reads whom, and what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_recovery.attempt.recovery_report import Recovered, recovered
from airflow_recovery.attempt.task_instances import Observation, TaskTry
from airflow_recovery.journal.journal import without_garbage_collection
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.story.clearing import task_keys
from airflow_recovery.story.decisions import Decision, decisions_of
from airflow_recovery.story.edges import Edge, edges_of, group_edges_of, without_key
from airflow_recovery.story.region_status import RegionStatus, Seen, status_of
from airflow_recovery.story.run_events import RunEvents, events_of
from airflow_recovery.story.run_story import MAX_REGIONS, RegionStory, RunStory
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
class SubtasksView:
    """Subtasks of region ``of`` in one status that are told of as one: the first has the index ``first``.

    ``attempt`` is the highest that counts in one of them, ``why`` that of the first of them. ``results``, ``rows``,
    ``files`` and ``bytes`` are of all of them; ``rows`` is `None` where none was counted.
    """

    of: str
    status: RegionStatus
    regions: int
    first: int
    vertices: tuple[str, ...]
    attempt: int
    results: int
    rows: int | None
    files: int
    bytes: int
    why: str


@dataclass(frozen=True)
class RegionPage:
    """Some of the regions that were asked for, in topological order, and how many there are."""

    total: int
    regions: tuple[RegionView, ...]


@dataclass(frozen=True)
class RunDocument:
    """``statuses``: how many regions are in each. ``others``: other groups of the run, each with a journal.

    A run of more than `MAX_REGIONS` regions is folded: ``subtasks`` has those of which there is nothing to tell but
    that they ran once or have not begun, ``regions`` the others, and what a region reads is told without the keys of
    subtasks, in ``edges`` too. ``holes``: why the history is not whole, a line each. Recovery itself never reads it.
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
    subtasks: tuple[SubtasksView, ...]
    edges: tuple[Edge, ...]
    decisions: tuple[Decision, ...]
    holes: tuple[str, ...]
    saved: Recovered


@without_garbage_collection()
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
    is_folded = len(plan.regions) > MAX_REGIONS
    # A large run has a stream of events of every try: to read them takes longer than all the rest.
    events = RunEvents(holes=(_NOT_READ,)) if is_folded else events_of(view.journal)
    views = _Regions(view, events, observation)
    statuses = {region.name: views.status(region) for region in plan.regions}
    counts = Counter(status.value for status in statuses.values())
    alone = _told_alone(plan.regions, views.story.eventful()) if is_folded else plan.regions
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
        regions=tuple(map(views.of, alone)),
        subtasks=_together(view, views, statuses, {region.name for region in alone}) if is_folded else (),
        edges=tuple(group_edges_of(plan, state) if is_folded else edges_of(plan, state)),
        decisions=tuple(decisions_of(events)),
        holes=events.holes,
        saved=recovered(plan, state, events.newest_kept()),
    )


def region_page(
    view: RunView,
    observation: Observation | None = None,
    *,
    of: str | None = None,
    status: RegionStatus | None = None,
    search: str = "",
    offset: int = 0,
    limit: int = MAX_REGIONS,
) -> RegionPage:
    """The subtasks of ``of`` that are in ``status`` and have ``search`` in their names; of each, where it is given."""
    views = _Regions(view, RunEvents(), observation)
    found = [
        region
        for region in view.in_use.plan.regions
        if (of is None or (region.subtask is not None and region.subtask.of == of))
        and search.lower() in region.name.lower()
        and (status is None or views.status(region) is status)
    ]
    return RegionPage(len(found), tuple(map(views.of, found[offset : offset + limit])))


_NOT_READ = (
    f"Of a run of more than {MAX_REGIONS:,} regions it is not read here, and so a region that was kept counts as run: "
    "`airflow-recovery show --all` tells it."
)


def _told_alone(regions: Iterable[RegionPlan], eventful: Sequence[RegionPlan]) -> list[RegionPlan]:
    names = {region.name for region in eventful[:MAX_REGIONS]}
    return [region for region in regions if region.subtask is None or region.name in names]


def _together(
    view: RunView, views: _Regions, statuses: Mapping[str, RegionStatus], alone: Collection[str]
) -> tuple[SubtasksView, ...]:
    folded = (region for region in view.in_use.plan.regions if region.subtask is not None and region.name not in alone)
    return tuple(
        SubtasksView(
            of=alike.name,
            status=RegionStatus(alike.state),
            regions=alike.regions,
            first=alike.indexes[0],
            vertices=alike.vertices,
            attempt=alike.attempt,
            results=alike.results,
            rows=alike.rows,
            files=alike.files,
            bytes=alike.bytes,
            why=alike.why,
        )
        for alike in views.story.alike(folded, lambda region: statuses[region.name].value)
    )


class _Regions:
    """What is told of each region of a run, once it is asked for."""

    def __init__(self, view: RunView, events: RunEvents, observation: Observation | None) -> None:
        self._view = view
        self._tries = observation.tries if observation is not None else {}
        self._statuses: dict[str, RegionStatus] = {}
        self.story = RunStory(view, events)

    def status(self, region: RegionPlan) -> RegionStatus:
        if region.name not in self._statuses:
            self._statuses[region.name] = self._find_status(region)
        return self._statuses[region.name]

    def _find_status(self, region: RegionPlan) -> RegionStatus:
        state, task = self._view.in_use.state.of(region.name), self._task(region)
        current = state.current
        reported_to = None
        if current is not None and current.is_lost and task is not None:
            reported_to = self._view.journal.read_lost(region.name, current.number).producer_ti_id
        invalid = self.story.evaluation.invalid_because(region.name)
        was_kept = self.story.why_kept(region.name) is not None
        return status_of(Seen(state, invalid, task, was_kept=was_kept, reported_to=reported_to))

    def of(self, region: RegionPlan) -> RegionView:
        plan, task = self._view.in_use.plan, self._task(region)
        current = self._view.in_use.state.of(region.name).current
        inputs = region.inputs
        if len(plan.regions) > MAX_REGIONS:
            read = (plan.groups_by_name[edge.group].template for edge in plan.group_of(region.name).inputs)
            inputs = tuple(dict.fromkeys(map(without_key, read)))
        return RegionView(
            status=self.status(region),
            is_final=region.final,
            is_pinned=current is not None and current.is_pinned,
            inputs=inputs,
            task=TaskView(task.key, task.task_id, task.map_index, task.try_number, task.state)
            if task is not None
            else None,
            story=self.story.of(region),
        )

    def _task(self, region: RegionPlan) -> TaskTry | None:
        return self._tries.get(task_keys(self._view.journal.identity, [region])[0]) if self._tries else None
