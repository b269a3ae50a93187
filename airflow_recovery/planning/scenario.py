"""What a plan is asked for. A request is a supposition: it changes the state, the code or what is there, on paper.

The plan then is what `airflow_recovery.planning.evaluation` says of the supposed run, so that a question is answered by
the very function that every pre-check uses. A supposition lives for one plan; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.codec import Tagged
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome, PlanRecord, Reset
from airflow_recovery.planning.evaluation import Available
from airflow_recovery.planning.mode import planning_of
from airflow_recovery.planning.reason import Evidence, Reason, Why
from airflow_recovery.planning.selection import downstream, flowing_result, regions_named, results_named

SUPPOSED = "supposed"
"""Stands in for the writer and the time of records that are not written."""


@dataclass(frozen=True)
class Scenario:
    """A run as it would be. ``resets``: what has to be reset to make it so; `None` where a reset can't make it so.

    ``lost_results``: those that are read while they are made, and are gone.
    """

    topology: PlanRecord
    state: RunState
    available: Available
    resets: tuple[InputRef, ...] | None = ()
    lost_results: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Request:
    """Base of all requests. ``kind`` names it in JSON, ``words`` tells it to people, with its fields in braces."""

    kind: ClassVar[str]
    words: ClassVar[str]

    def apply(self, run: Scenario) -> Scenario:
        """``run`` as this request supposes it. Raises `UnknownRegion` for a name that the topology does not hold."""
        raise NotImplementedError

    def text(self) -> str:
        """A few words."""
        return self.words.format_map(vars(self))


REQUEST = Tagged("kind", lambda kind: _KINDS[kind])
"""The JSON of a request: ``{"kind": "restart from", "vertex": ...}``."""


@dataclass(frozen=True)
class Rebuild(Request):
    """The run as the journal has it: what a clear of everything, or the loss of Airflow's database, would run."""

    kind = "rebuild"
    words = "the run as it is"

    def apply(self, run: Scenario) -> Scenario:
        """No change."""
        return run


@dataclass(frozen=True)
class RegionFailure(Request):
    """The newest attempt of a region fails because of ``cause``, or the next one, where none is open."""

    region: str
    cause: str = "a failure"
    kind = "failure"
    words = "{region} fails: {cause}"

    def apply(self, run: Scenario) -> Scenario:
        """That attempt is fenced. As in Flink, a failure of what had finished takes its finish away."""
        regions = dict(run.state.regions)
        plans = run.topology.by_name
        for name in regions_named(run.topology, self.region):
            before = run.state.of(name)
            attempts = dict(before.attempts)
            n = before.latest_attempt if before.latest_attempt > before.reset_watermark else before.latest_attempt + 1
            fenced = Outcome(
                name, n, AttemptState.FENCED, SUPPOSED, SUPPOSED, cause=FenceCause.OWN_FAILURE, detail=self.cause
            )
            attempts[n] = replace(
                attempts.get(n, Attempt(n)), is_claimed=True, has_outcome=True, is_reset=False, outcome=fenced
            )
            # Nothing that had finished before comes back.
            regions[name] = replace(before, attempts=planning_of(plans[name]).after_failure(attempts, n))
        return replace(run, state=replace(run.state, regions=regions), resets=None)


@dataclass(frozen=True)
class PartitionGone(Request):
    """A result, or the results of a region, is gone from the store: what if?"""

    result: str
    kind = "partition gone"
    words = "{result} is gone"

    def apply(self, run: Scenario) -> Scenario:
        """Whoever asks for its data hears that it is missing, without the store being asked."""
        region, results = results_named(run.topology, self.result)
        flowing = flowing_result(run.topology, self.result)
        if flowing is not None:
            return replace(run, lost_results=run.lost_results | {flowing}, resets=None)
        current = run.state.of(region).current
        number = current.number if current is not None else 0
        gone = Reason(
            region,
            Why.OUTPUT_MISSING,
            f"attempt {number}: {self.result} is {SUPPOSED} to be gone",
            evidence=(Evidence(f"the result {self.result}", f"{SUPPOSED} to be gone"),),
        )

        def available(name: str, attempt: Attempt, result: str) -> Reason | None:
            is_gone = name == region and attempt.number <= number and (result in results or not results)
            return gone if is_gone else run.available(name, attempt, result)

        return replace(run, available=available, resets=None)


@dataclass(frozen=True)
class CodeChanged(Request):
    """The code or the parameters of a vertex are not what they were."""

    vertex: str
    kind = "code changed"
    words = "the code of {vertex} has changed"

    def apply(self, run: Scenario) -> Scenario:
        """No recorded fingerprint is today's."""
        changed = regions_named(run.topology, self.vertex)
        regions = tuple(
            replace(region, fingerprint=f"{SUPPOSED} change of {region.fingerprint}")
            if region.name in changed
            else region
            for region in run.topology.regions
        )
        return replace(run, topology=replace(run.topology, regions=regions), resets=None)


class Restart(Request):
    """Base of what a person asks for: the newest attempts of some regions do not count (docs/protocol.md#restart)."""

    who: str  # no field of this class, so that it stays the last one, with a default, in each subclass

    def restarted(self, topology: PlanRecord) -> list[str]:
        """The regions. Raises `UnknownRegion` for a name that the topology does not hold."""
        raise NotImplementedError

    def apply(self, run: Scenario) -> Scenario:
        """A reset of the newest attempt of each of them."""
        return _reset(run, self.restarted(run.topology), self.who, self.text())


@dataclass(frozen=True)
class RestartRegion(Restart):
    """Restart this region. A streaming region starts over, and all that channels connect with it.

    What it had read was released. To have it go on at its checkpoint, clear its task in Airflow: that is no reset.
    """

    region: str
    who: str = "you"
    kind = "restart region"
    words = "restart {region}"

    def restarted(self, topology: PlanRecord) -> list[str]:
        """It alone; a name of several subtasks is all of them."""
        return regions_named(topology, self.region)


@dataclass(frozen=True)
class RestartFrom(Restart):
    """Restart from this vertex on: its region and everything downstream, whatever their determinism says."""

    vertex: str
    who: str = "you"
    kind = "restart from"
    words = "restart from {vertex} on"

    def restarted(self, topology: PlanRecord) -> list[str]:
        """Its region, and whatever reads it over any number of steps."""
        return downstream(topology, regions_named(topology, self.vertex))


@dataclass(frozen=True)
class RecomputeAll(Restart):
    """Everything runs again."""

    who: str = "you"
    kind = "recompute all"
    words = "recompute all"

    def restarted(self, topology: PlanRecord) -> list[str]:
        """All of them."""
        return list(topology.position)


@dataclass(frozen=True)
class Together(Request):
    """Several requests at once."""

    requests: tuple[Annotated[Request, REQUEST], ...]
    kind = "together"

    def apply(self, run: Scenario) -> Scenario:
        """One after the other."""
        for request in self.requests:
            run = request.apply(run)
        return run

    def text(self) -> str:
        """A few words."""
        return "; ".join(request.text() for request in self.requests)


REBUILD = Rebuild()
_KINDS: dict[str, type[Request]] = {
    request.kind: request
    for request in (
        Rebuild,
        RegionFailure,
        PartitionGone,
        CodeChanged,
        RestartRegion,
        RestartFrom,
        RecomputeAll,
        Together,
    )
}


def together(requests: Iterable[Request]) -> Request:
    """One request for all of ``requests``; none of them is `Rebuild`."""
    parts = tuple(requests)
    return REBUILD if not parts else parts[0] if len(parts) == 1 else Together(parts)


def restart_everything(run: Scenario) -> Scenario:
    """``run`` once the failover strategy ``full`` has answered a failure: nothing that has started counts."""
    return restart_together(run, run.topology.position, "the failover strategy is full")


def restart_together(run: Scenario, names: Iterable[str], why: str) -> Scenario:
    """``run`` once a failover has reset what has started of ``names``.

    Where a person's restart is its cause, these are reset with it; else the plan only foresees what tasks will do.
    """
    scenario = _reset(run, names, SUPPOSED, why, failover=True)
    return replace(scenario, resets=scenario.resets if run.resets else None)


def _reset(run: Scenario, names: Iterable[str], who: str, why: str, *, failover: bool = False) -> Scenario:
    regions, resets = dict(run.state.regions), list(run.resets or ())
    for name in names:
        before = run.state.of(name)
        # What never ran has nothing to reset; what is reset already stays so.
        if before.latest_attempt > before.reset_watermark:
            latest_attempt = before.attempts.get(before.latest_attempt, Attempt(before.latest_attempt))
            marked = replace(
                latest_attempt, is_reset=True, reset=Reset(name, before.latest_attempt, who, why, failover=failover)
            )
            regions[name] = replace(before, attempts={**before.attempts, before.latest_attempt: marked})
            resets.append(InputRef(name, before.latest_attempt))
    state = replace(run.state, regions=regions)
    return replace(run, state=state, resets=None if run.resets is None else tuple(resets))
