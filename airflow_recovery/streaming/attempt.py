"""One try of a streaming region: who restarts with it, and the channels that it works with."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.mode import AttemptMode
from airflow_recovery.attempt.run import Run
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.mode import AttemptWork
from airflow_recovery.model.records import Claim, ExternalObject
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.regions import Region
from airflow_recovery.streaming import failover
from airflow_recovery.streaming.channel_graph import ChannelGraph
from airflow_recovery.streaming.declaration import channel_of, streaming_of
from airflow_recovery.streaming.folder import checkpoints_of
from airflow_recovery.streaming.options import OutputMode
from airflow_recovery.streaming.spec import ChannelSpec, StreamingSpec
from airflow_recovery.streaming.work import StreamingWork, streaming_work


class StreamingAttempt(AttemptMode):
    """What the task of a streaming region asks before and after its claim: who restarts with it, and its channels."""

    looks_at_others = True
    """The generations of its channels follow from the resets of the regions at their other ends."""

    def failover(self, run: Run, evaluation: Evaluation, region: str) -> failover.StreamingFailover:
        """Who starts over with ``region``, and whose tasks are cleared (FLIP-135). Writes nothing yet."""
        return failover.streaming_failover(run, evaluation, region)

    def is_current(self, run: Run, state: RunState, claim: Claim) -> bool:
        """Whether what the open attempt of ``claim`` makes would be used: see `failover.is_current_attempt`."""
        return failover.is_current_attempt(run, state, claim)

    def will_read(self, work: AttemptWork, externals: Sequence[ExternalObject]) -> Collection[str]:
        """None: which files a snapshot has read already only the stream knows."""
        return set()

    def work(
        self,
        run: Run,
        region: RegionPlan,
        state: RunState,
        inputs: Sequence[InputRef],
        externals: Sequence[ExternalObject],
    ) -> AttemptWork:
        """The channels at its ends, and the attempts whose work it goes on from."""
        work = streaming_work(state, region, ChannelGraph(run.today))
        claims = run.journal.read_claims((region.name, number) for number in work.earlier)
        return replace(work, checkpoints=tuple(checkpoints_of(claim.attempt, claim.folder) for claim in claims))

    def driver_spec(self, attempt: ClaimedAttempt, region: Region, vertices: Mapping[str, Vertex]) -> StreamingSpec:
        """Both ends as they are declared, in the generations of the claim, and what it goes on from."""
        work, streaming = StreamingWork.of(attempt.work), streaming_of(region, vertices)
        generations = {pin.result: pin.generation for pin in work.pins}

        def channel(result: str, drained: tuple[int, ...] = ()) -> ChannelSpec:
            declared = channel_of(vertices[result])
            return ChannelSpec(
                result=result,
                generation=generations[result],
                reconnect=declared.reconnect,
                overflow=declared.overflow,
                max_bytes=declared.max_bytes,
                block_timeout_s=declared.block_timeout_s,
                subpartitions=declared.subpartitions,
                partition_by=declared.partition_by,
                budget=declared.budget,
                restart_budget=declared.restart_budget,
                drained=drained,
            )

        return StreamingSpec(
            input=channel(region.channels_in[0].result, work.drained) if region.channels_in else None,
            output=channel(region.channels_out[0]) if region.channels_out else None,
            trigger_s=streaming.trigger_s,
            max_rows=streaming.max_rows,
            output_mode=OutputMode(streaming.output).value,
            run_for_s=streaming.run_for_s,
            stateful=streaming.stateful,
            replays=streaming.replays,
            allow_stateful_loss=streaming.allow_stateful_loss,
            earlier=work.earlier,
            checkpoints=work.checkpoints,
        )

    def check_claim(self, run: Run, claim: Claim) -> None:
        """Fence the attempt where a channel of its claim has got a new generation meanwhile. Raises `AttemptLost`."""
        failover.check_channels(run, claim)


MODE = StreamingAttempt()
