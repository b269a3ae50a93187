"""Which tasks of a re-created run need not run, as the journal tells it: they are set to success without a try.

The evaluation is that of the pre-check. What only a region's own task can look at is left to that task, whose pre-check
keeps what is valid in the time that a task takes to start: external files, the rows in a sink's target, the code of an
operator outside a group, and the map indexes that Airflow takes from a task's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_recovery.attempt.clear_protocol import MAX_NOTE
from airflow_recovery.errors import OutputAltered
from airflow_recovery.model.codec import needed
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import AskedResult, Evaluation
from airflow_recovery.planning.plan_making import why_kept


@dataclass(frozen=True)
class RebuildRequest:
    """What is asked of Airflow: set these tasks of the run of ``run_key`` to success, unless they have run.

    ``notes``: what the task instance's note shall say, by `airflow_recovery.attempt.task_instances.TaskTry.key`.
    """

    run_key: str
    notes: Mapping[str, str]
    dry_run: bool = needed(False)


@dataclass(frozen=True)
class Rebuilt:
    """What became of it: which tasks of which run were set (or would be), and why the others were left."""

    run_id: str
    done: tuple[str, ...] = needed(())
    left: Mapping[str, str] = needed(factory=dict)


@dataclass(frozen=True)
class Finished:
    """What the journal says of a run's tasks: the notes of those that need not run, and why each other one is left."""

    notes: Mapping[str, str]
    left: Mapping[str, str]


def asked_for(evaluation: Evaluation) -> list[AskedResult]:
    """The results that the evaluation of a run will ask for, as far as that is clear beforehand: to ask ahead."""
    wanted: dict[tuple[str, str], None] = {}
    edges, invalid = evaluation.edges, evaluation.invalid()
    for group in evaluation.topology.groups:
        final = evaluation.final_results(group.name)
        wanted |= dict.fromkeys((name, result) for name in (group.names if final else ()) for result in final)
    read: set[tuple[str, str]] = set()
    for region in invalid:
        for node in edges.inputs(region):
            # All regions of a group read the same results of another one's.
            edge = edges.group(region).name, node
            if edge not in read:
                read.add(edge)
                results = evaluation.results_read(region, node)
                names = edges.members(node) or (node,)
                wanted |= dict.fromkeys((name, result) for name in names for result in results)
    asked = []
    for name, result in wanted:
        current = None if name in invalid else evaluation.current(name)
        if current is not None and not current.is_released:
            asked.append(AskedResult(name, current, result))
    return asked


def finished_tasks(evaluation: Evaluation, key_of: Callable[[RegionPlan], str], where: str) -> Finished:
    """Every task of the evaluated plan. A task that runs several regions need not run if none of them must.

    ``key_of`` gives the key of a region's task, ``where`` the journal's URI for the notes. Raises what the evaluation
    raises: a store that gives no answer is no reason to leave a task, nor to set it.
    """
    notes: dict[str, list[str]] = {}
    left: dict[str, str] = {}
    for region in evaluation.topology.regions:
        key = key_of(region)
        why = _why_left(evaluation, region)
        if why is None:
            notes.setdefault(key, []).append(_note(evaluation, region.name))
        else:
            left.setdefault(key, why)
    texts = {key: "; ".join(lines) for key, lines in notes.items() if key not in left}
    return Finished({key: _cut(f"Rebuilt from {where}: {text}") for key, text in texts.items()}, left)


def _why_left(evaluation: Evaluation, region: RegionPlan) -> str | None:
    state = evaluation.state.of(region.name)
    if state.open_attempt is not None:
        return f"attempt {state.latest_attempt} is open: its next try ends it"
    try:
        reason = evaluation.why_must_run(region.name)
    except OutputAltered as error:
        return str(error)
    if reason is not None:
        return f"must run: {reason.text()}"
    prepared = evaluation.why_not_committed(region.name)
    if prepared is not None:
        return f"{prepared.text()}: its next try commits it"
    outcome = state.current.outcome if state.current is not None else None
    if outcome is None:
        raise AssertionError(f"{region.name} need not run, and has no finish")
    if region.commit is not None:
        return "only its own task asks its sink whether the rows are still there"
    if not region.vertices:
        return "it tells Airflow the map indexes of other tasks"
    if region.fingerprint is None:
        return "only its own task knows its code and arguments"
    if outcome.externals:
        return f"only its own task lists the {len(outcome.externals)} external files that it read"
    return None


def _note(evaluation: Evaluation, region: str) -> str:
    current = evaluation.state.of(region).current
    ended = f", ended {current.outcome.ended_at}" if current is not None and current.outcome is not None else ""
    return f"{region}: {why_kept(evaluation, region)}{ended}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_NOTE else f"{text[: MAX_NOTE - 3]}..."
