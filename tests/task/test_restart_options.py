"""What an operator declares of restarts, what the configuration adds, and what contradicts."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG, Connection
from expected_errors import fails_with
from tries import task_context

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.driver.failure_class import labelled
from airflow_recovery.driver.memory_policy import RaiseMemory
from airflow_recovery.errors import Failure
from airflow_recovery.model.records import Claim
from airflow_recovery.operators import (
    RecoverableSparkSubmitOperator,
    RecoveryPublishOperator,
    SparkJobTaskGroup,
    SparkRegionOperator,
    StartSparkOperator,
    StopSparkOperator,
    recovering,
)
from airflow_recovery.operators.subtasks import RecoverySubtasksOperator
from airflow_recovery.planning.restart_budget import RestartLimits
from airflow_recovery.planning.restart_strategy import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from airflow_recovery.task.retry_policy import RecoveryRetryPolicy
from airflow_recovery.task.spark_connection import region_application
from airflow_recovery.task.spark_submission import SparkSubmission


def operator(*, default_args: dict[str, Any] | None = None, **arguments: Any) -> RecoverableSparkSubmitOperator:
    with DAG("d", schedule=None, default_args=default_args or {}):
        return RecoverableSparkSubmitOperator(
            task_id="t", application="a.py", outputs={"out": "s3://lake/out/"}, **arguments
        )


def configured(monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__RECOVERY__{name.upper()}", value)


# arguments and configuration


@pytest.mark.parametrize(
    ("arguments", "limits", "retries"),
    [
        ({}, RestartLimits(ExponentialDelay(), 3, None), 12),
        ({"maximum_per_task_failures": 5}, RestartLimits(ExponentialDelay(), 5, None), 14),
        ({"maximum_total_task_failures": 9}, RestartLimits(ExponentialDelay(), 3, 9), 12),
        ({"restart_strategy": FixedDelay(4, 2)}, RestartLimits(FixedDelay(4, 2), None, None), 14),
        ({"restart_strategy": {"type": "fixed-delay", "fixed-delay.attempts": 4}},
         RestartLimits(FixedDelay(4), None, None), 14),
        ({"restart_strategy": FailureRate()}, RestartLimits(FailureRate(), None, None), 100),
        ({"restart_strategy": NoRestart()}, RestartLimits(NoRestart(), None, None), 10),
        ({"retries": 4}, RestartLimits(ExponentialDelay(), 3, None), 4),
    ],
)  # fmt: skip
def test_declared(arguments: dict[str, Any], limits: RestartLimits, retries: int) -> None:
    task = operator(**arguments)
    assert (task.restart_options.limits, task.retries, task.retry_delay) == (limits, retries, timedelta(seconds=1))
    assert isinstance(task.retry_policy, RecoveryRetryPolicy)


def pauses_s(task: Any) -> list[float]:
    """By Airflow, after each try that no retry policy has seen, in seconds."""
    ended = datetime(2024, 1, 1, tzinfo=timezone.utc)
    tries = [
        SimpleNamespace(
            task=task, try_number=number, end_date=ended, retry_delay_override=None, dag_id="d", task_id="t",
            logical_date=ended, log=logging.getLogger(__name__),
        )
        for number in range(1, task.retries + 1)
    ]  # fmt: skip
    return [(TaskInstance.next_retry_datetime(cast("Any", one)) - ended).total_seconds() for one in tries]


def publish(**arguments: Any) -> RecoveryPublishOperator:
    with DAG("d", schedule=None, default_args=arguments.pop("default_args", {})):
        return RecoveryPublishOperator(task_id="t", **arguments)


def deciding(**arguments: Any) -> RecoverySubtasksOperator:
    with DAG("d", schedule=None, default_args=arguments.pop("default_args", {})):
        return RecoverySubtasksOperator(task_id="t", job="jobs:j", group_id="g", initializer="t", **arguments)


def stopping(**arguments: Any) -> StopSparkOperator:
    with DAG("d", schedule=None, default_args=arguments.pop("default_args", {})):
        return StopSparkOperator(task_id="t", **arguments)


def starting(**arguments: Any) -> StartSparkOperator:
    with DAG("d", schedule=None, default_args=arguments.pop("default_args", {})):
        return StartSparkOperator(task_id="t", **arguments)


OURS = pytest.mark.parametrize("made", [operator, publish, deciding, stopping, starting])
"""Each task of ours that Airflow tries again."""


@OURS
def test_fault_250_tries_that_never_begin_outlast_an_api_server_that_is_away_for_twenty_minutes(made: Any) -> None:
    found = pauses_s(made())
    assert found[0] <= 2
    assert max(found) == 300
    assert sum(found) > 20 * 60
    assert isinstance(made().retry_policy, RecoveryRetryPolicy)


@OURS
def test_fault_250_what_the_user_says_of_pauses_is_left_alone(made: Any) -> None:
    assert set(pauses_s(made(retry_delay=timedelta(seconds=7)))) == {7}
    assert set(pauses_s(made(default_args={"retry_delay": timedelta(seconds=7)}))) == {7}
    assert max(pauses_s(made(max_retry_delay=timedelta(seconds=30)))) == 30
    assert max(pauses_s(made(default_args={"max_retry_delay": timedelta(seconds=30)}))) == 30
    assert made(retries=4).retries == made(default_args={"retries": 4}).retries == 4


@OURS
def test_fault_250_control_without_pauses_all_tries_are_used_up_at_once(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovering, "BACKOFF", {"retry_delay": timedelta(0)})
    assert sum(pauses_s(made())) == 0


def test_the_configuration_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, maximum_per_task_failures="5", maximum_total_task_failures="20")
    assert operator().restart_options.limits == RestartLimits(ExponentialDelay(), 5, 20)
    configured(monkeypatch, restart_strategy='{"type": "fixed-delay", "fixed-delay.delay": "3 s"}')
    assert operator().restart_options.limits == RestartLimits(FixedDelay(1, 3), 5, 20)
    # A strategy that is given goes with its own number of failures.
    assert operator(restart_strategy=FixedDelay(9)).restart_options.limits == RestartLimits(FixedDelay(9), None, 20)
    configured(monkeypatch, restart_strategy="none", maximum_per_task_failures="")
    assert operator().restart_options.limits.strategy == NoRestart()


def test_default_args_of_a_dag_declare_it_for_all() -> None:
    assert operator(default_args={"maximum_per_task_failures": 7}).restart_options.limits == RestartLimits.of(None, 7)


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("restart_strategy", "sometimes", "restart-strategy-unknown"),
        ("restart_strategy", "{", "restart-strategy-unfit"),
        ("maximum_per_task_failures", "many", "setting-not-a-number"),
        ("maximum_total_task_failures", "0", "limit-unfit"),
        ("retention", "a while", "retention-setting-unfit"),
    ],
)
def test_a_wrong_setting_is_an_import_error(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str, code: str
) -> None:
    configured(monkeypatch, **{option: value})
    with fails_with(code):
        operator()


def test_a_task_group_declares_it_for_all_its_regions() -> None:
    with DAG("d", schedule=None) as dag:
        SparkJobTaskGroup(
            "g",
            job="dagjobs.shapes:diamond",
            restart_strategy=FixedDelay(4, 2),
            maximum_per_task_failures=2,
            maximum_total_task_failures=9,
        )
    regions = [task for task in dag.tasks if isinstance(task, SparkRegionOperator)]
    assert len(regions) > 1
    for region in regions:
        assert region.restart_options.limits == RestartLimits(FixedDelay(4, 2), 2, 9)
        assert region.retries == 11


# fault 72: Airflow's retries


@pytest.mark.parametrize("arguments", [
    {"retries": 0, "maximum_per_task_failures": 3},
    {"retries": 3, "restart_strategy": FixedDelay(attempts=4)},
])  # fmt: skip
def test_fault_72_fewer_retries_than_declared_restarts_are_refused_at_parse(arguments: dict[str, Any]) -> None:
    with fails_with("retries-too-few"):
        operator(**arguments)


def test_fault_72_control_enough_retries_are_not() -> None:
    assert operator(retries=2, maximum_per_task_failures=3).retries == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"default_args": {"retries": 0}}, "Airflow's retries is 0 for this task"),
        ({"retries": 1}, "Airflow's retries is 1 for this task, and its restart limits allow 2 restarts"),
        ({"retries": 2}, None),
        ({}, None),
        ({"retries": 0, "restart_strategy": NoRestart()}, None),
    ],
)
def test_fault_72_few_retries_of_a_dags_default_are_told_in_the_first_try(
    recovery: object,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Any,
    said: str | None,
) -> None:
    task = operator(**arguments)
    monkeypatch.setattr(type(task), "execute_region", lambda self, context: None)
    monkeypatch.setattr("airflow_recovery.operators.recovering.summary_of", lambda result: {})
    monkeypatch.setattr("airflow_recovery.operators.recovering.note_of", lambda result: "")
    monkeypatch.setattr("airflow_recovery.operators.recovering.how_to_run_again", lambda context, result: "")
    with caplog.at_level(logging.WARNING):
        cast(Any, type(task).execute).__wrapped__(task, task_context("t"))
    assert (said in caplog.text) if said else ("retries" not in caplog.text)


# fault 71: retention


@pytest.mark.parametrize(
    ("retention", "arguments", "code"),
    [
        ("1h", {"retry_delay": timedelta(hours=2)}, "restart-pause-outlasts-retention"),
        ("30s", {}, "restart-pause-outlasts-retention"),
        ("1m", {"restart_strategy": FixedDelay(3, 60)}, "restart-pause-outlasts-retention"),
    ],
)
def test_fault_71_a_delay_longer_than_the_retention_is_refused_at_parse(
    monkeypatch: pytest.MonkeyPatch, retention: str, arguments: dict[str, Any], code: str
) -> None:
    configured(monkeypatch, retention=retention)
    with fails_with(code):
        operator(**arguments)


@pytest.mark.parametrize(
    ("retention", "arguments"),
    [("7d", {}), ("7d", {"retry_delay": timedelta(hours=2)}), ("as-consumed 1s", {}), ("on-run-success", {})],
)
def test_fault_71_control_a_retention_that_is_longer_or_waits_for_the_consumer_is_not(
    monkeypatch: pytest.MonkeyPatch, retention: str, arguments: dict[str, Any]
) -> None:
    configured(monkeypatch, retention=retention)
    operator(**arguments)


# fault 74: memory


def attempt_after(*failures: Failure) -> ClaimedAttempt:
    claim = Claim("t", 2, "w", "h", (), "r", 2, "i", "tag", "now")
    return ClaimedAttempt(claim, {}, (), "f", tuple(labelled(failure) for failure in failures))


HEAP = Failure("Py4JJavaError", "java.lang.OutOfMemoryError: Java heap space")


def submission(task: Any) -> SparkSubmission:
    context: Any = {}
    unused: Any = None
    return SparkSubmission(task, context, unused, unused, memory_policy=task.memory_policy)


def test_fault_74_the_next_attempt_gets_more_memory() -> None:
    task = operator(driver_memory="2g", memory_policy=RaiseMemory(max_driver_memory="8g"))
    job = submission(task).new_job(attempt_after(HEAP))
    assert (job._driver_memory, job.conf) == ("4096m", {"spark.driver.memory": "4096m"})
    assert (task._driver_memory, task.conf) == ("2g", None)


def test_fault_74_control_without_a_policy_it_fails_the_same_way_again() -> None:
    job = submission(operator(driver_memory="2g")).new_job(attempt_after(HEAP))
    assert job._driver_memory == "2g"


def test_fault_74_over_connect_it_is_said_what_cannot_be_done(caplog: pytest.LogCaptureFixture) -> None:
    task = operator(memory_policy=RaiseMemory(max_driver_memory="8g"))
    connection = Connection(conn_id="warm", conn_type="spark_connect", host="sc://server")
    program: Any = SimpleNamespace(run=lambda attempt, launch: None)
    context: Any = {}
    application = region_application(program, task, connection, context, memory_policy=task.memory_policy)
    application.run(attempt_after(HEAP))
    assert "a Spark Connect server keeps the memory that it was started with" in caplog.text


# enrichers


def test_a_users_labels_are_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, failure_enrichers=f"{__name__}.Team")
    assert dict(operator().labeller()(Failure("TypeError", "x")).labels)["team"] == "routes"


class Team:
    output_keys = frozenset({"team"})

    def process_failure(self, failure: Failure) -> dict[str, str]:
        return {"team": "routes"}
