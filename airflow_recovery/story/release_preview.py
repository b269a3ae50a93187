"""What is given up where a person lets the data of a region go: said before it is done."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.attempt.manual_release import ReleaseByHand, look_at_release
from airflow_recovery.errors import NothingRecorded, UnknownRegion
from airflow_recovery.planning.evaluation import Available, Evaluation
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.story.run_view import RunView
from airflow_recovery.story.what_if import WhatIf, plan_run


@dataclass(frozen=True)
class ReleasePreview:
    """``again``: the regions that run as soon as one that reads this one has to. ``warnings``: what can't be undone.

    ``still_needed``: why the release rule would keep it, or empty; then it takes force.
    """

    region: str
    attempt: int
    files: int
    bytes: int
    again: tuple[str, ...]
    warnings: tuple[str, ...]
    still_needed: str = ""


def preview_release(view: RunView, available: Available, region: str) -> ReleasePreview:
    """Of the attempt that counts. Raises `UnknownRegion`, `NothingRecorded` where nothing of it counts or it is
    released already, and `Refused` where it is pinned, somebody reads it, or its sink has not taken it over yet.
    """
    hand = attempt_to_release(view, region)
    current = hand.attempt
    topology = view.in_use.plan
    readers = [reader.name for reader in topology.regions if region in reader.inputs]
    scenario = plan_run(view, available, WhatIf(lost=(region,), restart=tuple(readers)).request("you"))
    outcome = current.outcome
    outputs = outcome.outputs if outcome is not None else ()
    (planned,) = (planned_region for planned_region in topology.regions if planned_region.name == region)
    return ReleasePreview(
        region=region,
        attempt=current.number,
        files=sum(len(output.objects) for output in outputs),
        bytes=sum(output.size for output in outputs),
        again=scenario.running if readers else (region,),
        warnings=tuple(_warnings(view, available, planned.name, final=planned.final, readers=readers)),
        still_needed=hand.still_needed,
    )


def attempt_to_release(view: RunView, region: str) -> ReleaseByHand:
    """The attempt that counts, and whether it is still needed. Raises as `preview_release`."""
    topology, state = view.in_use.plan, view.in_use.state
    known = [region.name for region in topology.regions]
    if region not in known:
        raise UnknownRegion(f"{region!r} is not in this plan{did_you_mean(region, known)}.")
    release = look_at_release(view.journal, topology, state, region, None)
    if release.attempt.is_released:
        raise NothingRecorded(f"{release.name} is released already.")
    return release


def _warnings(view: RunView, available: Available, region: str, *, final: bool, readers: list[str]) -> list[str]:
    told = []
    if final:
        told.append(f"{region} is a final result: whoever reads it outside this job loses it.")
    if any(ref.region == region for ref in view.published):
        told.append(f"The newest publish names {region}: its readers find nothing.")
    evaluation = Evaluation(view.in_use.plan, view.in_use.state, available=available)
    unfinished = [reader for reader in readers if evaluation.invalid_because(reader) is not None]
    if unfinished:
        told.append(f"{', '.join(unfinished)} still has to read {region}: it will be made again for that.")
    gone = [producer for producer in _producers(view, region) if _is_gone(evaluation, available, producer)]
    if gone:
        told.append(f"To make it again, {', '.join(gone)} must be made again as well: that data is not there either.")
    return told


def _is_gone(evaluation: Evaluation, available: Available, region: str) -> bool:
    current = evaluation.current(region)
    return current is None or current.is_released or available(region, current) is not None


def _producers(view: RunView, region: str) -> tuple[str, ...]:
    return next(planned.inputs for planned in view.in_use.plan.regions if planned.name == region)
