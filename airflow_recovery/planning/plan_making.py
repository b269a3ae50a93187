"""`plan`: from topology, run state, availability and a request to what happens, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.altered import altered
from airflow_recovery.model.committing import CommitMode
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.groups import RegionGroup
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.mode import modes_of
from airflow_recovery.model.records import ADOPTED_FROM, CommitEnd, ExternalObject, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.retention import ReleasePolicy
from airflow_recovery.planning.coordinators import VertexRestarts, restarted_with
from airflow_recovery.planning.evaluation import Available, Evaluation
from airflow_recovery.planning.mode import PlannedMode
from airflow_recovery.planning.plan import Action, Plan, PlannedRegion, RegionNames, SubtasksOf
from airflow_recovery.planning.reason import LOST_DATA, Evidence, Reason, Why
from airflow_recovery.planning.restart_mode import PlannedRestarts, restarts
from airflow_recovery.planning.restart_set import RestartSet
from airflow_recovery.planning.scenario import REBUILD, Request, Scenario, restart_everything, restart_together


def plan(
    topology: PlanRecord,
    state: RunState,
    available: Available,
    request: Request = REBUILD,
    *,
    externals: Mapping[str, tuple[ExternalObject, ...]] | None = None,
    published: frozenset[InputRef] = frozenset(),
) -> Plan:
    """What would happen if ``request`` came true, for every region of ``topology``.

    ``available`` is asked once for each attempt whose data somebody would want. ``published`` names the attempts of the
    newest publish, which ``on-run-success`` may release. Raises `UnknownRegion` for a name in ``request`` that the
    topology lacks, and whatever ``available`` raises: "denied" is no answer.
    """
    as_it_is = Evaluation(topology, state, available=available, externals=externals)
    return plan_if(as_it_is, request, published=published)


def plan_if(as_it_is: Evaluation, request: Request = REBUILD, *, published: frozenset[InputRef] = frozenset()) -> Plan:
    """As `plan`, of a run that is evaluated already as it is."""
    topology, state = as_it_is.topology, as_it_is.state

    def evaluate(run: Scenario) -> Evaluation:
        return as_it_is if run is seen else as_it_is.of(run.topology, run.state, run.available)

    seen = Scenario(topology, state, as_it_is.available)
    run = request.apply(seen)
    evaluation = evaluate(run)
    if topology.failover_strategy is FailoverStrategy.FULL and _has_failed(evaluation):
        run = restart_everything(run)
        evaluation = evaluate(run)
    # Where a person's restart is the cause, they are reset with it. Else their tasks will: `RestartSet` foresees it.
    while run.resets and (siblings := _restarted_together(evaluation)):
        for names, why in siblings:
            run = restart_together(run, names, why)
        evaluation = evaluate(run)
    together: list[PlannedRestarts] = []
    for mode in modes_of([group.template for group in topology.groups]):
        planned = restarts(mode).plan(run, state, topology, evaluate)
        if planned is not None:
            together.append(planned)
            run, evaluation = planned.run, evaluate(planned.run)
    return plan_of(evaluation, seen=state, request=request, resets=run.resets, published=published, together=together)


def _has_failed(evaluation: Evaluation) -> bool:
    """Is there a failure that the strategy ``full`` would answer: an attempt that failed, or data that is gone?"""
    reasons = [evaluation.why_must_run(region.name) for region in evaluation.topology.regions]
    return any(reason.why is Why.FAILED or reason.why in LOST_DATA for reason in reasons if reason is not None)


def _restarted_together(evaluation: Evaluation) -> list[tuple[list[str], str]]:
    """The subtasks of each vertex that a volatile coordinator restarts as a whole, and why."""
    restarts = VertexRestarts(evaluation.topology, evaluation.state)
    restarted = []
    for vertex, subtasks in evaluation.topology.subtasks.items():
        if restarts.has_started(vertex):
            for region in subtasks:
                cause = _why_restart_vertex(evaluation, restarts, region)
                if cause is not None:
                    restarted.append(([region.name, *restarted_with(evaluation.topology, region)], cause))
                    break
    return restarted


def _why_restart_vertex(evaluation: Evaluation, restarts: VertexRestarts, region: RegionPlan) -> str | None:
    reason = evaluation.why_must_run(region.name) if region.is_volatile else None
    return restarts.why(region, reason) if reason is not None else None


def plan_of(
    evaluation: Evaluation,
    *,
    seen: RunState | None = None,
    request: Request = REBUILD,
    resets: tuple[InputRef, ...] | None = (),
    published: frozenset[InputRef] = frozenset(),
    ask: bool = True,
    together: Sequence[PlannedRestarts] = (),
    failed: Sequence[str] | None = None,
) -> Plan:
    """The plan of a run that is evaluated already: what ``evaluation`` was told of its data is not asked for again.

    ``seen`` is the run as it is, where ``evaluation`` is about a scenario. Without ``ask`` no store is asked
    anything. ``together``: what restarts together, of the modes that were asked. ``failed``: only the regions that run
    or wait because these do are looked at, and are in the plan.
    """
    if not ask:
        evaluation = evaluation.without_asking()
    certain = RestartSet(evaluation, same_rows=True, failed=failed)
    possible = certain
    templates = (group.template for group in evaluation.topology.groups)
    if any(mode is Determinism.VERIFY for template in templates for _, mode in template.determinism):
        possible = RestartSet(evaluation, same_rows=False, failed=failed)
    making = _Making(evaluation, seen or evaluation.state, certain, possible, published)
    names = possible if failed is not None else chain.from_iterable(group.names for group in evaluation.topology.groups)
    regions = tuple(map(making.region, names))
    planned_mode = next((restarted.planned for restarted in together if restarted.planned.text()), PlannedMode())
    for restarted in together:
        regions = tuple(_with_restart(region, restarted) for region in regions)
    return Plan(evaluation.topology.job, regions, request, resets, planned_mode)


def _with_restart(region: PlannedRegion, restarted: PlannedRestarts) -> PlannedRegion:
    reason = restarted.reasons.get(region.name)
    restarting = replace(region, restart=restarted.how.get(region.name, region.restart))
    if reason is None:
        return restarting
    return replace(restarting, why=reason.why, detail=reason.detail, cause=reason.source, evidence=())


def why_kept(evaluation: Evaluation, region: str) -> str:
    """What a region that is kept rests on, in words: said in its task's log, and in plans."""
    current = evaluation.current(region)
    return _why_kept(evaluation, region, current, evaluation.files_checked(region))


def _why_kept(evaluation: Evaluation, region: str, current: Attempt | None, files: int) -> str:
    number = current.number if current is not None else 0
    checked = f"{files} files are as registered" if evaluation.was_asked(region) else "nobody asks for its data"
    kept = f"attempt {number} is valid, {checked}"
    outcome = current.outcome if current is not None else None
    if outcome is not None and outcome.xcoms is not None and outcome.xcoms.why:
        kept += f"; its XComs were not stored ({outcome.xcoms.why}): a clear of its task in Airflow runs it again"
    if current is not None and current.committed is not None and current.committed.end is CommitEnd.SUPERSEDED:
        kept = f"{kept}; its sink has newer rows: {current.committed.probe}"
    if current is not None and current.committed is not None and current.committed.probe.startswith(ADOPTED_FROM):
        kept = f"{kept}; {current.committed.probe}"
    basis = outcome.inputs if outcome is not None else None
    return kept + "".join(f"; {cutoff.text()}" for cutoff in evaluation.early_cutoffs(region, basis)) if basis else kept


class _Making:
    def __init__(
        self,
        evaluation: Evaluation,
        seen: RunState,
        certain: RestartSet,
        possible: RestartSet,
        published: frozenset[InputRef],
    ) -> None:
        self._evaluation = evaluation
        self._seen = seen
        self._certain = certain
        self._possible = possible
        self._published = published
        self._edges = evaluation.edges
        self._read = {node for name in possible for node in evaluation.inputs_of(name)}
        """What those read that run or wait."""
        self._before: dict[str, RegionNames] = {}
        """The regions of a node that run or wait."""
        self._refused: dict[str, str | None] = {}
        """The refused region that a node is, or is behind."""
        self._alike: dict[str, PlannedRegion] = {}
        """What is alike in the entries of the regions of a group that are kept."""
        retention = evaluation.topology.retention
        self._policy = retention.policy if retention is not None else ReleasePolicy.KEEP

    def region(self, name: str) -> PlannedRegion:
        """One entry of the plan."""
        group, index = self._edges.place(name)
        region, inputs = group.template, self._edges.inputs(name)
        seen = self._seen.of(name)
        current = seen.current
        action, refused = self._action(name, region), None
        if action in (Action.KEEP, Action.RELEASE):
            return self._kept(name, group, index, action)
        blocked = ""
        if name in self._possible:
            refused = self._why_refused(name)
            behind = self._behind_refused(name)
            if refused is not None or behind is not None:
                self._refused[name] = behind if refused is None else name
            if refused is not None:
                action = Action.REFUSED
            elif behind is not None:
                action, blocked = Action.BLOCKED, f"; behind {behind}, whose restart budget has ended"
        reason = refused or self._reason(name, action)
        return PlannedRegion(
            name=name,
            vertices=region.vertices,
            inputs=_joined(map(self._names_of, inputs)) if inputs else (),
            action=action,
            attempt=current.number if current is not None else 0,
            latest_attempt=seen.latest_attempt,
            reset_watermark=seen.reset_watermark,
            why=reason.why,
            detail=reason.detail + _would_append(region, seen, action) + blocked,
            cause=self._cause(reason),
            after=_joined(map(self._running_of, inputs)),
            evidence=self._evidence(name, reason),
            subtask=group.subtask(index),
        )

    def _kept(self, name: str, group: RegionGroup, index: int, action: Action) -> PlannedRegion:
        """The entry of a region that is kept, as nearly all of a large run are."""
        evaluation = self._evaluation
        seen, now = self._seen.of(name), evaluation.state.of(name).current
        current, inputs = seen.current, self._edges.inputs(name)
        files = evaluation.files_checked(name)
        evidence: tuple[Evidence, ...] = (_finished(name, now),)
        if evaluation.was_asked(name):
            number = now.number if now is not None else 0
            evidence = (*evidence, Evidence(f"the objects of {name}@{number}", f"all {files} are as registered"))
        if group.name not in self._alike:
            self._alike[group.name] = PlannedRegion(name, group.template.vertices, (), action, 0, 0, 0, None, "")
        return altered(
            self._alike[group.name],
            name=name,
            inputs=_joined(map(self._names_of, inputs)) if inputs else (),
            action=action,
            attempt=current.number if current is not None else 0,
            latest_attempt=seen.latest_attempt,
            reset_watermark=seen.reset_watermark,
            detail=_why_kept(evaluation, name, now, files) + ("; target not asked" if group.template.commit else ""),
            evidence=evidence,
            subtask=group.subtask(index),
        )

    def _action(self, name: str, region: RegionPlan) -> Action:
        if name in self._certain:
            return Action.RUN
        if name in self._possible:
            return Action.WAIT
        now = self._evaluation.state.of(name)
        if now.prepared_attempt is not None:
            return Action.COMMIT
        if region.final or region.persistent or not self._read.isdisjoint((name, region.name)):
            return Action.KEEP
        current = now.current
        if current is None or current.is_released or current.is_lost:
            return Action.KEEP
        # `airflow_recovery.results.release_rule` has the whole rule, with grace times: here is what no clock decides.
        if self._policy is ReleasePolicy.ON_RUN_SUCCESS:
            return Action.RELEASE if InputRef(name, current.number) in self._published else Action.KEEP
        return Action.RELEASE if self._policy is ReleasePolicy.AS_CONSUMED else Action.KEEP

    def _reason(self, name: str, action: Action) -> Reason:
        not_committed = self._evaluation.why_not_committed(name) if action is Action.COMMIT else None
        if not_committed is not None:
            return not_committed
        # What a pre-check would say now comes first; what follows from others' runs is known by looking ahead only.
        now = self._evaluation.invalid_because(name)
        if now is not None and (now.cause is None or now.cause.region in self._possible):
            return now
        later = self._possible.why(name)
        if later.source is None:
            return later
        read = f"read {later.source}@{self._number(later.source)}, which is to be made again"
        if name not in self._certain:
            return Reason(name, Why.INPUT_DIFFERS, f"if it does: {read}", source=later.source)
        return Reason(name, Why.INPUT_REMADE, read, source=later.source)

    def _why_refused(self, region: str) -> Reason | None:
        """Its newest attempt has ended a restart budget, and neither a person's reset nor other code has renewed it."""
        state = self._evaluation.state.of(region)
        newest = state.attempts.get(state.latest_attempt)
        ended = newest.outcome if newest is not None and newest.number > state.closed_at else None
        if newest is None or ended is None or ended.budget_ended is None:
            return None
        if newest.is_reset_by_hand or ended.is_of_other_code(self._evaluation.topology.by_name[region].fingerprint):
            return None
        return Reason(region, Why.FAILED, f"attempt {newest.number} at {ended.ended_at}: {ended.budget_ended}")

    def _behind_refused(self, region: str) -> str | None:
        """The refused region before it. `None` also where it is at work: it has begun."""
        if not self._refused or self._evaluation.state.of(region).open_attempt is not None:
            return None
        return next(filter(None, map(self._refused_of, self._evaluation.inputs_of(region))), None)

    def _refused_of(self, node: str) -> str | None:
        # All its regions come before those that read it.
        if node not in self._refused:
            members = self._edges.members(node)
            self._refused[node] = next(filter(None, map(self._refused.get, members)), None)
        return self._refused[node]

    def _names_of(self, node: str) -> RegionNames:
        members = self._edges.members(node)
        is_wide = members and self._edges.group(node).is_wide
        return (SubtasksOf(node),) if is_wide else tuple(members or (node,))

    def _running_of(self, node: str) -> RegionNames:
        if node not in self._before:
            running = tuple(name for name in self._edges.members(node) or (node,) if name in self._possible)
            names = self._names_of(node)
            # Which subtasks of a group these are, the plan tells of each of them.
            self._before[node] = names if running and names == (SubtasksOf(node),) else running
        return self._before[node]

    def _number(self, region: str) -> int:
        current = self._evaluation.current(region)
        return current.number if current is not None else 0

    def _cause(self, reason: Reason) -> str | None:
        if reason.cause is not None:
            return reason.cause.region
        return reason.source if reason.source in self._possible else None

    def _evidence(self, name: str, reason: Reason) -> tuple[Evidence, ...]:
        """Which record or object was looked at, and what it said."""
        if reason.evidence:
            return reason.evidence
        state = self._evaluation.state.of(name)
        newest = state.attempts.get(state.latest_attempt)
        current = state.current
        if reason.why is Why.RESET:
            return (Evidence(f"reset of {name}@{state.reset_watermark}", reason.detail or "is there"),)
        if reason.why is Why.FAILED and newest is not None:
            return (Evidence(f"outcome of {name}@{newest.number}", f"FENCED: {reason.detail}"),)
        if reason.why is Why.NEVER_FINISHED:
            answer = "is there, without an outcome" if state.open_attempt is not None else "is not there"
            return (Evidence(f"claim of {name}@{max(state.latest_attempt, 1)}", answer),)
        if reason.why is Why.INPUT_INVALID and reason.cause is not None:
            return (Evidence(f"the trace of {reason.cause.region}", "is not valid"),)
        if reason.source is not None:
            source = self._evaluation.current(reason.source)
            return (_finished(reason.source, source),) if source is not None else ()
        if reason.why in LOST_DATA:
            return (Evidence(f"the objects of {name}@{self._number(name)}", f"{reason.why.value}: {reason.detail}"),)
        return (_finished(name, current), Evidence("today's code and inputs", f"{reason.why.value}: {reason.detail}"))


def _joined(parts: Iterable[RegionNames]) -> RegionNames:
    return tuple(chain.from_iterable(parts))


def _would_append(region: RegionPlan, seen: RegionState, action: Action) -> str:
    """What stops a region before it runs: its sink has taken an attempt over, and appends."""
    if action is not Action.RUN or region.commit is None or region.commit.mode is not CommitMode.APPEND:
        return ""
    taken = [n for n, attempt in seen.attempts.items() if attempt.committed is not None and not attempt.is_abandoned]
    if not taken:
        return ""
    return f"; stops, since its sink appends and holds attempt {taken[-1]}, unless its rows were removed (not asked)"


def _finished(region: str, attempt: Attempt | None) -> Evidence:
    number = attempt.number if attempt is not None else 0
    fingerprint = attempt.outcome.fingerprint if attempt is not None and attempt.outcome is not None else None
    return Evidence(f"outcome of {region}@{number}", f"FINISHED, fingerprint {(fingerprint or 'not known')[:12]}")
