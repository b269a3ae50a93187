"""The judgement of a run as it will be: whatever must run is taken to have finished once more.

`Evaluation` says what must run *now*. What that makes again may be an input of others, which then must run as well, and
may want results that are gone. Here the same rules are applied to the state that follows: no rule is written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, InputRef, Outcome
from airflow_recovery.planning.evaluation import Assumptions, Evaluation
from airflow_recovery.planning.mode import planning_of
from airflow_recovery.planning.reason import Reason

_NOT_YET = "not yet"


def simulate(evaluation: Evaluation, *, same_rows: bool, ask: bool = True) -> dict[str, Reason]:
    """Every region that will have run when all is done, in topological order, each with its reason.

    With ``same_rows`` whatever is made again has the rows that its readers had read, so that a ``verify`` edge holds;
    else it has other ones. Asks for the results that are wanted, each once, through ``evaluation``; without
    ``ask`` nobody is asked, and what ``evaluation`` was not told of is taken to be there.
    """
    lost: dict[str, Reason] = {}
    while True:
        made = _MadeAgain(evaluation, lost, same_rows)
        seen = made.evaluate(ask=ask)
        found = {region.name: seen.why_must_run(region.name) for region in evaluation.topology.regions}
        must = {name: reason for name, reason in found.items() if reason is not None}
        # What is wanted and gone is made again too, and then has consumers of its own: look once more.
        new = must.keys() - made.reasons.keys()
        if not new:
            return must
        lost |= {name: must[name] for name in new}


class _MadeAgain(Assumptions):
    """Regions are judged in topological order, and each that must run has finished before its consumers are judged.

    ``lost``: what is made again although it is valid. ``reasons``: why each region is made again.
    """

    def __init__(self, evaluation: Evaluation, lost: dict[str, Reason], same_rows: bool) -> None:
        self.reasons: dict[str, Reason] = {}
        self._evaluation = evaluation
        self._lost = lost
        self._same_rows = same_rows
        self._regions = {region.name: region for region in evaluation.topology.regions}
        self._future = dict(evaluation.state.regions)
        self._state = replace(evaluation.state, regions=self._future)

    def evaluate(self, *, ask: bool) -> Evaluation:
        """The run as it will be."""
        evaluation = self._evaluation

        def available(region: str, attempt: Attempt, result: str) -> Reason | None:
            is_known = ask or attempt.is_released or evaluation.was_asked(region, result)
            is_asked = is_known and region not in self.reasons
            return evaluation.why_not_available(region, [result]) if is_asked else None

        return Evaluation(
            evaluation.topology, self._state, available=available, externals=evaluation.externals, assumed=self
        )

    def why_invalid(self, region: str, reason: Reason | None) -> Reason | None:
        """Whatever is not valid has finished once more, and is valid."""
        why = reason or self._lost.get(region)
        if why is not None:
            self.reasons[region] = why
            self._future[region] = self._finished_again(region)
        return None

    def has_same_rows(self, pin: InputRef, edge: Sequence[tuple[str, Determinism]]) -> bool:
        """Of what is made again and read by an edge that can tell, where that is assumed."""
        if not self._same_rows or pin.region not in self.reasons:
            return False
        digested = dict(pin.digests)
        modes = {mode for _, mode in edge}
        verified = [result for result, mode in edge if mode is Determinism.VERIFY]
        return Determinism.ALWAYS not in modes and all(result in digested for result in verified)

    def must_run(self, region: str) -> Reason | None:
        """Whatever is made again."""
        return self.reasons.get(region)

    def _finished_again(self, name: str) -> RegionState:
        before = self._state.of(name)
        n = max(before.latest_attempt, before.reset_watermark) + 1
        # Its rows matter where somebody compares them.
        modes = self._regions[name].determinism
        verified = [result for result, mode in modes if mode is Determinism.VERIFY]
        outcome = Outcome(
            region=name,
            attempt=n,
            state=AttemptState.FINISHED,
            writer=_NOT_YET,
            ended_at=_NOT_YET,
            fingerprint=self._regions[name].fingerprint,
            outputs=tuple(PartitionManifest(result, "", (), digest=_NOT_YET) for result in verified),
        )
        attempt = Attempt(n, is_claimed=True, has_outcome=True, outcome=outcome)
        planned = self._regions[name]
        return planning_of(planned).after_finish(planned, self._state, attempt)
