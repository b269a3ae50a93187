"""The streaming regions of a recorded plan: who is connected with whom by channels, and in which generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.streaming.mode import ChannelRef, StreamingPlan


class ChannelGraph:
    """The regions of ``plan`` that are at channels. All answers are names of regions, in topological order."""

    def __init__(self, plan: PlanRecord) -> None:
        self.plan = plan
        self.regions: Mapping[str, RegionPlan] = {
            region.name: region for region in plan.regions if isinstance(region.mode, StreamingPlan)
        }
        self._readers: dict[str, list[str]] = {name: [] for name in self.regions}
        for region in self.regions.values():
            for channel in StreamingPlan.of(region).channels_in:
                self._readers[channel.producer].append(region.name)

    def producers(self, region: str) -> tuple[str, ...]:
        """Who feeds the channels that ``region`` reads."""
        return self._ordered({plan.producer for plan in StreamingPlan.of(self.regions[region]).channels_in})

    def readers(self, region: str) -> tuple[str, ...]:
        """Who reads the channels that ``region`` feeds."""
        return self._ordered(self._readers[region])

    def before(self, region: str) -> tuple[str, ...]:
        """All regions whose records come to ``region`` through channels."""
        return self._ordered(self._reached(region, self.producers))

    def behind(self, region: str) -> tuple[str, ...]:
        """All regions that the records of ``region`` come to through channels."""
        return self._ordered(self._reached(region, self.readers))

    def connected(self, region: str) -> tuple[str, ...]:
        """``region``, and all that channels connect with it, in whatever direction: they run at the same time."""
        return self._ordered({region} | self._reached(region, lambda name: self.producers(name) + self.readers(name)))

    def _reached(self, region: str, step: Callable[[str], Iterable[str]]) -> set[str]:
        reached: set[str] = set()
        todo = [region]
        while todo:
            new = set(step(todo.pop())) - reached - {region}
            reached |= new
            todo += new
        return reached

    def _ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        wanted = set(names)
        return tuple(region for region in self.regions if region in wanted)


def live_attempts(state: RunState, region: str) -> list[int]:
    """The attempts that were claimed and whose reading counts, ascending: a streaming region goes on from these."""
    region_state = state.of(region)
    return sorted(
        n for n, attempt in region_state.attempts.items() if attempt.is_claimed and n > region_state.restarted_up_to
    )


def other_channels(planned: RegionPlan, state: RunState, pins: Iterable[ChannelRef]) -> tuple[str, str] | None:
    """Why ``pins``, which an attempt of ``planned`` works with, are not the channels of now, and who made them others.

    A new generation is a reset of the region that feeds the channel: one record decides it for both ends.
    """
    for pin in pins:
        now = generations_of(planned, state, pin.result)[-1]
        if pin.generation != now:
            return f"{pin.result} was in generation {pin.generation}, now {now}", feeder(planned, pin.result)
    return None


def is_only_altered(planned: RegionPlan, state: RunState, pins: Iterable[ChannelRef]) -> bool:
    """Of ``pins``, which are not the channels of now, all count still: what was read and made with them is a part of
    the result, and an attempt goes on in the newest generation."""
    generations = [(pin.generation, generations_of(planned, state, pin.result)) for pin in pins]
    return all(mine in counting for mine, counting in generations) and any(
        mine != counting[-1] for mine, counting in generations
    )


def generations_of(planned: RegionPlan, state: RunState, result: str) -> tuple[int, ...]:
    """The generations that count of a channel at one end of ``planned``."""
    return state.of(feeder(planned, result)).generations


def feeder(planned: RegionPlan, result: str) -> str:
    """Who makes the channel ``result``, at one end of which ``planned`` is."""
    return next(
        (plan.producer for plan in StreamingPlan.of(planned).channels_in if plan.result == result), planned.name
    )
