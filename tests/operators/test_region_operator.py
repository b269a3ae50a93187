"""One region's task: what it submits, in which mode, and how it is killed."""

from __future__ import annotations

import json
import logging
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from job_tasks import GROUP, Drivers, job_dag
from tries import journal_in, run_try, state_in, submissions, task_context

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.driver.store_sdks import sdk_archives
from airflow_recovery.driver.submit import APPLICATION
from airflow_recovery.errors import RegionFailed
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.model.records import Claim, RunIdentity
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.store.opening import open_store
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.task.region_session import RegionSession
from airflow_recovery.task.region_submission import RegionSubmission
from airflow_recovery.task.spark_connection import region_application
from airflow_recovery.task.spark_submission import SparkSubmission
from airflow_recovery.testing import CountingStore, Verb

IDENTITY = RunIdentity("d", "k", GROUP)
RUN_PROGRAM = RegionProgram.run
FACTS = RunFacts("2024-01-02T00:00:00+00:00", None, None, {}, {"lake": "/lake"})
ATTEMPT = ClaimedAttempt(Claim("right", 3, "w", "h", (), "r", 1, "i", "tag", "now"), {}, (), "f")


def tasks(**given: Any) -> dict[str, SparkRegionOperator]:
    """The regions of the diamond, by name."""
    dag = job_dag("dagjobs.shapes:diamond", **given)
    return {task.region: task for task in dag.tasks if isinstance(task, SparkRegionOperator)}


# --- tries ------------------------------------------------------------------------------------------------------------


def test_a_region_runs_once_and_is_kept_afterwards(recovery: Path, drivers: Drivers) -> None:
    aside = tasks()["aside"]
    assert run_try(aside) == {
        "region": "aside",
        "decision": "ran",
        "attempt": 1,
        "why": "ran",
        "files_checked": 0,
        "spark_seconds": 2.0,
        "spark_seconds_saved": 0.0,
        "results": {
            "aside": {"location": drivers.specs[0].location + "/aside", "rows": 0, "files": 0, "bytes": 0},
        },
    }
    again = run_try(aside, try_number=2)
    assert (again["decision"], again["spark_seconds_saved"], len(drivers.specs)) == ("kept", 2.0, 1)
    json.dumps(again)  # it becomes an XCom


@pytest.mark.slow
def test_code_is_packed_only_if_the_region_runs(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[str] = []

    def counted(ref: str, packages: Any) -> Path:
        packed.append(ref)
        return build_archive(ref, packages)

    def run(program: RegionProgram, attempt: ClaimedAttempt, launch: Any) -> Any:
        def launch_both(spec: Any, folder: Path) -> None:
            launch(spec, folder)
            drivers.run(spec, folder)

        return RUN_PROGRAM(program, attempt, launch_both)

    monkeypatch.setattr("airflow_recovery.task.region_submission.build_archive", counted)
    monkeypatch.setattr(RegionSubmission, "submit", lambda *given: None)
    monkeypatch.setattr(RegionProgram, "run", run)
    aside = tasks()["aside"]
    assert [run_try(aside, try_number=number)["decision"] for number in (1, 2)] == ["ran", "kept"]
    assert packed == ["dagjobs.shapes:diamond"]


def test_changed_parameters_run_again(recovery: Path, drivers: Drivers) -> None:
    (recovery / "lake").mkdir()
    (recovery / "lake" / "a.csv").write_text("1")
    context = {"params": {"lake": str(recovery / "lake")}}
    cleaned = tasks()["cleaned"]
    run_try(cleaned, **context)
    assert run_try(cleaned, **context, try_number=2)["decision"] == "kept"
    assert run_try(cleaned, params={"lake": f"{recovery}/lake/", "unused": 1}, try_number=3)["decision"] == "kept"
    (recovery / "lake" / "a.csv").write_text("2")
    assert run_try(cleaned, **context, try_number=4)["attempt"] == 2


def test_an_inner_region_costs_the_journal_three_puts_a_listing_and_a_get_an_input(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Task and driver together. The receipt saves the request for the outcome."""
    opened: list[CountingStore] = []

    def open_counting(uri: str, **_: Any) -> CountingStore:
        opened.append(CountingStore(open_store(uri)))
        return opened[-1]

    lake = recovery / "lake"
    lake.mkdir()
    (lake / "a.csv").write_text("1")
    group = tasks()
    run_try(group["cleaned"], params={"lake": str(lake)})
    monkeypatch.setattr("airflow_recovery.hooks.stores.open_store", open_counting)
    monkeypatch.setattr("airflow_recovery.store.opening.open_store", open_counting)
    run_try(group["left"], params={"lake": str(lake)})

    truth = [
        (verb, key.rpartition(".")[2])
        for store in opened
        for verb, key in store.requests
        if store.base_uri.endswith("/journal") and not key.startswith("_streams")
    ]
    puts = [kind for verb, kind in truth if verb is Verb.PUT_IF_ABSENT]
    components, *records = puts
    assert "/fingerprint/" in components
    assert records == ["claim", "outcome"]
    # The input's, and the key of digests: this run has params.
    assert [kind for verb, kind in truth if verb is Verb.GET] == ["outcome", "_key"]
    # The second listing is the release check, beside Spark's start.
    assert [verb for verb, _ in truth].count(Verb.LIST) == 2
    assert len(truth) == 7


@pytest.mark.slow
def test_own_retry_works_without_any_clear_client(recovery: Path, drivers: Drivers) -> None:
    aside = tasks()["aside"]

    def die() -> None:
        raise RuntimeError("killed")

    drivers.meanwhile = die
    with pytest.raises(RegionFailed, match="ended without an outcome and said nothing"):
        run_try(aside)
    assert run_try(aside, try_number=2)["attempt"] == 2
    attempts = state_in(recovery, GROUP, "aside").of("aside").attempts
    assert {n: each.is_finished for n, each in attempts.items()} == {1: False, 2: True}


def test_recompute_runs_once_an_epoch(recovery: Path, drivers: Drivers) -> None:
    aside = tasks()["aside"]
    run_try(aside)
    conf = {"recovery": {"mode": "recompute", "epoch": 2}}
    assert run_try(aside, conf=conf)["attempt"] == 2
    assert run_try(aside, conf=conf, try_number=2)["decision"] == "kept"
    wrong = {"recovery": {"mode": "recompute", "epohc": 2}}
    with fails_with("conf-recovery-unfit", by=AirflowFailException):
        run_try(aside, conf=wrong)


def test_fault_66_marked_by_hand_a_consumer_still_checks(recovery: Path, drivers: Drivers) -> None:
    """`cleaned` was marked a success and never ran: its consumer finds no finish, whatever Airflow says."""
    with fails_with("no-way-to-clear", by=AirflowFailException, caller="left", lost={"cleaned": "NEVER_FINISHED"}):
        run_try(tasks()["left"])
    assert drivers.specs == []


# --- what is submitted ------------------------------------------------------------------------------------------------


def test_the_command_line(recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBMIT_ONLY", "1")
    right = tasks(conf={"spark.x": "{{ ds }}", "spark.executor.memory": "1g"}, py_files="mine.zip", files="my.csv")[
        "aside"
    ]
    with fails_with("application-without-outcome"):
        run_try(right)

    (told,) = submissions(submitted)
    options = dict(zip(told["options"], told["options"][1:], strict=False))
    conf = [each for key, each in zip(told["options"], told["options"][1:], strict=False) if key == "--conf"]
    assert options["--master"] == "local[1]"
    assert "spark.x=2024-01-02" in conf
    assert "spark.ui.showConsoleProgress=false" in conf
    assert options["--name"] == "d.aside@1"
    assert (options["--files"], told["application"]) == ("my.csv", APPLICATION)
    mine, ours = options["--py-files"].split(",")
    assert mine == "mine.zip"
    assert "dagjobs/shapes.py" in zipfile.ZipFile(ours).namelist()
    assert not any(name.startswith("airflow_recovery/operators") for name in zipfile.ZipFile(ours).namelist())
    assert not Path(told["arguments"][0]).exists()  # the spec went with the try


def test_what_a_vertex_asks_for_wins_over_the_groups_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(MODES["local"][0]))
    right = tasks(conf={"spark.executor.memory": "1g"})["right"]
    told: list[Any] = []
    monkeypatch.setattr(SparkSubmission, "submit", lambda self, job, name: told.append(job.conf))
    launch(region_submission(right), monkeypatch)
    assert told[0]["spark.executor.memory"] == "3g"


def region_submission(task: SparkRegionOperator) -> RegionSubmission:
    job = _job()
    program = RegionProgram(
        job=job,
        ref="dagjobs.shapes:diamond",
        region=plan_job(job, "dagjobs.shapes:diamond", FACTS).regions["right"],
        facts=FACTS,
        identity=IDENTITY,
        stores=open_stores(RecoverySettings("/journal", "/results")),
        log=logging.getLogger("tests"),
    )
    context: Any = task_context()
    application = region_application(program, task, BaseHook.get_connection(task._conn_id), context)
    assert isinstance(application, RegionSubmission)
    return application


def launch(application: RegionSubmission, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The task's environment afterwards."""
    environment = {"PATH": ""}
    monkeypatch.setattr("airflow_recovery.task.region_submission.os.environ", environment)
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: None)
    application._launch(application.new_job(ATTEMPT), spec(), Path("/x"))
    return environment


def _job() -> Any:
    from airflow_recovery.job import load_job

    return load_job("dagjobs.shapes:diamond")


def spec() -> Any:
    from airflow_recovery.store.scheme import StoreSpec

    store = StoreSpec("s3://b/p", "http://127.0.0.1:9", "eu-west-1")
    return SimpleNamespace(
        job="dagjobs.shapes:diamond",
        results=store,
        journal=store,
        identity=IDENTITY,
        region="right",
        attempt=3,
        tag="tag",
        to_json=str,
    )


# --- modes ------------------------------------------------------------------------------------------------------------

MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "local": ({"conn_type": "spark", "host": "local[1]"}, {}),
    "standalone client": ({"conn_type": "spark", "host": "spark://m", "port": 7077}, {}),
    "standalone cluster": (
        {"conn_type": "spark", "host": "spark://m", "port": 7077, "extra": {"deploy-mode": "cluster"}},
        {},
    ),
    "yarn client": ({"conn_type": "spark", "host": "yarn"}, {"deploy_mode": "client"}),
    "yarn cluster": (
        {
            "conn_type": "spark",
            "host": "yarn",
            "extra": {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://rm:8088"},
        },
        {"yarn_track_via_rm_api": True},
    ),
    "yarn cluster, not durable": ({"conn_type": "yarn", "host": ""}, {"deploy_mode": "cluster", "durable": False}),
}
RESUMABLE = {"standalone cluster": "driver-20240102", "yarn cluster": "application_1_0001"}


class FakeSubmission:
    """spark-submit and the cluster's status, as the provider's hook sees them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.submitted: list[dict[str, Any]] = []
        self.killed: list[str] = []
        me = self

        def submit(self: SparkSubmitHook, application: str = "", **given: Any) -> str | None:
            me.submitted.append({"application": application, "conf": dict(self._conf), "files": self._files, **given})
            self._driver_id, self._yarn_application_id = "driver-20240102", "application_1_0001"
            return self._driver_id

        def finish(self: SparkSubmitHook, *_: Any) -> None:
            self._driver_status = "FINISHED"

        monkeypatch.setattr(SparkSubmitHook, "submit", submit)
        monkeypatch.setattr(SparkSubmitHook, "_start_driver_status_tracking", finish)
        monkeypatch.setattr(SparkSubmitHook, "_start_yarn_application_status_tracking", finish)
        monkeypatch.setattr(SparkSubmitHook, "on_kill", lambda self: me.killed.append("hook"))
        monkeypatch.setattr(SparkSubmitHook, "_kill_yarn_application", lambda self, app: me.killed.append(app))
        # A job of an old attempt that has succeeded: with the old key it would be taken for this one's.
        monkeypatch.setattr(SparkSubmitOperator, "get_job_status", lambda self, external_id, context: "FINISHED")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(MODES[request.param][0]))
    return str(request.param)


def submitting(mode: str, **given: Any) -> Any:
    return tasks(conn_id="cluster", **MODES[mode][1], **given)["right"]


def submitted_as(mode: str, name: str, context: Any, **given: Any) -> SparkSubmission:
    """A plain submission that has ended."""
    unused: Any = None
    task = submitting(mode, **given)
    task.application = "app.py"
    submission = SparkSubmission(task, context, unused, unused)
    submission.stop()  # nothing was submitted
    submission.submit(submission.new_job(ATTEMPT), name)
    return submission


def test_every_mode_submits_with_the_guard_and_a_key_an_attempt(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, context = FakeSubmission(monkeypatch), task_context()
    old = {"spark_job_id": "old", "spark_job_id.2": "older"}
    context["task_state_store"].update(old)

    submitted_as(mode, "3", context)

    (told,) = fake.submitted
    assert (told["application"], told["preexec_fn"]) == ("app.py", die_with_parent)
    kept = {key: value for key, value in context["task_state_store"].items() if key not in old}
    assert kept == ({"spark_job_id.3": RESUMABLE[mode]} if mode in RESUMABLE else {})


def test_control_with_the_providers_key_a_clear_computes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(MODES["standalone cluster"][0]))
    fake, context = FakeSubmission(monkeypatch), task_context()
    task = submitting("standalone cluster").prepare_for_execution()
    context["task_state_store"]["spark_job_id"] = "old"
    SparkSubmitOperator.execute(task, context)
    assert fake.submitted == []


def test_every_mode_is_killed_as_the_provider_kills_it(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSubmission(monkeypatch)
    submission = submitted_as(mode, "1", task_context())
    assert fake.killed == []
    submission.stop()
    assert fake.killed == (["application_1_0001"] if mode.startswith("yarn cluster") else ["hook"])


def test_the_spec_and_the_sdk_are_shipped_in_cluster_modes_alone(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeSubmission(monkeypatch)
    launch(region_submission(submitting(mode, files="my.csv")), monkeypatch)
    shipped = f",/x/tag.json,{sdk_archives('s3://b')[0]}" if "cluster" in mode else ""
    assert fake.submitted[0]["files"] == f"my.csv{shipped}"


def test_yarn_starts_no_second_driver_of_an_attempt(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, name = FakeSubmission(monkeypatch), "spark.yarn.maxAppAttempts"
    submitted_as(mode, "1", task_context())
    submitted_as(mode, "2", task_context(), conf={name: "3"})
    assert [told["conf"].get(name) for told in fake.submitted] == ["1" if "yarn cluster" in mode else None, "3"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "expected yarn_track_via_rm_api=True on YARN in deploy mode cluster, found False"),
        ({"yarn_track_via_rm_api": True}, "connection's `extra` to set `yarn_resourcemanager_webapp_address`"),
    ],
)
def test_what_the_provider_would_not_submit_to_yarn_claims_no_attempt(
    recovery: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: str
) -> None:
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    with pytest.raises(AirflowFailException, match=said):
        run_try(tasks(conn_id="cluster", **given)["aside"])
    assert not state_in(recovery, GROUP, "aside").of("aside").attempts


def test_a_standalone_cluster_takes_no_python_application_and_no_attempt_is_claimed(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(MODES["standalone cluster"][0]))
    with fails_with("standalone-cluster-mode", by=AirflowFailException):
        run_try(tasks(conn_id="cluster")["aside"])
    assert not state_in(recovery, GROUP, "aside").of("aside").attempts


@pytest.mark.parametrize("application", ["app.jar", "s3a://apps/app-1.0.jar"])
def test_a_standalone_cluster_takes_a_jar(mode: str, application: str) -> None:
    unused: Any = None
    task = submitting(mode)
    task.application = application
    SparkSubmission(task, task_context(), unused, unused).before_claim(unused)


def test_a_driver_on_the_cluster_is_given_no_python_over_the_clusters_own(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSubmission(monkeypatch)
    environment = launch(region_submission(submitting(mode)), monkeypatch)
    assert ("PYSPARK_DRIVER_PYTHON" in environment) is ("cluster" not in mode)


def test_openlineages_settings_reach_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider adds them to the operator's conf before it makes the hook: ours must not be made earlier."""
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(MODES["local"][0]))
    operators = "airflow.providers.apache.spark.operators.spark_submit"
    for name in ("parent_job", "transport"):
        monkeypatch.setattr(
            f"{operators}.inject_{name}_information_into_spark_properties",
            lambda conf, context, name=name: {**conf, f"spark.openlineage.{name}": "x"},
        )
    fake = FakeSubmission(monkeypatch)
    given = {"openlineage_inject_parent_job_info": True, "openlineage_inject_transport_info": True}
    submitted_as("local", "1", task_context(), **given)
    assert {"spark.openlineage.parent_job", "spark.openlineage.transport"} <= set(fake.submitted[0]["conf"])


# --- connections ------------------------------------------------------------------------------------------------------


def test_a_connect_connection_runs_over_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {
        "conn_type": "spark_connect",
        "host": "sc://server",
        "port": 15002,
        "password": "t0ken",
        "login": "me",
    }
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    told: dict[str, Any] = {}
    monkeypatch.setattr(
        "airflow_recovery.driver.connect.run_over_connect", lambda url, spec, **given: told.update(given, url=url)
    )
    task = tasks(conn_id="cluster", conf={"spark.sql.shuffle.partitions": 4})["aside"]
    stores = open_stores(RecoverySettings("/journal", "/results"))
    program: Any = SimpleNamespace(
        job=_job(), stores=stores, run=lambda attempt, launch: launch(spec(), Path("/x")), identity=IDENTITY
    )
    context: Any = task_context()
    application = region_application(program, task, BaseHook.get_connection("cluster"), context)
    assert isinstance(application, RegionSession)
    application.run(ATTEMPT)
    assert told["url"] == "sc://server:15002/;user_id=me;token=t0ken"
    assert (told["user_id"], told["conf"]) == ("me", {"spark.sql.shuffle.partitions": "4"})
    # The vertices are called in the task's process, which knows this secret.
    assert told["mask"]("it said: t0ken, and fs.s3a.secret.key=abc") == "it said: ***, and fs.s3a.secret.key=***"


def test_another_kind_of_connection_is_refused(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps({"conn_type": "postgres", "host": "db"}))
    with fails_with("connection-type-unfit", by=AirflowFailException, connection="cluster"):
        run_try(tasks(conn_id="cluster")["aside"])
    assert journal_in(recovery, GROUP).list(["aside"]).state.of("aside").attempts == {}


# --- the process ------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr("airflow_recovery.task.run_context.die_with_parent", lambda: found.append("asked"))
    return found


def test_a_supervised_task_dies_with_its_supervisor(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import CommsDecoder

    from airflow_recovery.task.run_context import die_with_supervisor

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(socket=None), raising=False)
    die_with_supervisor()
    assert asked == ["asked"]


def test_a_task_of_dag_test_does_not(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

    from airflow_recovery.task.run_context import die_with_supervisor

    die_with_supervisor()
    comms = InProcessSupervisorComms(supervisor=None)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    die_with_supervisor()
    assert asked == []


def test_on_kill_before_and_while_an_application_runs() -> None:
    stopped: list[str] = []
    task = tasks()["aside"].prepare_for_execution()
    task.on_kill()
    is_left = False
    application: Any = SimpleNamespace(stop=lambda: stopped.append("stopped"), leave=lambda: is_left)
    task._application = application
    task.on_kill()
    assert stopped == ["stopped"]
    is_left = True
    task.on_kill()
    assert stopped == ["stopped"]


def test_a_try_leaves_nothing_on_the_dags_own_task(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dag.test()` runs all tries of a task from one object."""
    monkeypatch.setenv("SUBMIT_ONLY", "1")
    task = tasks(conf={"a": "b"}, py_files="mine.zip")["aside"]
    names = ("conf", "py_files", "files", "application", "application_args", "name", "external_id_key", "_hook")
    before = {name: getattr(task, name) for name in names}
    with pytest.raises(RegionFailed):
        run_try(task)
    assert {name: getattr(task, name) for name in names} == before
    assert task._application is None
    assert isinstance(task, SubmittingOperator)
