"""What is given up where a person lets the data of a region go: said before it is done."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.attempt.manual_release import ReleaseByHand, look_at_release
from airflow_recovery.errors import NothingRecorded
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
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


def preview_release(view: RunView, evaluation: Evaluation, region: str) -> ReleasePreview:
    """Of the attempt that counts. Raises `UnknownRegion`, `NothingRecorded` where nothing of it counts or it is
    released already, and `Refused` where it is pinned, somebody reads it, or its sink has not taken it over yet.
    """
    hand = attempt_to_release(view, region)
    current = hand.attempt
    readers = list(view.in_use.plan.readers.get(region, ()))
    scenario = plan_run(view, evaluation, WhatIf(lost=(region,), restart=tuple(readers)).request("you"))
    outcome = current.outcome
    outputs = outcome.outputs if outcome is not None else ()
    return ReleasePreview(
        region=region,
        attempt=current.number,
        files=sum(len(output.objects) for output in outputs),
        bytes=sum(output.size for output in outputs),
        again=scenario.running if readers else (region,),
        warnings=tuple(_warnings(view, evaluation, view.region(region), readers)),
        still_needed=hand.still_needed,
    )


def attempt_to_release(view: RunView, region: str) -> ReleaseByHand:
    """The attempt that counts, and whether it is still needed. Raises as `preview_release`."""
    release = look_at_release(view.journal, view.in_use.plan, view.in_use.state, view.region(region).name, None)
    if release.attempt.is_released:
        raise NothingRecorded(f"{release.name} is released already.")
    return release


def _warnings(view: RunView, evaluation: Evaluation, region: RegionPlan, readers: list[str]) -> list[str]:
    name, warnings = region.name, []
    if region.final:
        warnings.append(f"{name} is a final result: whoever reads it outside this job loses it.")
    if any(ref.region == name for ref in view.published):
        warnings.append(f"The newest publish names {name}: its readers find nothing.")
    unfinished = [reader for reader in readers if evaluation.invalid_because(reader) is not None]
    if unfinished:
        warnings.append(f"{', '.join(unfinished)} still has to read {name}: it will be made again for that.")
    gone = [producer for producer in region.inputs if _is_gone(evaluation, name, producer)]
    if gone:
        warnings.append(
            f"To make it again, {', '.join(gone)} must be made again as well: that data is not there either."
        )
    return warnings


def _is_gone(evaluation: Evaluation, region: str, producer: str) -> bool:
    return evaluation.why_not_available(producer, evaluation.results_read(region, producer)) is not None
