"""EMR's steps and EMR Serverless' jobs, found again after a lost worker."""

from __future__ import annotations

from typing import Any

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator, EmrServerlessStartJobOperator

from airflow_recovery.operators.resumable import SubmitsThenAsks


class _AsksEmr(SubmitsThenAsks):
    interval = "waiter_delay"
    does_not_wait = ("wait_for_completion", False)
    waiter_delay: int
    waiter_max_attempts: int

    def give_up_after_s(self) -> float:
        """As many questions as ``waiter_max_attempts``."""
        return float(self.waiter_delay * self.waiter_max_attempts)


class ResumableEmrAddStepsOperator(_AsksEmr, EmrAddStepsOperator):
    """The provider's has no ``on_kill``: this cancels the steps, the one that runs included."""

    external_id_key = "emr_steps"
    ends = ("COMPLETED", "FAILED", "CANCELLED", "INTERRUPTED")
    success = "COMPLETED"

    def id_of(self, answer: Any) -> str:
        """The cluster's id and those of its steps, with a space between two."""
        cluster = self.job_flow_id or self.hook.get_cluster_id_by_name(str(self.job_flow_name), self.cluster_states)
        return " ".join([str(cluster), *answer])

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """The first state of a step that ended badly; else of the first that has not ended; else ``COMPLETED``."""
        states = [step["Status"]["State"] for step in self._steps(external_id)]
        bad = [state for state in states if state in self.ends and state != self.success]
        running = [state for state in states if state not in self.ends]
        return str([*bad, *running, self.success][0])

    def why(self, external_id: str) -> str:
        """Of each step that is not completed: its state, and the reason that EMR gives."""
        statuses = [(step["Id"], step["Status"]) for step in self._steps(external_id)]
        reasons = [
            (step, status["State"], status.get("FailureDetails") or status.get("StateChangeReason") or {})
            for step, status in statuses
            if status["State"] != self.success
        ]
        return "EMR Steps failed: " + "; ".join(
            " ".join([step, state, *map(str, reason.values())]) for step, state, reason in reasons
        )

    def on_kill(self) -> None:
        """Cancel the steps: one that waits is not begun, and the process of the one that runs is terminated."""
        if self.remote_job:
            cluster, *steps = self.remote_job.split()
            self._client().cancel_steps(ClusterId=cluster, StepIds=steps, StepCancellationOption="TERMINATE_PROCESS")

    def _steps(self, external_id: Any) -> list[dict[str, Any]]:
        cluster, *steps = str(external_id).split()
        return [self._client().describe_step(ClusterId=cluster, StepId=step)["Step"] for step in steps]

    def _client(self) -> Any:
        return self.hook.conn


class ResumableEmrServerlessStartJobOperator(_AsksEmr, EmrServerlessStartJobOperator):  # type: ignore[misc]
    """It is ended by the provider's own ``on_kill``."""

    external_id_key = "emr_serverless_job"
    ends = ("SUCCESS", "FAILED", "CANCELLED")
    success = "SUCCESS"

    def id_of(self, answer: Any) -> str:
        """The run's id."""
        return str(answer)

    def get_job_status(self, external_id: Any, context: Any) -> str:
        """As EMR Serverless names it."""
        return str(self._run(external_id)["state"])

    def why(self, external_id: str) -> str:
        """As EMR Serverless says it."""
        return f"Serverless Job failed: {self._run(external_id).get('stateDetails') or 'no reason was given'}"

    def on_kill(self) -> None:
        """As the provider's, which finds the run by ``job_id``."""
        EmrServerlessStartJobOperator.on_kill(self)

    def _run(self, external_id: Any) -> dict[str, Any]:
        client: Any = self.hook.conn
        run: dict[str, Any] = client.get_job_run(applicationId=self.application_id, jobRunId=str(external_id))["jobRun"]
        return run
