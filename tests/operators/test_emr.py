"""EMR steps and EMR Serverless jobs as recoverable operators, on moto; what runs there are real processes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator, EmrServerlessStartJobOperator
from airflow.sdk import DAG
from emr_cluster import REGION, EmrCluster
from expected_errors import fails_with
from job_servers import WRITER, gated
from moto import mock_aws
from tries import run_try, state_in

from airflow_recovery.errors import RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import recoverable
from airflow_recovery.task import operator_submission
from airflow_recovery.testing.patience import HANG_S

ROLE = "arn:aws:iam::123456789012:role/emr"
AWS = {"aws_conn_id": None, "region_name": REGION, "do_xcom_push": False, "outputs": ["out"], "task_id": "t"}


@pytest.fixture
def cluster(recovery: Path) -> Iterator[EmrCluster]:
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
    assert len(cluster.jobs) == 1


@pytest.mark.slow
@BOTH
def test_a_job_on_emr_that_fails_ends_its_attempt(cluster: EmrCluster, make: Any, recovery: Path) -> None:
    with pytest.raises(RegionFailed, match=r"t@1: the application failed: .*(EMR Steps|Serverless Job) failed"):
        run_try(make(cluster, "--fail-after-writing"))
    assert run_try(make(cluster), try_number=2)["attempt"] == 2
    attempts = state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts
    assert (attempts[1].is_finished, attempts[2].is_finished) == (False, True)


@pytest.mark.slow
@BOTH
def test_the_next_attempt_of_one_task_is_another_job(cluster: EmrCluster, make: Any, recovery: Path) -> None:
    """Its client's token was drawn when the DAG was parsed: for one token EMR Serverless has one job."""
    task = make(cluster, program=failing_once(recovery))
    with pytest.raises(RegionFailed):
        run_try(task)
    assert run_try(task, try_number=2)["attempt"] == 2
    assert len(cluster.jobs) == 2


@pytest.mark.slow
def test_control_with_one_token_for_all_attempts_the_next_one_is_given_the_failed_job(
    cluster: EmrCluster, recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_submission, "REQUEST_TOKENS", ())
    task = serverless(cluster, program=failing_once(recovery))
    for try_number in (1, 2):
        with pytest.raises(RegionFailed):
            run_try(task, try_number=try_number)
    assert len(cluster.jobs) == 1


def failing_once(folder: Path) -> str:
    program, flag = folder / "failing_once.py", folder / "has_failed"
    program.write_text(
        f"import pathlib, runpy, sys\nflag = pathlib.Path({str(flag)!r})\n"
        f"if not flag.exists():\n    flag.touch()\n    sys.exit('broken')\n"
        f"sys.argv[0] = {WRITER!r}\nrunpy.run_path({WRITER!r}, run_name='__main__')\n"
    )
    return str(program)


@pytest.mark.slow
def test_a_job_is_given_up_after_as_many_questions_as_the_operator_was_told(
    cluster: EmrCluster, recovery: Path
) -> None:
    task = steps(cluster, program=gated(recovery), waiter_max_attempts=1)
    with pytest.raises(RegionFailed, match="RUNNING after 1 s, and was ended"):
        run_try(task)
    (job,) = cluster.jobs.values()
    assert job.process.wait(HANG_S) == -9


@BOTH
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"deferrable": True}, "operator-defers"),
        ({"wait_for_completion": False}, "operator-does-not-wait"),
    ],
)
def test_a_job_on_emr_that_is_not_waited_for_is_refused(
    cluster: EmrCluster, make: Any, given: dict[str, Any], code: str
) -> None:
    with fails_with(code):
        make(cluster, **given)
