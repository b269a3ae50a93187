"""`stands`, `available`, `wanted`, `must_run` (PROTOCOL section 4): the one function behind every decision.

    stands(R)    = it has a current finish, its fingerprint is today's, its external inputs are as it read them, and
                   every input stands and is still at the attempt that R read
    wanted(R)    = R is a final result, or some consumer must run, or has reported that it misses R's present attempt
    must_run(R)  = not stands(R), or (wanted(R) and not available(R))

`stands` is about identity, `available` about data: a region whose results are gone is kept while nobody wants them.
Availability is asked for only where it can matter, and once per attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_recovery.errors import UnknownRegion
from airflow_recovery.failover.reason import Reason, Why
from airflow_recovery.journal.records import ExternalObject, InputPin, PlanRecord, RegionPlan
from airflow_recovery.journal.run_state import Attempt, RunState

Available = Callable[[str, Attempt], "Reason | None"]
"""Answers for one region's attempt: `None` where every registered object is there as registered, else why not."""


class Judgement:
    """One state of one run, judged. Every answer is computed once; nothing is cached between two judgements.

    ``externals`` holds today's external inputs of the regions that may be judged by them: a region's own process
    lists its own. For any other region the recorded ones are taken as they are; its own task judges them.
    """

    def __init__(
        self,
        plan: PlanRecord,
        state: RunState,
        *,
        available: Available,
        externals: Mapping[str, tuple[ExternalObject, ...]] | None = None,
    ) -> None:
        self._regions: dict[str, RegionPlan] = {each.name: each for each in plan.regions}
        self._order = [each.name for each in plan.regions]
        self._position = {name: at for at, name in enumerate(self._order)}
        self._consumers: dict[str, list[str]] = {name: [] for name in self._order}
        for each in plan.regions:
            for producer in each.inputs:
                self._consumers[producer].append(each.name)
        self._state = state
        self._probe = available
        self._externals = externals or {}
        self._standing: dict[str, Reason | None] = {}
        self._unavailable: dict[str, Reason | None] = {}
        self._must: dict[str, Reason | None] = {}
        for name in self._order:
            self._standing[name] = self._judge_standing(name)

    def current(self, region: str) -> Attempt | None:
        """The attempt that counts, or `None`."""
        self._check(region)
        return self._state.of(region).current

    def why_not_standing(self, region: str) -> Reason | None:
        """`None` where the region's trace stands."""
        self._check(region)
        return self._standing[region]

    def why_not_available(self, region: str) -> Reason | None:
        """`None` where every object of the current attempt is there. Only for regions with a current attempt."""
        attempt = self.current(region)
        if attempt is None:
            return self._standing[region]
        if region not in self._unavailable:
            self._unavailable[region] = (
                Reason(region, Why.OUTPUT_RELEASED, f"attempt {attempt.number}")
                if attempt.is_released
                else self._probe(region, attempt)
            )
        return self._unavailable[region]

    def files_checked(self, region: str) -> int:
        """How many registered objects were found as registered; 0 where the data was not asked for."""
        if region not in self._unavailable or self._unavailable[region] is not None:
            return 0
        attempt = self.current(region)
        outcome = attempt.outcome if attempt is not None else None
        return sum(len(each.objects) for each in outcome.outputs) if outcome is not None else 0

    def why_must_run(self, region: str) -> Reason | None:
        """`None` where the region is kept."""
        self._check(region)
        # Consumers first, over this region's descendants only: the data of no other region is asked for.
        for name in reversed(self._undecided_from(region)):
            self._must[name] = self._judge_must_run(name)
        return self._must[region]

    def lost_inputs(self, region: str) -> dict[str, Reason]:
        """The ancestors that must run so that ``region`` can, in topological order, each with its reason.

        The walk goes up from a producer only while that producer itself is not there or does not stand, and asks for
        the data of every input of every region on the way (FLIP-1: one decision sees every loss).
        """
        self._check(region)
        found: dict[str, Reason] = {}
        queue = [region]
        while queue:
            for producer in self._regions[queue.pop()].inputs:
                if producer in found:
                    continue
                reason = self._standing[producer] or self.why_not_available(producer)
                if reason is not None:
                    found[producer] = reason
                    queue.append(producer)
        return {name: found[name] for name in sorted(found, key=self._position.__getitem__)}

    def basis(self, region: str, ti_id: str | None) -> tuple[InputPin, ...] | None:
        """What the task instance ``ti_id`` of ``region`` relies on: its own open claim, else the current finish.

        A zombie's open claim is nobody's basis. ``ti_id`` is `None` where Airflow could not be asked: an open claim is
        then taken for the task's.
        """
        self._check(region)
        opened = self._state.of(region).open_attempt
        if opened is not None and opened.claim is not None and ti_id in (None, opened.claim.ti_id):
            return opened.claim.inputs
        current = self.current(region)
        return current.outcome.inputs if current is not None and current.outcome is not None else None

    def why_overtaken(self, region: str, basis: tuple[InputPin, ...] | None) -> Reason | None:
        """Has anything that ``basis`` names been superseded by a finish? Or was the finish itself reset?"""
        self._check(region)
        if basis is None:
            return Reason(region, Why.RESET) if self._state.of(region).was_reset else None
        for pin in basis:
            now = self.current(pin.region) if pin.region in self._regions else None
            if now is not None and now.number != pin.attempt:
                return Reason(region, Why.INPUT_REMADE, f"read {pin.region}@{pin.attempt}, now @{now.number}")
        return None

    def _judge_standing(self, name: str) -> Reason | None:
        attempt = self._state.of(name).current
        if attempt is None or attempt.outcome is None:
            return self._why_no_finish(name)
        outcome = attempt.outcome
        today = self._regions[name].fingerprint
        if today is not None and outcome.fingerprint != today:
            return Reason(name, Why.CODE_CHANGED, f"since attempt {attempt.number}")
        changed = self._changed_external(name, outcome.externals)
        if changed is not None:
            return Reason(name, Why.EXTERNAL_CHANGED, changed)
        read = {pin.region: pin.attempt for pin in outcome.inputs}
        if set(read) != set(self._regions[name].inputs):
            return Reason(name, Why.INPUTS_CHANGED, f"read {sorted(read)}, reads {sorted(self._regions[name].inputs)}")
        for producer, number in read.items():
            below = self._standing[producer]
            if below is not None:
                return Reason(name, Why.INPUT_DOES_NOT_STAND, producer, below)
            now = self._state.of(producer).current
            if now is not None and now.number != number:
                return Reason(name, Why.INPUT_REMADE, f"read {producer}@{number}, now @{now.number}")
        return None

    def _why_no_finish(self, name: str) -> Reason:
        state = self._state.of(name)
        if state.was_reset:
            marked = state.attempts[state.mark].reset
            return Reason(name, Why.RESET, f"{marked.who}: {marked.why}" if marked is not None else "")
        return Reason(name, Why.NEVER_FINISHED)

    def _changed_external(self, name: str, recorded: tuple[ExternalObject, ...]) -> str | None:
        if name not in self._externals:
            return None
        before = {(each.vertex, each.uri): each for each in recorded}
        now = {(each.vertex, each.uri): each for each in self._externals[name]}
        for key in sorted(before.keys() | now.keys()):
            if before.get(key) != now.get(key):
                what = "is new" if key not in before else "is gone" if key not in now else "has other content"
                return f"{key[1]} {what}"
        return None

    def _judge_must_run(self, name: str) -> Reason | None:
        if self._standing[name] is not None:
            return self._standing[name]
        return self.why_not_available(name) if self._is_wanted(name) else None

    def _is_wanted(self, name: str) -> bool:
        if self._regions[name].final or any(self._must[each] is not None for each in self._consumers[name]):
            return True
        # Why a consumer must run may be known to its own process alone (its external inputs): its report says so. A
        # report makes the owner look, and no more: where everything is there, the region is kept.
        current = self._state.of(name).current
        return current is not None and current.is_lost

    def _undecided_from(self, region: str) -> list[str]:
        """``region`` and everything downstream of it that was not judged yet, in topological order."""
        found: set[str] = set()
        queue = [region]
        while queue:
            name = queue.pop()
            if name not in found and name not in self._must:
                found.add(name)
                queue += self._consumers[name]
        return sorted(found, key=self._position.__getitem__)

    def _check(self, region: str) -> None:
        if region not in self._regions:
            raise UnknownRegion(f"{region!r} is not a region of this plan, which has {', '.join(self._order)}.")
