"""What is different between two plans of one run."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.planning.plan import Plan, PlannedRegion


@dataclass(frozen=True)
class Difference:
    """One region that the two plans see in another way; `None` where a plan does not have it."""

    region: str
    before: PlannedRegion | None
    after: PlannedRegion | None

    def text(self) -> str:
        """One line."""
        if self.before is None:
            return f"{self.region}: new, {_region_text(self.after)}"
        if self.after is None:
            return f"{self.region}: not there any more, was {_region_text(self.before)}"
        return f"{self.region}: {_region_text(self.before)} -> {_region_text(self.after)}"


def diff(before: Plan, after: Plan) -> tuple[Difference, ...]:
    """The regions whose action, reason or attempt has changed, in the order of ``after``; then those that are gone."""
    earlier = {region.name: region for region in before.regions}
    differences = [
        Difference(region.name, earlier.get(region.name), region)
        for region in after.regions
        if region.name not in earlier or _seen(earlier[region.name]) != _seen(region)
    ]
    now = {region.name for region in after.regions}
    return (
        *differences,
        *(Difference(region.name, region, None) for region in before.regions if region.name not in now),
    )


def _seen(region: PlannedRegion) -> tuple[object, ...]:
    # Words are left out: how many files were asked for says nothing about what happens.
    return (
        region.action,
        region.why,
        region.cause,
        region.attempt,
        region.latest_attempt,
        region.reset_watermark,
        region.restart,
    )


def _region_text(region: PlannedRegion | None) -> str:
    if region is None:
        return "nothing"
    reason = f" ({region.told})" if region.why is not None else ""
    return f"{region.action.value} @{region.attempt}{reason}"
