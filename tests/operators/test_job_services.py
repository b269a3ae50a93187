"""Operators that submit to Livy, Databricks, EMR and Dataproc: their jobs outlive a lost worker, and are found again.

The services are `job_servers`, `emr_cluster` and `dataproc_server`; what an operator starts there is a real process.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from airflow.sdk import DAG
from dataproc_server import REGION, DataprocServer, google_provider, use_google_provider
from emr_cluster import EmrServer
from expected_errors import fails_with
from job_servers import WRITER, DatabricksServer, LivyServer, gated
from tries import TaskStateStore, execute, run_try, state_in, task_context, xcoms_of

from airflow_recovery.errors import RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import recoverable
from airflow_recovery.task import operator_submission, outliving_job
from airflow_recovery.task.left_in_airflow import SUMMARY_KEY
from airflow_recovery.testing.patience import HANG_S, wait_until


@dataclass(frozen=True)
class Service:
    """A service, and how its operator says which program is run there with which arguments."""

    module: str
    operator: str
    server: Callable[[], Any]
    connection: str
    says: Callable[[Any, str, list[str]], dict[str, Any]]

    @property
    def is_googles(self) -> bool:
        return self.connection == "GOOGLE_CLOUD_DEFAULT"

    def operator_class(self) -> Any:
        provider = google_provider()
        if self.is_googles and provider is not None:
            use_google_provider(provider)
        pytest.importorskip(self.module, reason="the provider is not installed")
        return getattr(import_module(self.module), self.operator)


LIVY = Service(
    "airflow.providers.apache.livy.operators.livy",
    "LivyOperator",
    LivyServer,
    "LIVY_DEFAULT",
    lambda _, file, args: {"file": file, "args": args, "polling_interval": 0.05},
)
DATABRICKS = Service(
    "airflow.providers.databricks.operators.databricks",
    "DatabricksSubmitRunOperator",
    DatabricksServer,
    "DATABRICKS_DEFAULT",
    lambda _, file, args: {
        "spark_python_task": {"python_file": file, "parameters": args},
        "new_cluster": {"spark_version": "15.4.x-scala2.12", "num_workers": 1, "node_type_id": "m5.large"},
        "polling_period_seconds": 0.05,
    },
)
EMR = "airflow.providers.amazon.aws.operators.emr"
STEPS = Service(
    EMR,
    "EmrAddStepsOperator",
    EmrServer,
    "AWS_DEFAULT",
    lambda server, file, args: {
        "job_flow_id": server.flow,
        "steps": [{"Name": "n", "HadoopJarStep": {"Jar": "command-runner.jar", "Args": ["spark-submit", file, *args]}}],
        "wait_for_completion": True,
        "waiter_delay": 1,
    },
)
SERVERLESS = Service(
    EMR,
    "EmrServerlessStartJobOperator",
    EmrServer,
    "AWS_DEFAULT",
    lambda server, file, args: {
        "application_id": server.application,
        "execution_role_arn": "arn:aws:iam::123456789012:role/emr",
        "job_driver": {"sparkSubmit": {"entryPoint": file, "entryPointArguments": args}},
        "waiter_delay": 1,
    },
)
DATAPROC = "airflow.providers.google.cloud.operators.dataproc"
JOB = Service(
    DATAPROC,
    "DataprocSubmitJobOperator",
    lambda: DataprocServer(Path(mkdtemp())),
    "GOOGLE_CLOUD_DEFAULT",
    lambda _, file, args: {
        "job": {"placement": {"cluster_name": "c"}, "pyspark_job": {"main_python_file_uri": file, "args": args}},
        "region": REGION,
        "polling_interval_seconds": 1,
    },
)
BATCH = Service(
    DATAPROC,
    "DataprocCreateBatchOperator",
    JOB.server,
    "GOOGLE_CLOUD_DEFAULT",
    lambda _, file, args: {
        "batch": {"pyspark_batch": {"main_python_file_uri": file, "args": args}},
        "batch_id_prefix": "mine",
        "region": REGION,
        "polling_interval_seconds": 1,
    },
)


class Submitter:
    """One DAG's task on a running server. ``store``: the task's own state store, which outlives its tries."""

    def __init__(self, service: Service, server: Any, folder: Path) -> None:
        self.service, self.server, self.folder = service, server, folder
        self.store_file = folder / "task_state.json"

    def task(self, program: str = WRITER, *arguments: str, **given: Any) -> Any:
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            said = self.service.says(self.server, program, [*arguments, "--out", "{output:out}"])
            return recoverable(self.service.operator_class())(task_id="t", outputs=["out"], **said, **given)

    def context(self, try_number: int = 1) -> Any:
        context = task_context("t", try_number=try_number)
        context["task_state_store"] = StoreInFile(self.store_file)
        return context

    def run(self, task: Any, try_number: int = 1) -> dict[str, Any]:
        return run_try(task, self.context(try_number))

    def left(self, task: Any, try_number: int = 1) -> dict[str, Any]:
        """What a try leaves in Airflow, but for what recovery did."""
        left = xcoms_of(task.prepare_for_execution(), self.context(try_number))
        return {key: value for key, value in left.items() if key != SUMMARY_KEY}

    def lose_worker(self, task: Any) -> None:
        """A try in a process of its own, which is gone as soon as the job is submitted and its id is kept."""
        if self.service.is_googles:
            pytest.skip(
                "gRPC serves in this process, which must not fork then: in `tests/integration` a task is killed"
            )
        made = task.prepare_for_execution()
        child = os.fork()
        if child == 0:
            try:
                task.operator_class.poll_until_complete = lambda *_: os._exit(9)
                execute(made, self.context())
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 9

    def attempt(self, number: int) -> Any:
        return state_in(self.folder, OPERATORS_GROUP, "t").of("t").attempts[number]


class StoreInFile(TaskStateStore):
    """As Airflow's: another process reads what was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(json.loads(path.read_text()) if path.exists() else {})
        self._path = path

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        super().set(key, value, retention=retention)
        self._path.write_text(json.dumps(self))


@pytest.fixture(
    params=[
        pytest.param(LIVY, id="livy"),
        pytest.param(DATABRICKS, id="databricks"),
        pytest.param(STEPS, id="steps", marks=pytest.mark.drill),
        pytest.param(SERVERLESS, id="serverless", marks=pytest.mark.drill),
        pytest.param(JOB, id="dataproc-job", marks=pytest.mark.drill),
        pytest.param(BATCH, id="dataproc-batch", marks=pytest.mark.drill),
    ]
)
def submitter(request: pytest.FixtureRequest, recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submitter]:
    service: Service = request.param
    service.operator_class()
    monkeypatch.setattr(outliving_job, "ASK_EVERY_S", 0)
    with service.server() as server:
        monkeypatch.setenv(f"AIRFLOW_CONN_{service.connection}", server.connection())
        for name, value in server.environment().items() if service.is_googles else ():
            monkeypatch.setenv(name, value)
        yield Submitter(service, server, recovery)


def wait_for(path: Path) -> None:
    wait_until(path.exists, str(path))


def test_a_job_writes_to_the_place_of_its_attempt_and_is_kept(submitter: Submitter) -> None:
    task = submitter.task()
    made = submitter.run(task)
    location = made["results"]["t.out"]["location"]
    assert (Path(location.removeprefix("file://")) / "part-0").read_text() == "rows"
    assert submitter.run(task, 2)["decision"] == "kept"
    assert len(submitter.server.jobs) == 1


def test_a_job_that_fails_ends_its_attempt_and_the_next_one_has_its_own_place(submitter: Submitter) -> None:
    with pytest.raises(RegionFailed, match="t@1: the application failed: "):
        submitter.run(submitter.task(WRITER, "--fail-after-writing"))
    assert submitter.run(submitter.task(), 2)["attempt"] == 2
    assert (submitter.attempt(1).is_finished, submitter.attempt(2).is_finished) == (False, True)


@pytest.mark.parametrize("submitter", [pytest.param(DATABRICKS, id="databricks")], indirect=True)
@pytest.mark.parametrize("given", [{"json": {"idempotency_token": "night"}}, {"idempotency_token": "night"}])
def test_a_token_is_another_one_in_each_attempt_wherever_it_is_given(submitter: Submitter, given: Any) -> None:
    """With the first attempt's token, Databricks answers with the run that has failed."""
    with pytest.raises(RegionFailed, match="t@1: the application failed: "):
        submitter.run(submitter.task(WRITER, "--fail-after-writing", **given))
    assert submitter.run(submitter.task(**given), 2)["attempt"] == 2
    assert len(submitter.server.jobs) == 2


def test_a_kill_ends_the_job(submitter: Submitter) -> None:
    task = submitter.task(gated(submitter.folder)).prepare_for_execution()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            execute(task, submitter.context())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(submitter.folder / "started")
    (job,) = submitter.server.jobs.values()
    while not any(request.startswith("GET") for request in submitter.server.requests):  # it is asked for by its id
        thread.join(0.02)
        assert thread.is_alive(), errors
    task.on_kill()
    thread.join(HANG_S)
    assert (job.is_ended_by_request, job.code) == (True, -9)
    assert len(errors) == 1
    assert submitter.attempt(1).has_outcome


def test_a_job_that_outlives_its_worker_is_waited_for_and_finished_by_the_next_try(submitter: Submitter) -> None:
    task = submitter.task(gated(submitter.folder))
    submitter.lose_worker(task)
    assert not submitter.attempt(1).has_outcome
    threading.Timer(1.0, (submitter.folder / "go").touch).start()
    assert submitter.run(task, 2)["attempt"] == 1
    assert len(submitter.server.jobs) == 1
    assert submitter.attempt(1).is_finished


@pytest.mark.slow
def test_fault_192_the_ids_and_links_of_a_job_are_left_again_also_of_one_that_was_found_again(
    submitter: Submitter,
) -> None:
    task = submitter.task(gated(submitter.folder))
    submitter.lose_worker(task)
    (submitter.folder / "go").touch()
    left = submitter.left(task, 2)
    assert left == submitter.left(task, 3)
    assert len(submitter.server.jobs) == 1

    ran = submitter.left(submitter.task())
    assert submitter.attempt(2).is_finished
    assert ran.keys() == left.keys()
    assert any(value is not None for value in ran.values())
    assert submitter.left(submitter.task(), 2) == ran


def test_control_without_its_name_the_job_of_a_lost_worker_is_started_again(
    submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submitter.task()
    monkeypatch.setattr(operator_submission, "is_resumable", lambda operator_class: False)
    submitter.lose_worker(task)
    assert submitter.run(task, 2)["attempt"] == 2
    assert len(submitter.server.jobs) == 2


def test_a_job_of_other_code_is_not_waited_for_and_is_ended(submitter: Submitter) -> None:
    submitter.lose_worker(submitter.task(gated(submitter.folder)))
    wait_for(submitter.folder / "started")
    (job,) = submitter.server.jobs.values()
    assert submitter.run(submitter.task(), 2)["attempt"] == 2
    assert (job.is_ended_by_request, job.code) == (True, -9)


@pytest.mark.slow
def test_a_job_that_has_failed_since_is_made_again(submitter: Submitter) -> None:
    task = submitter.task(gated(submitter.folder))
    submitter.lose_worker(task)
    wait_for(submitter.folder / "started")
    (job,) = submitter.server.jobs.values()
    job.process.terminate()
    job.process.wait(HANG_S)
    (submitter.folder / "go").touch()
    assert submitter.run(task, 2)["attempt"] == 2
    assert (submitter.attempt(1).has_outcome, submitter.attempt(1).is_finished) == (True, False)


@pytest.mark.parametrize(
    ("service", "given", "code"),
    [
        (LIVY, {"deferrable": True}, "operator-defers"),
        (LIVY, {"polling_interval": 0}, "operator-never-polls"),
        (DATABRICKS, {"deferrable": True}, "operator-defers"),
        (DATABRICKS, {"wait_for_termination": False}, "operator-does-not-wait"),
    ],
)
def test_one_that_does_not_wait_is_refused(service: Service, given: dict[str, Any], code: str) -> None:
    said_of = {**service.says(None, WRITER, ["{output:out}"]), **given}
    with DAG("d", schedule=None), fails_with(code):
        recoverable(service.operator_class())(task_id="t", outputs=["out"], **said_of)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("service", "given", "said"),
    [
        (JOB, {"deferrable": True}, "t: expected deferrable=False of a recoverable DataprocSubmitJobOperator"),
        (JOB, {"asynchronous": True}, "found asynchronous=True: .*while the job still writes"),
        (
            JOB,
            {"job": {"reference": {"job_id": "j"}, "pyspark_job": {"args": ["{output:out}"]}}},
            "t: expected a DataprocSubmitJobOperator that leaves its job's name to the service, found job_id='j'",
        ),
        (BATCH, {"batch_id": "b", "batch_id_prefix": None}, "found batch_id='b': a second attempt would be refused"),
    ],
)
def test_one_of_googles_that_does_not_wait_or_names_its_job_is_refused(
    service: Service, given: dict[str, Any], said: str
) -> None:
    test_one_that_does_not_wait_is_refused(service, given, said)
