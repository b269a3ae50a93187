"""An operator of a provider that submits its job and waits in one step, as one whose job is found again."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection
from typing import Any, ClassVar

from airflow.sdk import ResumableJobMixin
from airflow.sdk.exceptions import AirflowException

from airflow_recovery.airflow_compat import execute_operator


class SubmitsThenAsks(ResumableJobMixin):
    """To be placed before the provider's class: its own ``execute`` submits, and this asks until the end.

    So Airflow's ``ResumableJobMixin`` can keep the job's id in between: another try of the task finds the job, and
    waits for it or ends it. How often is asked, and after how long a job is given up, is what the provider's class was
    told.
    """

    does_not_wait: ClassVar[tuple[str, bool]]
    """The attribute, and its value, with which ``execute`` returns as soon as the job is submitted."""
    ends: ClassVar[Collection[str]]
    """The states of a job that is over."""
    success: ClassVar[str]
    """The one of them that is a success."""
    interval: ClassVar[str]
    """The attribute with the seconds between two questions."""
    remote_job: str | None = None
    """The id of what was submitted, by which `on_kill` finds it in another process as well."""

    def execute(self, context: Any, **_: Any) -> Any:
        """As the provider's, but for how it waits."""
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> str:
        """The provider's ``execute``, which does not wait."""
        name, value = self.does_not_wait
        waits = getattr(self, name)
        setattr(self, name, value)
        try:
            self.remote_job = self.id_of(execute_operator(self, context, super().execute))  # type: ignore[misc]
        finally:
            setattr(self, name, waits)
        return self.remote_job

    @abstractmethod
    def id_of(self, answer: Any) -> str:
        """Of what the provider's ``execute`` returns, the job's id."""

    def names_its_job(self) -> str | None:
        """An argument that gives each attempt's job one name, as ``name='value'``; `None`: the service names them."""
        return None

    def give_up_after_s(self) -> float | None:
        """After so many seconds the job is ended, and has failed; `None`: never."""
        return None

    def why(self, external_id: str) -> str:
        """What the service says about a job that has failed; may be empty."""
        del external_id
        return ""

    def is_job_active(self, status: str) -> bool:
        """Whatever is not over may still write."""
        return status not in self.ends

    def is_job_succeeded(self, status: str) -> bool:
        """Whether it is over and well."""
        return status == self.success

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        """Raises `AirflowException` where the job has failed, or is given up."""
        given_up = self.give_up_after_s()
        deadline = None if given_up is None else time.monotonic() + given_up
        while self.is_job_active(status := self.get_job_status(external_id, context)):
            if deadline is not None and time.monotonic() >= deadline:
                self.on_kill()
                raise AirflowException(f"{external_id} is {status} after {given_up:.0f} s, and was ended")
            time.sleep(float(getattr(self, self.interval)))
        if not self.is_job_succeeded(status):
            reason = self.why(str(external_id))
            raise AirflowException(f"{external_id} is {status}{reason and f': {reason}'}")

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        """Its id."""
        return external_id

    @abstractmethod
    def on_kill(self) -> None:
        """End ``remote_job``."""
