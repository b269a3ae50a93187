"""How the Spark drivers of a region's attempts stand to the task processes that start them."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from airflow_recovery.attempt.runner import ClaimedAttempt
from airflow_recovery.errors import Failure
from airflow_recovery.model.records import Claim, Outcome, RunIdentity


class DriverStatus(str, Enum):
    """What the cluster manager says of a driver. Never proof of a result: only the outcome object is (fault 76)."""

    UNKNOWN = "unknown"
    """It can't be asked, does not answer, or does not know the driver."""
    ACTIVE = "active"
    """Queued or running."""
    SUCCEEDED = "succeeded"
    OVER = "over"
    """Failed or killed."""


class Drivers(Protocol):
    """What the protocol asks about the driver of an attempt that an earlier try has left open."""

    @property
    def outlive_their_task(self) -> bool:
        """False: a driver is gone when the process that claimed its attempt is (client mode, Spark Connect)."""
        ...

    @property
    def are_unwanted(self) -> bool:
        """This process was told to end: nobody is waited for any more."""
        ...

    def status(self, claim: Claim) -> DriverStatus:
        """What the cluster manager says now. Raises nothing."""
        ...

    def adopt(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Finish the attempt, whose driver has succeeded, in its task's place. `None`: a driver does that by itself."""
        ...

    def failure_of(self, identity: RunIdentity, claim: Claim) -> Failure | None:
        """What the driver said of its failure, where it said anything."""
        ...

    def forget_failure(self, identity: RunIdentity, claim: Claim) -> None:
        """Delete that: it is in the journal now. Raises nothing."""
        ...


class BoundDrivers:
    """They die with the process that starts them, and nobody else can be asked about them."""

    outlive_their_task = False
    are_unwanted = False

    def status(self, claim: Claim) -> DriverStatus:
        """Nobody knows."""
        del claim
        return DriverStatus.UNKNOWN

    def adopt(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Nothing is left to be done."""
        del attempt
        return None

    def failure_of(self, identity: RunIdentity, claim: Claim) -> Failure | None:
        """It said nothing."""
        del identity, claim
        return None

    def forget_failure(self, identity: RunIdentity, claim: Claim) -> None:
        """Nothing is left to be done."""
        del identity, claim


BOUND = BoundDrivers()
