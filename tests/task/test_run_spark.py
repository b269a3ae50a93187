"""A run's own Spark, with real Spark Connect servers: who starts it, who may use it, and what dies with it."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow.parquet as parquet
import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG
from runtime_specs import outcome_of, region_spec, troubled
from tries import run_try, task_context

from airflow_recovery.driver.connect_server import ServerAddress
from airflow_recovery.driver.exit_report import read_failure
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.errors import ConfigurationError, DriverLost, OutOfMemory
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import AttemptState, RunIdentity
from airflow_recovery.operators import RecoverableSparkSubmitOperator, StopSparkOperator
from airflow_recovery.store import open_store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.task.region_program import region_failed
from airflow_recovery.task.region_session import RegionSession
from airflow_recovery.task.run_spark import OwnServer, RunSpark, StartServer
from airflow_recovery.testing.patience import HANG_S, NEVER_S, wait_until
from airflow_recovery.testing.spark_cluster import StandaloneCluster

LOG = logging.getLogger("tests.run_spark")
RUN = RunIdentity("d", "date-2024-01-01T000000Z", "g")
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside_connect: None) -> Iterator[None]:
    """A worker of its own, which knows the connection ``own``. No server outlives the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_OWN", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    yield
    for keeper in keepers():
        keeper.kill()
    wait_until(lambda: not servers(), "the end of the server")


def keepers() -> list[psutil.Process]:
    mine = os.environ["TMPDIR"]
    found = psutil.process_iter(["cmdline", "environ"])
    return [
        process
        for process in found
        if "airflow_recovery.driver.server_keeper" in (process.info["cmdline"] or ())
        and (process.info["environ"] or {}).get("TMPDIR") == mine
    ]


def servers() -> list[psutil.Process]:
    """The JVMs that have been started here, and live."""
    mine = f"-Djava.io.tmpdir={os.environ['TMPDIR']}/"
    found = psutil.process_iter(["cmdline", "status"])
    return [process for process in found if any(word.startswith(mine) for word in process.info["cmdline"] or ())]


def stores(folder: Path) -> Any:
    spec = StoreSpec(f"file://{folder}/journal")
    return SimpleNamespace(journal=open_store(spec.uri), journal_spec=spec, results_spec=spec, results=None)


def run_spark(folder: Path, identity: RunIdentity = RUN, secret: str = "") -> RunSpark:
    """The run's own Spark, as another task sees it."""
    return RunSpark(stores(folder), identity, secret=secret, log=LOG)


def starting(idle_s: float = NEVER_S, conf: Mapping[str, str] | None = None) -> StartServer:
    operator = SparkSubmitOperator(task_id="start", conn_id="own", conf={**CONF, **(conf or {})})
    return StartServer(operator, "d.g", "worker-1", "127.0.0.1", idle_s, NEVER_S)


def application(folder: Path, spec: RegionSpec) -> RegionSession:
    program: Any = SimpleNamespace(job=SimpleNamespace(packages=()), stores=stores(folder), identity=spec.identity)
    return RegionSession(program, OwnServer(run_spark(folder), starting()), user_id="me", conf={}, log=LOG)


class Running:
    """A region's attempt in a thread, until its UDF waits for ``go``."""

    def __init__(self, folder: Path, spec: RegionSpec, ready: Path) -> None:
        self.raised: list[Exception] = []
        self._thread = threading.Thread(target=self._run, args=(folder, spec), daemon=True)
        self._thread.start()
        wait_until(
            ready.exists,
            "the UDF to begin",
            describe=lambda: str(self.raised),
            is_over=lambda: not self._thread.is_alive(),
        )

    def _run(self, folder: Path, spec: RegionSpec) -> None:
        try:
            application(folder, spec)._launch(spec, folder)
        except Exception as error:
            self.raised.append(error)

    def wait(self) -> None:
        self._thread.join(HANG_S)
        assert not self._thread.is_alive()


def state_of(spec: RegionSpec) -> AttemptState | None:
    outcome = outcome_of(spec)
    return None if outcome is None else outcome.state


def test_fault_146_the_regions_of_a_run_share_one_server_and_the_teardown_waits_for_them(tmp_path: Path) -> None:
    address = run_spark(tmp_path).find_or_start(starting())
    assert address == run_spark(tmp_path).find()
    assert address == run_spark(tmp_path).find_or_start(starting())  # a setup task that is cleared
    assert run_spark(tmp_path, secret="a password that the starter had not").find() is None
    assert replace(address, token="guessed").is_gone()
    assert not address.lets_strangers_in()
    (server,) = servers()
    assert not any(address.token in word for word in server.cmdline())
    assert address.token not in repr(address)

    for attempt in (1, 2):
        spec = region_spec(tmp_path, *troubled("beat", ready=tmp_path / "r", go=__file__), attempt=attempt)
        application(tmp_path, spec)._launch(spec, tmp_path)
        assert state_of(spec) is AttemptState.FINISHED
    assert servers() == [server]

    # The teardown, while a region that was cleared again is running.
    ready, go = tmp_path / "ready", tmp_path / "go"
    spec = region_spec(tmp_path, *troubled("beat", ready=ready, go=go), attempt=3)
    running = Running(tmp_path, spec, ready)
    end = threading.Thread(target=run_spark(tmp_path).end)
    end.start()
    wait_until(
        (tmp_path / "journal" / JournalLayout(RUN).servers / "00000002").exists, "the teardown to ask for the end"
    )
    (keeper,) = keepers()
    woken = keeper.num_ctx_switches().voluntary
    wait_until(
        lambda: keeper.num_ctx_switches().voluntary >= woken + 3, "three looks of the keeper"
    )  # it has looked since
    assert servers() == [server]
    go.touch()
    running.wait()
    assert state_of(spec) is AttemptState.FINISHED
    assert not running.raised
    end.join(HANG_S)
    assert not servers()
    assert run_spark(tmp_path).find() is None


def test_fault_142_a_server_is_killed_within_a_region_and_the_next_attempt_starts_another(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    first, second = (region_spec(tmp_path, *troubled("beat", ready=ready, go=go), attempt=n) for n in (1, 2))
    running = Running(tmp_path, first, ready)
    (server,) = servers()
    os.kill(server.pid, signal.SIGKILL)
    running.wait()  # not for the ten minutes of Spark's client
    failed = region_failed(first, read_failure(first), running.raised[0])
    assert isinstance(failed, DriverLost)
    assert "is gone: it ended by itself. Error code is: -9." in str(failed)
    assert outcome_of(first) is None

    go.touch()
    application(tmp_path, second)._launch(second, tmp_path)
    assert state_of(second) is AttemptState.FINISHED
    (keeper,) = keepers()
    os.kill(keeper.pid, signal.SIGKILL)
    wait_until(lambda: not servers(), "the end of the server")
    assert run_spark(tmp_path).find() is None
    run_spark(tmp_path).end()  # the teardown finds nothing to end
    assert run_spark(tmp_path).find() is None


@pytest.mark.drill
def test_fault_142_on_a_cluster_master_a_killed_server_gives_its_executors_back_and_the_next_one_has_them(
    tmp_path: Path, cluster: StandaloneCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole cluster is one server's: without the end of the first, the second would wait for cores for ever.

    Beside the other tests a local master's server is killed: the test above.
    """
    monkeypatch.setenv("AIRFLOW_CONN_OWN", json.dumps({"conn_type": "spark", "host": cluster.master_url}))
    monkeypatch.setattr(sys.modules[__name__], "CONF", {**CONF, "spark.executor.memory": "512m"})
    ready, go = tmp_path / "ready", tmp_path / "go"
    first, second = (region_spec(tmp_path, *troubled("beat", ready=ready, go=go), attempt=n) for n in (1, 2))
    running = Running(tmp_path, first, ready)  # its UDF has come to an executor: so has the job's code
    (server,) = servers()
    assert cluster.applications().count("d.g") == 1
    os.kill(server.pid, signal.SIGKILL)
    running.wait()
    assert isinstance(region_failed(first, read_failure(first), running.raised[0]), DriverLost)

    go.touch()
    application(tmp_path, second)._launch(second, tmp_path)
    assert state_of(second) is AttemptState.FINISHED
    assert cluster.applications().count("d.g") == 2
    run_spark(tmp_path).end()
    assert not servers()


def test_fault_143_memory_runs_out_in_the_server_and_the_region_fails_with_that(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    spec = region_spec(tmp_path, *troubled("beat", ready=ready, go=go))
    running = Running(tmp_path, spec, ready)
    fill_heap(run_spark(tmp_path).find())
    running.wait()
    failed = region_failed(spec, read_failure(spec), running.raised[0])
    assert isinstance(failed, OutOfMemory)
    assert "java.lang.OutOfMemoryError: Java heap space" in str(failed)
    assert not servers()


def fill_heap(address: ServerAddress | None) -> None:
    from airflow_recovery.driver.connect_session import limit_retries, open_session

    assert address is not None
    session = open_session(address.url, session_id="00112233-4455-6677-8899-aabbccddeeff", user_id="me")
    limit_retries(session, 1)
    with pytest.raises(Exception, match="UNAVAILABLE"):
        # A constant: the server computes it itself, while a region's tasks hold all of its cores.
        session.sql("SELECT size(sequence(1, 400000000))").collect()


def test_fault_145_two_tasks_that_want_it_at_once_keep_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(found: list[ServerAddress]) -> None:
        found.append(run_spark(tmp_path).find_or_start(starting()))

    def both() -> list[ServerAddress]:
        found: list[ServerAddress] = []
        threads = [threading.Thread(target=start, args=(found,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        return found

    one, other = both()
    assert one == other
    assert len(keepers()) == 1
    run_spark(tmp_path).end()

    monkeypatch.setattr(RunSpark, "_alone_on_this_worker", lambda self: nullcontext())
    one, other = both()
    assert one == other
    assert len(keepers()) == 1
    numbers = [path.name for path in (tmp_path / "journal" / JournalLayout(RUN).servers).iterdir()]
    assert sorted(numbers) == ["00000001", "00000001.end", "00000002", "00000003"]


APPLICATION = """
import pathlib, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("existing").getOrCreate()
source, target, ready, go = sys.argv[1:]
rows = spark.read.parquet(source) if source != "-" else spark.range(9)
if ready != "-":
    pathlib.Path(ready).touch()
    while not pathlib.Path(go).exists():
        spark.range(1).collect()
        time.sleep(0.1)
rows.selectExpr("id + 1 AS id").write.parquet(target)
spark.stop()
"""


def test_fault_142_existing_applications_share_one_server_and_recover_from_its_death(
    recovery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application, ready, go = tmp_path / "existing.py", tmp_path / "ready", tmp_path / "go"
    application.write_text(APPLICATION)
    common: dict[str, Any] = {"application": str(application), "outputs": ["out"], "spark": "per-run"}
    common |= {"conn_id": "own", "conf": CONF}
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        first = RecoverableSparkSubmitOperator(
            task_id="first", application_args=["-", "{output:out}", "-", "-"], **common
        )
        second = RecoverableSparkSubmitOperator(
            task_id="second",
            inputs={"in": first.result("out")},
            application_args=["{input:in}", "{output:out}", str(ready), str(go)],
            ignore_changes_in=[f"{tmp_path}/*"],
            **common,
        )
        stop = StopSparkOperator(task_id="stop", conn_id="own")

    def on_worker(task: Any, try_number: int = 1) -> dict[str, Any]:
        context = task_context(task.task_id, try_number=try_number)
        context["ti"].hostname = "127.0.0.1"
        return run_try(task, context) or {}

    assert on_worker(first)["decision"] == "ran"
    (server,) = servers()

    def kill_within() -> None:
        wait_until(ready.exists, "the application to begin")
        assert servers() == [server]
        os.kill(server.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_within)
    killer.start()
    with pytest.raises(DriverLost, match=r"is gone: it ended by itself\. Error code is: -9\."):
        on_worker(second)
    killer.join()
    go.touch()
    made = on_worker(second, 2)
    assert (made["decision"], made["attempt"]) == ("ran", 2)
    written = parquet.read_table(made["results"]["second.out"]["location"].removeprefix("file://"))
    assert sorted(written["id"].to_pylist()) == list(range(2, 11))
    gc.collect()  # each try of this process holds a connection, as its own process would
    on_worker(stop)
    wait_until(lambda: not keepers(), "the end of the keeper")


def test_a_server_that_does_not_come_up_fails_by_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(DriverLost, match=r"spark-submit ended with 1.*\n.*UnsatisfiedLinkError|Initial heap size|heap"):
        run_spark(tmp_path).find_or_start(starting(conf={"spark.driver.extraJavaOptions": "-Xms9999999g"}))
    assert not keepers()
    assert run_spark(tmp_path).find() is None


def test_deploy_mode_cluster_and_a_foreign_address_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"conn_type": "spark", "host": "spark://master", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_OWN", json.dumps(cluster))
    with pytest.raises(
        ConfigurationError, match=r"start: expected .*'client', found 'cluster' .*'own'.*leave spark= out"
    ):
        run_spark(tmp_path).find_or_start(starting())
    elsewhere = StartServer(starting().operator, "d.g", "worker-1", "203.0.113.7", 1.0, 1.0)
    with pytest.raises(ConfigurationError, match=r"expected '203\.0\.113\.7' to be an address of this worker"):
        run_spark(tmp_path).find_or_start(elsewhere)


def test_an_address_that_other_machines_do_not_reach_is_refused_where_workers_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OWN", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    several = StartServer(starting().operator, "d.g", "worker-1", "localhost", 1.0, 1.0, has_other_workers=True)
    with pytest.raises(ConfigurationError, match=r"found 'localhost', which is (127\.0\.0\.1|::1): on each machine"):
        run_spark(tmp_path).find_or_start(several)
    assert not keepers()


@pytest.mark.parametrize(("executor", "are_several"), [("LocalExecutor", False), ("CeleryExecutor", True)])
def test_the_executor_says_whether_workers_are_several(
    monkeypatch: pytest.MonkeyPatch, executor: str, are_several: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    context = {"ti": SimpleNamespace(hostname="worker-1")}
    settings = RecoverySettings("file:///journal", "file:///results")
    assert StartServer.of(starting().operator, context, "g", settings).has_other_workers is are_several
