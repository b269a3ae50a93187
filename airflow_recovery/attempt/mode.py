"""What one try of a region's task asks the region's mode. The answers here are batch's.

Another mode answers in ``attempt`` of its package.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar, Protocol

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.driver.region_spec import ModeSpec
from airflow_recovery.job.enumerators import ResumedEnumerator
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.mode import AttemptWork, answers_of
from airflow_recovery.model.records import Claim, ExternalObject, Outcome
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.regions import Region


class ModeFailover(Protocol):
    """What a mode does to other regions, and to its own, before the claim of a region that must run."""

    @property
    def comes_first(self) -> bool:
        """Others are reset: that comes before a look after lost inputs."""
        ...

    @property
    def is_stuck(self) -> bool:
        """The newest attempt can't be reset once more: it takes another one, which is ended at once, to say so."""
        ...

    @property
    def is_needed(self) -> bool:
        """There may be something to do before the claim."""
        ...

    def restart(self, run: Run, observation: Observation | None) -> bool:
        """Do it, by tasks as they were observed before the state was listed. True where the journal has changed."""
        ...


class AttemptMode:
    """What a try asks the mode of its region. These are the answers of batch; another mode overrides what differs."""

    looks_at_others: ClassVar[bool] = False
    """Even a first attempt has to know of other regions than its inputs."""

    def failover(self, run: Run, evaluation: Evaluation, region: str) -> ModeFailover | None:
        """What ``region``, which must run and whose newest attempt is over, does to others before it claims."""
        return None

    def is_current(self, run: Run, state: RunState, claim: Claim) -> bool:
        """Would what the open attempt of ``claim`` makes be used, as far as the mode knows?"""
        return True

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
        """The splits of ``source`` of which each subtask takes some while it runs; `None`: they are assigned before.

        ``today``: the listing. Raises the store's errors, and `SplitsVanished`.
        """
        return None

    def committed(self, journal: Journal, region: str, source: str) -> Collection[str]:
        """Content keys of the splits of ``source`` whose rows are kept when the splits themselves are gone."""
        return frozenset()

    def check_readable(self, region: str, work: AttemptWork, gone: Collection[str]) -> None:
        """Raise `UserCodeError` where ``work`` is to read a split that is ``gone`` (content keys), and was kept."""

    def will_read(self, work: AttemptWork, externals: Sequence[ExternalObject]) -> Collection[str]:
        """The URIs of the ``externals`` that an attempt with this ``work`` is known to read."""
        return {external.uri for external in externals}

    def work(
        self,
        run: Run,
        region: RegionPlan,
        state: RunState,
        inputs: Sequence[InputRef],
        externals: Sequence[ExternalObject],
    ) -> AttemptWork:
        """What the next attempt of ``region`` has to do. Read before the claim, which pins it."""
        return AttemptWork()

    def driver_spec(self, attempt: ClaimedAttempt, region: Region, vertices: Mapping[str, Vertex]) -> ModeSpec:
        """What the driver of the claimed ``attempt`` is told of the mode. ``region`` and ``vertices``: as declared."""
        return ModeSpec()

    def check_claim(self, run: Run, claim: Claim) -> None:
        """Is what the claim pins still there? Else the attempt is fenced. Raises `AttemptLost`, and the store's errors.

        Who takes something away writes so, then looks for claims; who claims writes, then looks here: one sees the
        other.
        """

    def finish_early(self, run: Run, attempt: ClaimedAttempt) -> Outcome | None:
        """Finish the claimed attempt without Spark; `None`: Spark has to run. Raises `AttemptLost`."""
        return None


def attempt_of(region: RegionPlan) -> AttemptMode:
    """The answers of the mode that ``region`` has. Raises `ConfigurationError` where its package is not installed."""
    return answers_of(region.mode.name, "attempt", AttemptMode)
