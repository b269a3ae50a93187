"""The Spark application of a region, as one try of the region's task asks for it: start, watch, stop, reconnect.

Airflow's implementations are in `airflow_recovery.task`; those of the simulations and of the crash kit in
`airflow_recovery.testing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from airflow_recovery.errors import Failure
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.mode import AttemptWork
from airflow_recovery.model.records import AttemptTrace, Claim, CoordinatorSnapshot, ExternalObject, Outcome


@dataclass(frozen=True)
class ClaimedAttempt:
    """What an application is given: its claim, the outcomes of what it reads, and its external inputs."""

    claim: Claim
    inputs: Mapping[str, Outcome]
    externals: tuple[ExternalObject, ...]
    fingerprint: str
    earlier_failures: tuple[Failure, ...] = ()
    """Those that count in the region's restart budget, oldest first."""
    coordinators: tuple[CoordinatorSnapshot, ...] = ()
    """What the coordinators of its vertices are restored from."""
    commit: CommitSpec | None = None
    """What its finish is prepared for."""
    work: AttemptWork = field(default_factory=AttemptWork)
    """What its mode knows of what is to be done."""
    comes_back: bool = False
    """Its run was closed before: what was there of it at the listing may have been purged since."""
    found_inputs_kept: Callable[[], bool] | None = None
    """Waits for the look for released inputs that this process makes beside Spark's start."""

    @property
    def trace(self) -> AttemptTrace:
        """What its outcome will say that it rests on."""
        claim = self.claim
        commit = None if self.commit is None else replace(self.commit, number=claim.commit_number)
        return AttemptTrace(
            claim.region,
            claim.attempt,
            claim.writer,
            self.fingerprint,
            claim.inputs,
            self.externals,
            commit,
            claim.absent,
            self.work.in_outcome,
            claim.dag_run,
            claim.declared,
        )


class ApplicationStatus(str, Enum):
    """What the cluster manager says of an application. Never proof of a result: only the outcome object is."""

    UNKNOWN = "unknown"
    """It can't be asked, does not answer, or does not know the application."""
    ACTIVE = "active"
    """Queued or running."""
    SUCCEEDED = "succeeded"
    OVER = "over"
    """Failed or killed."""


class SparkApplication(ABC):
    """Runs the attempts of one region, each as one Spark application, and looks after what earlier tries have left.

    What is not abstract holds for an application that ends with the task process that started it (Spark Connect):
    nothing of it is left, and nobody can be asked about it.
    """

    @abstractmethod
    def externals(self) -> tuple[ExternalObject, ...]:
        """Today's external inputs of the region. Raises where they can't be listed."""

    def found_again(self, outcome: Outcome) -> tuple[ExternalObject, ...]:
        """What the attempt of ``outcome`` has found by itself, beside `externals`, as it is now.

        It belongs to the trace of that attempt, and of no other.
        """
        del outcome
        return ()

    @property
    def application_id(self) -> str | None:
        """What the cluster calls the application that was started or found last; `None` where only its driver knows."""
        return None

    def before_claim(self, state: RunState) -> None:
        """May the region run now? Raises where it may not, for example since that would overwrite newer data."""
        del state

    def why_not_kept(self, outcome: Outcome) -> str | None:
        """Why this try can't keep the attempt of ``outcome``, though its result is valid; `None`: it can.

        A kept try leaves in Airflow what the attempt's task left there. Raises `StoreError` if the store does not tell
        whether that is possible.
        """
        del outcome
        return None

    @abstractmethod
    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Start it, and wait for its end. Returns the outcome that is in the journal; `None`: it is to be looked for.

        Raises `RegionFailed` (or `UserCodeError`) where the application failed.
        """

    def check_committed(self, outcome: Outcome) -> None:
        """Look once more after the commit of ``outcome`` to its sink. Raises `Overtaken` if it must be made again."""
        del outcome

    @abstractmethod
    def stop(self) -> None:
        """Stop what `run` waits for; called from another thread, or from a signal handler."""

    def leave(self) -> bool:
        """Leave the driver to the next try, where Airflow ends this process. False: it can't be left, so `stop` it.

        Called in the main thread. Raises `DriverLeft` out of what `run` waits for.
        """
        return False

    # what an earlier try has left open

    @property
    def outlives_task(self) -> bool:
        """The driver lives on when the task process that started it is gone: on a cluster, or kept on this machine."""
        return False

    @property
    def can_be_asked(self) -> bool:
        """A system that runs it knows it by an id, by which `status` and `stop_previous` find it."""
        return self.outlives_task

    @property
    def is_killed(self) -> bool:
        """This task process was told to end: no application is waited for any more."""
        return False

    def status(self, claim: Claim) -> ApplicationStatus:
        """What the cluster manager says now of the application of ``claim``. Raises nothing."""
        del claim
        return ApplicationStatus.UNKNOWN

    def finish_previous(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Finish an attempt whose application has succeeded, in place of its task. `None`: a driver does it itself."""
        del attempt
        return None

    def stop_previous(self, claim: Claim) -> None:
        """Stop what may be left running of an earlier attempt. Best effort: fencing is what makes it harmless."""
        del claim

    def failure_of(self, claim: Claim) -> Failure | None:
        """What the driver of an earlier attempt said of its failure, where it said anything."""
        del claim
        return None

    def forget_failure(self, claim: Claim) -> None:
        """Delete that: it is in the journal now. Raises nothing."""
        del claim


class WrappedApplication(SparkApplication):
    """Passes every call on to ``inner``. A subclass overrides the calls to which it adds something."""

    def __init__(self, inner: SparkApplication) -> None:
        self._inner = inner

    def externals(self) -> tuple[ExternalObject, ...]:
        """As ``inner``."""
        return self._inner.externals()

    def found_again(self, outcome: Outcome) -> tuple[ExternalObject, ...]:
        """As ``inner``."""
        return self._inner.found_again(outcome)

    @property
    def application_id(self) -> str | None:
        """As ``inner``."""
        return self._inner.application_id

    def before_claim(self, state: RunState) -> None:
        """As ``inner``."""
        self._inner.before_claim(state)

    def why_not_kept(self, outcome: Outcome) -> str | None:
        """As ``inner``."""
        return self._inner.why_not_kept(outcome)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """As ``inner``."""
        return self._inner.run(attempt)

    def check_committed(self, outcome: Outcome) -> None:
        """As ``inner``."""
        self._inner.check_committed(outcome)

    def stop(self) -> None:
        """As ``inner``."""
        self._inner.stop()

    def leave(self) -> bool:
        """As ``inner``."""
        return self._inner.leave()

    @property
    def outlives_task(self) -> bool:
        """As ``inner``."""
        return self._inner.outlives_task

    @property
    def can_be_asked(self) -> bool:
        """As ``inner``."""
        return self._inner.can_be_asked

    @property
    def is_killed(self) -> bool:
        """As ``inner``."""
        return self._inner.is_killed

    def status(self, claim: Claim) -> ApplicationStatus:
        """As ``inner``."""
        return self._inner.status(claim)

    def finish_previous(self, attempt: ClaimedAttempt) -> Outcome | None:
        """As ``inner``."""
        return self._inner.finish_previous(attempt)

    def stop_previous(self, claim: Claim) -> None:
        """As ``inner``."""
        self._inner.stop_previous(claim)

    def failure_of(self, claim: Claim) -> Failure | None:
        """As ``inner``."""
        return self._inner.failure_of(claim)

    def forget_failure(self, claim: Claim) -> None:
        """As ``inner``."""
        self._inner.forget_failure(claim)
