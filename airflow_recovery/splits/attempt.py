"""One try of a region that commits split by split: what it takes over, and whether it needs Spark at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.mode import AttemptMode
from airflow_recovery.attempt.run import Run
from airflow_recovery.job.enumerators import ResumedEnumerator
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.mode import AttemptWork
from airflow_recovery.model.records import Claim, ExternalObject, Outcome
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.planning.regions import Region
from airflow_recovery.splits import adoption, dynamic_assignment
from airflow_recovery.splits.committed_batches import SplitWork
from airflow_recovery.splits.committed_splits import check_kept, committed_splits
from airflow_recovery.splits.declaration import SplitAssignment, reading_of, split_source
from airflow_recovery.splits.log_store import split_log
from airflow_recovery.splits.mode import SplitClaim
from airflow_recovery.splits.spec import SplitSpec


class SplitAttempt(AttemptMode):
    """Asked by `airflow_recovery.attempt.attempt` between the plan and Spark; docs/splits.md has the rules."""

    def offered(
        self,
        journal: Journal,
        source: Vertex,
        today: Callable[[], Sequence[Split]] | ResumedEnumerator,
        parallelism: int,
        *,
        vanished: Vanished,
        log: logging.Logger,
    ) -> Sequence[Split] | None:
        """All that is listed, for ``assignment="dynamic"``: which of them a subtask has read, only its finish says.

        `None` for a static assignment, whose splits are dealt out before. Raises as `dynamic_assignment.discover`.
        """
        if reading_of(source).assignment is not SplitAssignment.DYNAMIC:
            return None
        return dynamic_assignment.discover(
            split_log(journal, source.name),
            today,
            vertex=source.name,
            parallelism=parallelism,
            vanished=vanished,
            log=log,
        )

    def committed(self, journal: Journal, region: str, source: str) -> Collection[str]:
        """Content keys of what is read and committed: `committed_splits`."""
        return committed_splits(journal, region, source)

    def check_readable(self, region: str, work: AttemptWork, gone: Collection[str]) -> None:
        """Raise `UserCodeError` where a split in ``gone``, which can't be read any more, is not in an adopted batch."""
        check_kept(region, [split for split in SplitWork.of(work).todo if split.key in gone])

    def will_read(self, work: AttemptWork, externals: Sequence[ExternalObject]) -> Collection[str]:
        """The splits that no adopted batch holds. If subtasks choose splits while they run, none is known."""
        split_work = SplitWork.of(work)
        return set() if split_work.is_pulled else {split.uri for split in split_work.todo}

    def work(
        self,
        run: Run,
        region: RegionPlan,
        state: RunState,
        inputs: Sequence[InputRef],
        externals: Sequence[ExternalObject],
    ) -> AttemptWork:
        """The assigned splits, and the batches of earlier attempts that are adopted. Raises as `split_work`."""
        return adoption.split_work(run, region, state, inputs, externals)

    def driver_spec(self, attempt: ClaimedAttempt, region: Region, vertices: Mapping[str, Vertex]) -> SplitSpec:
        """Which vertex reads the splits, how, and what the claim has adopted."""
        source = split_source(region, vertices)
        assert source is not None, region
        reading = reading_of(vertices[source])
        is_pulled = reading.assignment is SplitAssignment.DYNAMIC
        return SplitSpec(
            source, reading.batch_bytes, SplitClaim.of(attempt.claim).base, reading.loss_budget, is_pulled=is_pulled
        )

    def check_claim(self, run: Run, claim: Claim) -> None:
        """Fence the attempt, and raise `AttemptLost`, where a batch of its base was released or reset since."""
        adoption.check_base(run, claim)

    def finish_early(self, run: Run, attempt: ClaimedAttempt) -> Outcome | None:
        """Finish without Spark where every split is in an adopted batch, or none is left to pull; else `None`."""
        if SplitWork.of(attempt.work).is_done:
            return adoption.finish_without_spark(run, attempt)
        return dynamic_assignment.finish_pulled(run, attempt)


MODE = SplitAttempt()
