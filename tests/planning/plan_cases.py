"""A run built by saying what happened, with determinism modes and digests; and a run that is played to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome, PlanRecord, Reset
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan import Plan
from airflow_recovery.planning.plan_making import plan
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.planning.scenario import REBUILD, Request

ALWAYS = Determinism.ALWAYS
CHAIN = {"P": (), "C": ("P",), "E": ("C",)}
DIAMOND = {"P": (), "C": ("P",), "D": ("P",), "E": ("C", "D")}
FORK = {"P": (), "C": ("P",), "D": ("P",)}


class RunCase:
    """Regions of one result each. ``modes`` are those of their results, ``rows`` is what a digest stands for."""

    def __init__(self, upstream: Mapping[str, tuple[str, ...]], modes: Mapping[str, Determinism] | None = None) -> None:
        read = {producer for inputs in upstream.values() for producer in inputs}
        self.upstream = dict(upstream)
        modes = modes or {}
        self.topology = PlanRecord(
            "job",
            tuple(
                RegionPlan(
                    name=name,
                    vertices=(f"{name}-source", name),
                    results=(name,),
                    inputs=inputs,
                    final=name not in read,
                    fingerprint="code 1",
                    reads=inputs,
                    determinism=((name, modes[name]),) if modes.get(name, ALWAYS) is not ALWAYS else (),
                )
                for name, inputs in upstream.items()
            ),
        )
        self.attempts: dict[str, dict[int, Attempt]] = {name: {} for name in upstream}
        self.gone: set[tuple[str, int]] = set()
        self.asked: list[tuple[str, int]] = []

    def finish(self, region: str, rows: str = "rows", **fields: object) -> RunCase:
        """One more attempt, which reads the current ones."""
        n = self.state().of(region).latest_attempt + 1
        pins = tuple(self._pin(each) for each in self.upstream[region])
        plan_ = next(candidate for candidate in self.topology.regions if candidate.name == region)
        outcome = Outcome(
            region,
            n,
            AttemptState.FINISHED,
            "w",
            "now",
            **{  # type: ignore[arg-type]
                "fingerprint": plan_.fingerprint,
                "inputs": pins,
                "outputs": (self._manifest(region, n, rows),),
                **fields,
            },
        )
        self.attempts[region][n] = Attempt(n, is_claimed=True, has_outcome=True, outcome=outcome)
        return self

    def finish_all(self) -> RunCase:
        for region in self.upstream:
            self.finish(region)
        return self

    def fail(self, region: str, detail: str = "ValueError: boom") -> RunCase:
        n = self.state().of(region).latest_attempt + 1
        outcome = Outcome(region, n, AttemptState.FENCED, "w", "now", cause=FenceCause.OWN_FAILURE, detail=detail)
        self.attempts[region][n] = Attempt(n, is_claimed=True, has_outcome=True, outcome=outcome)
        return self

    def mark(self, region: str, n: int = 1, **marks: object) -> RunCase:
        self.attempts[region][n] = replace(self.attempts[region].get(n, Attempt(n)), **marks)  # type: ignore[arg-type]
        return self

    def reset(self, region: str) -> RunCase:
        n = self.state().of(region).latest_attempt
        return self.mark(region, n, is_reset=True, reset=Reset(region, n, "ann", "asked for")) if n else self

    def lose(self, region: str, n: int | None = None) -> RunCase:
        self.gone.add((region, n or self.state().of(region).latest_attempt))
        return self

    def state(self) -> RunState:
        return RunState({name: RegionState(dict(found)) for name, found in self.attempts.items()})

    def available(self, region: str, attempt: Attempt, result: str) -> Reason | None:
        self.asked.append((region, attempt.number))
        return Reason(region, Why.OUTPUT_MISSING, "gone") if (region, attempt.number) in self.gone else None

    def plan(self, request: Request = REBUILD, **settings: object) -> Plan:
        return plan(self.topology, self.state(), self.available, request, **settings)  # type: ignore[arg-type]

    def runs(self, request: Request = REBUILD) -> str:
        return "".join(self.plan(request).running)

    def play(self, rows: Callable[[str], str] = lambda region: "rows") -> set[str]:
        """Let every region's own pre-check decide, one after the other, until nobody runs. Returns who ran."""
        ran: set[str] = set()
        for _ in range(100):
            before = len(ran), self.state()
            for region in self.upstream:
                evaluation = Evaluation(self.topology, self.state(), available=self.available)
                if evaluation.why_must_run(region) is not None and not evaluation.lost_inputs(region):
                    ran.add(region)
                    self.finish(region, rows(region))
            if before[1] == self.state():
                return ran
        raise AssertionError("no end")

    def _pin(self, region: str) -> InputRef:
        current = self.state().of(region).current
        assert current is not None
        assert current.outcome is not None
        digests = tuple(
            (output.result, output.digest) for output in current.outcome.outputs if output.digest is not None
        )
        return InputRef(region, current.number, digests)

    def _manifest(self, region: str, n: int, rows: str) -> PartitionManifest:
        modes = dict(next(candidate for candidate in self.topology.regions if candidate.name == region).determinism)
        digest = rows if modes.get(region) is Determinism.VERIFY else None
        return PartitionManifest(region, f"s3://b/{region}/{n}", (ResultObject("part-0", 7, "e"),), 3, digest=digest)
