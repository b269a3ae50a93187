"""Drivers that run on a cluster (deploy mode ``cluster``): they live on when the task that submitted them is gone.

A driver of a declared job gives signs of life and finishes its attempt by itself, so that following it needs nobody
else; the cluster manager is asked as well, through the provider's own `ResumableJobMixin` hooks, since it alone knows a
driver that is still queued, or was killed. A driver of a drop-in operator is the user's application: only the cluster
manager can tell what becomes of it, and the task that follows it registers what it wrote.

Why not `execute_resumable` itself: it takes a job that has succeeded for the answer, whatever was cleared since, and
submits again in place of one that has failed. Here an attempt is submitted once; whether another
one is needed is judged from the journal. The job's id is kept where the mixin keeps it, under a key that names the
claim's tag: no other attempt, run or operator has it (faults 3, 18, 19, 77).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_recovery.attempt.drivers import DriverStatus
from airflow_recovery.attempt.runner import ClaimedAttempt
from airflow_recovery.driver.exit_report import forget_failure_at, read_failure_at
from airflow_recovery.errors import Failure, StoreError
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import Claim, Outcome, RunIdentity

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.operators.submitting import SubmittingOperator
    from airflow_recovery.store.object_store import ObjectStore

log = logging.getLogger(__name__)

ASK_EVERY_S = 10.0
"""The provider logs each answer."""


class ClusterDrivers:
    """The `airflow_recovery.attempt.drivers.Drivers` of a declared job's regions, in deploy mode ``cluster``."""

    def __init__(
        self,
        operator: SubmittingOperator,
        context: Context,
        results: ObjectStore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._operator = operator
        self._context = context
        self._results = results
        self._clock = clock
        self._asked: tuple[str, float, DriverStatus] | None = None

    @property
    def outlive_their_task(self) -> bool:
        """They do."""
        return True

    @property
    def are_unwanted(self) -> bool:
        """This process was told to end."""
        return self._operator.is_killed

    def status(self, claim: Claim) -> DriverStatus:
        """What the cluster manager said within the last `ASK_EVERY_S` seconds."""
        now = self._clock()
        if self._asked is None or self._asked[0] != claim.tag or now - self._asked[1] >= ASK_EVERY_S:
            self._asked = (claim.tag, now, self._operator.driver_status(self._context, claim.tag))
        return self._asked[2]

    def adopt(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Nothing to do: the driver writes the outcome before it succeeds."""
        del attempt
        return None

    def failure_of(self, identity: RunIdentity, claim: Claim) -> Failure | None:
        """What the driver left beside its results."""
        return read_failure_at(self._results, JournalLayout(identity).data_of(claim.region, claim.attempt))

    def forget_failure(self, identity: RunIdentity, claim: Claim) -> None:
        """Delete that."""
        try:
            forget_failure_at(self._results, JournalLayout(identity).data_of(claim.region, claim.attempt))
        except StoreError as error:
            log.warning("What the driver of %s@%d said is left behind: %s", claim.region, claim.attempt, error)
