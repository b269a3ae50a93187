"""One try of a streaming region: who restarts with it, and the channels that it works with."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_recovery.attempt.mode import AttemptMode
from airflow_recovery.attempt.run import Run
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.mode import AttemptWork
from airflow_recovery.model.records import Claim, ExternalObject, InputRef, RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.streaming import failover
from airflow_recovery.streaming.channel_graph import Stages
from airflow_recovery.streaming.work import stage_work


class StreamingAttempt(AttemptMode):
    """See the module."""

    looks_at_others = True
    """Its channels are told by the resets of others."""

    def failover(self, run: Run, evaluation: Evaluation, region: str) -> failover.StageFailover:
        """Who begins anew with it, and whose tasks are cleared (FLIP-135)."""
        return failover.stage_failover(run, evaluation, region)

    def is_current(self, run: Run, state: RunState, claim: Claim) -> bool:
        """Not in another generation, nor where it should have restarted."""
        return failover.is_current_stage(run, state, claim)

    def work(
        self,
        run: Run,
        region: RegionPlan,
        state: RunState,
        inputs: Sequence[InputRef],
        externals: Sequence[ExternalObject],
    ) -> AttemptWork:
        """The channels at its ends, and the attempts whose work it goes on from."""
        return stage_work(state, region, Stages(run.today))

    def check_claim(self, run: Run, claim: Claim) -> None:
        """Was a channel of the claim begun anew before the claim was there?"""
        failover.check_channels(run, claim)


MODE = StreamingAttempt()
