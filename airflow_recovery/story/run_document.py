"""One run as the Recovery tab and the REST API show it: its regions, who reads whom, and what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from airflow_recovery.attempt.recovery_report import Recovered, recovered
from airflow_recovery.attempt.task_instances import Observation, TaskTry
from airflow_recovery.journal.journal import without_garbage_collection
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.keys import TaskKey
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.story.compared_components import unseen_code
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
    ``is_published``: the newest publish names its attempt that counts. ``withdrawn``: who has withdrawn that, and why;
    empty if nobody has.
    """

    status: RegionStatus
    is_final: bool
    is_pinned: bool
    is_published: bool
    withdrawn: str
    inputs: Sequence[str]
    task: TaskView | None
    story: RegionStory
    unseen_code: tuple[str, ...] = ()
    """Code of the attempt that counts whose content could not be read. Not read of a run that is folded."""


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
    subtasks, in ``edges`` too. At most `MAX_TOLD` of each are there, first those of which there is something to tell;
    ``left`` counts the regions that are in none of them. `region_page` has them all. ``holes``: why the history is not
    whole, a line each. Recovery itself never reads it.
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
    left: int
    edges: tuple[Edge, ...]
    decisions: tuple[Decision, ...]
    holes: tuple[str, ...]
    saved: Recovered


_WORST = {RegionStatus.FAILED: 0, RegionStatus.LOST: 1, RegionStatus.RUNNING: 2}
MAX_TOLD = 100
"""So many regions, and so many rows of subtasks, of a folded run: its document is as large as that of a small one."""


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
    views = _Regions(view, events, observation, {} if is_folded else unseen_code(view))
    statuses = views.statuses()
    counts = Counter(status.value for status in statuses.values())
    told: Sequence[str] = list(plan.by_name)
    rows: tuple[SubtasksView, ...] = ()
    edges: Sequence[Edge] = edges_of(plan, state) if not is_folded else ()
    if is_folded:
        eventful = sorted(views.story.eventful(), key=lambda name: _WORST.get(statuses[name], len(_WORST)))
        together = _uneventful(plan, eventful)
        told = _first([name for name in plan.by_name if name not in together], eventful)
        rows = _together(views, statuses, together)[:MAX_TOLD]
        shown = {row.of for row in rows} | {without_key(plan.by_name[name]) for name in told}
        edges = [edge for edge in group_edges_of(plan, state) if {edge.producer, edge.consumer} <= shown]
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
        regions=tuple(views.of(plan.by_name[name]) for name in told),
        subtasks=rows,
        left=len(plan.regions) - len(told) - sum(row.regions for row in rows),
        edges=tuple(edges),
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
    plan = view.in_use.plan
    names = [
        name
        for name in (plan.by_name if of is None else plan.subtask_names.get(of, ()))
        if search.lower() in name.lower() and (status is None or views.status(name) is status)
    ]
    return RegionPage(len(names), tuple(views.of(plan.by_name[name]) for name in names[offset : offset + limit]))


_NOT_READ = (
    f"Of a run of more than {MAX_REGIONS:,} regions it is not read here, and so a region that was kept counts as run: "
    "`airflow-recovery show --all` tells it."
)


def _uneventful(plan: PlanRecord, eventful: Sequence[str]) -> dict[str, None]:
    """The subtasks but those of which there is something to tell, in their order."""
    alone = set(eventful[: min(MAX_REGIONS, MAX_TOLD)])
    names = chain.from_iterable(plan.subtask_names.values())
    return dict.fromkeys(name for name in names if name not in alone)


def _first(names: Sequence[str], eventful: Sequence[str]) -> list[str]:
    """`MAX_TOLD` of ``names``, in their order; the ``eventful`` ones before the others."""
    if len(names) <= MAX_TOLD:
        return list(names)
    known = set(names)
    wanted = dict.fromkeys(chain((name for name in eventful if name in known), names))
    chosen = set(islice(wanted, MAX_TOLD))
    return [name for name in names if name in chosen]


def _together(views: _Regions, statuses: Mapping[str, RegionStatus], names: Iterable[str]) -> tuple[SubtasksView, ...]:
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
        for alike in views.story.alike(names, lambda name: statuses[name].value)
    )


class _Regions:
    """What is told of each region of a run, once it is asked for."""

    def __init__(
        self,
        view: RunView,
        events: RunEvents,
        observation: Observation | None,
        unseen: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._view = view
        self._unseen = unseen or {}
        self._tries = observation.tries if observation is not None else {}
        self._statuses: dict[str, RegionStatus] = {}
        self.story = RunStory(view, events)

    def statuses(self) -> Mapping[str, RegionStatus]:
        """Of every region, by name, in topological order."""
        self.story.evaluation.invalid()  # of all at once, which takes fewer steps
        return {name: self.status(name) for name in self._view.in_use.plan.by_name}

    def status(self, region: str) -> RegionStatus:
        if region not in self._statuses:
            self._statuses[region] = self._find_status(region)
        return self._statuses[region]

    def _find_status(self, region: str) -> RegionStatus:
        state, task = self._view.in_use.state.of(region), self._task(region)
        current = state.current
        reported_to = None
        if current is not None and current.is_lost and task is not None:
            reported_to = self._view.journal.read_lost(region, current.number).producer_ti_id
        invalid = self.story.evaluation.invalid_because(region)
        was_kept = self.story.why_kept(region) is not None
        return status_of(Seen(state, invalid, task, was_kept=was_kept, reported_to=reported_to))

    def of(self, region: RegionPlan) -> RegionView:
        plan, task = self._view.in_use.plan, self._task(region.name)
        current = self._view.in_use.state.of(region.name).current
        inputs = region.inputs
        if len(plan.regions) > MAX_REGIONS:
            read = (plan.groups_by_name[edge.group].template for edge in plan.group_of(region.name).inputs)
            inputs = tuple(dict.fromkeys(map(without_key, read)))
        return RegionView(
            status=self.status(region.name),
            is_final=region.final,
            is_pinned=current is not None and current.is_pinned,
            is_published=current is not None and InputRef(region.name, current.number) in self._view.published,
            withdrawn="; ".join(f"{by.who}: {by.reason}" for by in self._view.withdrawn if by.region == region.name),
            inputs=inputs,
            task=TaskView(task.key, task.task_id, task.map_index, task.try_number, task.state)
            if task is not None
            else None,
            story=self.story.of(region),
            unseen_code=self._unseen.get(region.name, ()),
        )

    def _task(self, region: str) -> TaskTry | None:
        if not self._tries:
            return None
        group, index = self._view.in_use.plan.place(region)
        return self._tries.get(str(TaskKey.of_place(group, index, self._view.journal.identity.group_id)))
