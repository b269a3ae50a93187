"""EMR steps and EMR Serverless jobs as recoverable operators, on moto; what runs there are real processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator, EmrServerlessStartJobOperator
from airflow.sdk import DAG
from emr_cluster import REGION, EmrCluster
from job_servers import WRITER, gated
from moto import mock_aws
from tries import execute, run_try, state_in, task_context

from airflow_recovery.errors import JobDefinitionError, RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import recoverable

ROLE = "arn:aws:iam::123456789012:role/emr"
AWS = {"aws_conn_id": None, "region_name": REGION, "do_xcom_push": False, "outputs": ["out"], "task_id": "t"}


@pytest.fixture
def cluster(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmrCluster]:
    monkeypatch.setattr("moto.emrserverless.models.JOB_STATUS", "SUBMITTED")
    with mock_aws(), EmrCluster() as found:
        yield found


def steps(cluster: EmrCluster, *arguments: str, program: str = WRITER, **given: Any) -> Any:
    jar = {"Jar": "command-runner.jar", "Args": ["spark-submit", program, *arguments, "--out", "{output:out}"]}
    step = {"Name": "write", "ActionOnFailure": "CONTINUE", "HadoopJarStep": jar}
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return recoverable(EmrAddStepsOperator, paths="plain")(
            **{
                "job_flow_id": cluster.flow,
                "steps": [step],
                "wait_for_completion": True,
                "waiter_delay": 1,
                **AWS,
                **given,
            }
        )


def serverless(cluster: EmrCluster, *arguments: str, program: str = WRITER, **given: Any) -> Any:
    submit = {"entryPoint": program, "entryPointArguments": [*arguments, "--out", "{output:out}"]}
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return recoverable(EmrServerlessStartJobOperator, paths="plain")(
            **{
                "application_id": cluster.application,
                "execution_role_arn": ROLE,
                "job_driver": {"sparkSubmit": submit},
                "waiter_delay": 1,
                "waiter_max_attempts": 1000,
                **AWS,
                **given,
            }
        )


BOTH = pytest.mark.parametrize("make", [steps, serverless])


@BOTH
def test_a_job_on_emr_writes_to_the_place_of_its_attempt_and_is_kept(cluster: EmrCluster, make: Any) -> None:
    task = make(cluster)
    made = run_try(task)
    location = made["results"]["t.out"]["location"]
    assert (Path(location.removeprefix("file://")) / "part-0").read_text() == "rows"
    assert run_try(task, try_number=2)["decision"] == "kept"
    assert len(cluster.processes) == 1


@BOTH
def test_a_job_on_emr_that_fails_ends_its_attempt(cluster: EmrCluster, make: Any, recovery: Path) -> None:
    with pytest.raises(RegionFailed, match=r"t@1: the application failed: .*(EMR Steps|Serverless Job) failed"):
        run_try(make(cluster, "--fail-after-writing"))
    assert run_try(make(cluster), try_number=2)["attempt"] == 2
    attempts = state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts
    assert (attempts[1].is_finished, attempts[2].is_finished) == (False, True)


def test_a_killed_task_cancels_its_serverless_job(cluster: EmrCluster, recovery: Path) -> None:
    task = serverless(cluster, program=gated(recovery)).prepare_for_execution()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            execute(task, task_context("t"))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not cluster.processes:
        thread.join(0.02)
        assert thread.is_alive(), errors
    task.on_kill()
    thread.join(300)
    (job,) = cluster.processes.values()
    assert job.wait(60) == -9
    assert "CANCELLED" in str(errors[0]) or "Serverless Job failed" in str(errors[0])


@BOTH
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deferrable": True}, "t: expected deferrable=False"),
        ({"wait_for_completion": False}, "found wait_for_completion=False: .* Say wait_for_completion=True"),
    ],
)
def test_a_job_on_emr_that_is_not_waited_for_is_refused(
    cluster: EmrCluster, make: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(JobDefinitionError, match=said):
        make(cluster, **given)
