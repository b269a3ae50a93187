"""A job that outlives its task: asked about at most every so often, found again by the tag of its claim, and stopped.

The parts of `SparkSubmission` and `OperatorSubmission` that are the same: both run copies of an operator that waits by
Airflow's `ResumableJobMixin`, and keep the job's id where that mixin does, under a key that names the attempt.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.application import ApplicationStatus, SparkApplication
from airflow_recovery.errors import DriverLeft

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.model.records import Claim

log = logging.getLogger(__name__)

ASK_EVERY_S = 10.0
"""How often the system that runs the jobs is asked at most: operators log each answer."""


class OutlivingJob(SparkApplication):
    """Jobs of copies of ``operator``. ``is_killed``: Airflow has told this process to end."""

    def __init__(
        self,
        operator: Any,
        context: Context,
        *,
        is_killed: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.operator = operator
        self._context = context
        self._is_killed = is_killed
        self._clock = clock
        self._job: Any = None
        self._asked: tuple[str, float, ApplicationStatus] | None = None
        self._thread: int | None = None
        """That in which `submit` waits."""
        self._is_found_again = False
        """Whether the next try finds what `submit` waits for, if this process ends now."""

    def leave(self) -> bool:
        """As `SparkApplication.leave`. What the next try could not find again is not left, nor by another thread."""
        if not self.outlives_task:
            return False
        if self._thread is None:
            return True  # nothing of this process runs; a driver that it follows is another try's
        if not self._is_found_again or self._thread != threading.get_ident():
            return False
        raise DriverLeft("Airflow ends this task. Its driver goes on, and the next try of the task decides about it.")

    @contextmanager
    def submitting(self, job: Any) -> Iterator[None]:
        """Around the start of ``job``, and the wait for it. Ends it if its time is over (``execution_timeout``)."""
        self._thread, self._is_found_again = threading.get_ident(), False
        if self.can_be_asked and getattr(job, "durable", True):
            job.poll_until_complete = partial(self._poll, job.poll_until_complete)
        try:
            yield
        except (Exception, DriverLeft):
            raise
        except BaseException:
            self.stop()
            raise
        finally:
            self._thread = None

    def _poll(self, poll: Callable[..., Any], *arguments: Any) -> Any:
        """Airflow's mixin has stored the job's id before it polls."""
        self._is_found_again = True
        return poll(*arguments)

    @property
    def is_killed(self) -> bool:
        """Airflow has told this process to end."""
        return self._is_killed()

    def status(self, claim: Claim) -> ApplicationStatus:
        """What that system said within the last `ASK_EVERY_S` seconds. From now on `stop` ends that job."""
        if not self.can_be_asked:
            return ApplicationStatus.UNKNOWN
        now = self._clock()
        if self._asked is None or self._asked[0] != claim.tag or now - self._asked[1] >= ASK_EVERY_S:
            self._asked = (claim.tag, now, self._ask_status(claim.tag))
        return self._asked[2]

    def stop_previous(self, claim: Claim) -> None:
        """End its job where its id is known; any other's was ended with its task, or goes on in a place of its own."""
        if not self.can_be_asked:
            return
        try:
            if self._find_job(claim.tag) is not None:
                self.stop()
        except Exception as error:
            log.warning("The job of attempt %s could not be ended: %s", claim.tag, error)

    def _ask_status(self, name: str) -> ApplicationStatus:
        """Never raises: a system that can't be asked is no answer."""
        try:
            external_id = self._find_job(name)
            if external_id is None:
                return ApplicationStatus.UNKNOWN
            status = self._job.get_job_status(external_id, self._context)
            if not self._is_answer(status):
                return ApplicationStatus.UNKNOWN
            if self._job.is_job_active(status):
                return ApplicationStatus.ACTIVE
            return ApplicationStatus.SUCCEEDED if self._job.is_job_succeeded(status) else ApplicationStatus.OVER
        except Exception as error:
            log.warning("What has become of attempt %s could not be asked: %s", name, error)
            return ApplicationStatus.UNKNOWN

    def _is_answer(self, status: Any) -> bool:
        """Whether ``status`` says anything about the job."""
        del status
        return True

    @abstractmethod
    def _find_job(self, name: str) -> Any:
        """The id of the job of this ``name``, in any try, which is ``_job`` from now on; `None`: it is not known."""


def key_of(prefix: str, name: str) -> str:
    """Where something of the attempt ``name`` is kept in Airflow's state of the task.

    Without a slash: the API server of Airflow 3.3.0 does not find a key that has one.
    """
    return f"{prefix}.{name}"
