"""Streaming regions in real Airflow: each a task and a Spark application, at the same time, with channels between them.

scoring   events ~> scores ~> table         one strategy a DAG
tight     events ~> table                   may lose five records
blocked   events ~> table                   waits for room for two seconds

What is lost is counted twice: by the channels' logs, and as what is missing among the rows of the result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from pipeline import AWS_CONNECTION, Pipeline, environment, is_gone
from streams_run import IDS, REGIONS, assert_account, started, untouched

from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import REGION, SECRET_KEY
from airflow_recovery.testing.spark_cluster import StandaloneCluster, standalone_cluster
from scripts.s3_proxy import Answer, S3Proxy, S3Request
from scripts.spark_drivers import kill_9

HERE = Path(__file__).parent
pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


@dataclass
class Outage:
    """A rule of the proxy before the journal's store: while it lasts, no request gets through."""

    lasts: bool = False
    refused: int = 0

    def __call__(self, request: S3Request) -> Answer | None:
        if not self.lasts:
            return None
        self.refused += 1
        return Answer(503, "ServiceUnavailable")


@dataclass(frozen=True)
class StreamsPipeline(Pipeline):
    """Its journal is behind a proxy."""

    outage: Outage = field(default_factory=Outage)
    endpoint_url: str = ""

    def set_aws_password(self, password: str) -> None:
        super().set_aws_password(password)
        extra = json.dumps({"region_name": REGION, "endpoint_url": self.endpoint_url})
        body = {"connection_id": AWS_CONNECTION, "conn_type": "aws", "extra": extra}
        self.airflow.api("PATCH", f"/connections/{AWS_CONNECTION}?update_mask=extra", body)


@pytest.fixture(scope="module")
def streams(
    s3_server_names: list[str], tmp_path_factory: pytest.TempPathFactory, start_s3_server: Callable[[str], S3Server]
) -> Iterator[StreamsPipeline]:
    """For the drill, an Airflow of its own: its components are killed."""
    with standalone_cluster(cores=1, memory="1g") as cluster:
        yield from open_streams(start_s3_server(s3_server_names[0]), tmp_path_factory.mktemp("streams"), cluster)


def open_streams(server: S3Server, folder: Path, cluster: StandaloneCluster) -> Iterator[StreamsPipeline]:
    bucket = f"streams-{os.urandom(4).hex()}"
    server.create_bucket(bucket)
    env = environment(folder, bucket, "sc://nowhere:1") | {
        "AIRFLOW_CONN_CLUSTER": json.dumps({"conn_type": "spark", "host": cluster.master_url}),
        # Only the driver of the frozen sink is ever waited for.
        "AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT": "20s",
        # The API server may be away for as long as its start takes.
        "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "1000",
        "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "5",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder / "dags"), os.environ.get("PYTHONPATH")])),
    }
    dags = folder / "dags"
    jobs = dags / "integration_jobs"
    jobs.mkdir(parents=True)
    for text in ("approximate_dag.py", "integration_jobs/__init__.py", "integration_jobs/gates.py"):
        (dags / text).write_text((HERE / "dags" / text).read_text())
    (jobs / "streams.py").write_text((HERE / "dags" / "integration_jobs" / "streams.py").read_text())
    airflow = LocalAirflow(folder / "airflow", dags, database="postgresql", env=env)
    for name in [each for each in airflow.env if each.startswith("AWS_") and each != "AWS_EC2_METADATA_DISABLED"]:
        del airflow.env[name]
    outage = Outage()
    with S3Proxy(server, outage) as proxy, airflow:
        pipeline = StreamsPipeline(airflow, server, bucket, folder, outage=outage, endpoint_url=proxy.endpoint_url)
        pipeline.set_aws_password(SECRET_KEY)
        yield pipeline


@pytest.mark.smoke
def test_a_sink_that_is_killed_starts_again_alone_and_the_ledger_is_the_difference(pipeline: Pipeline) -> None:
    found = started(pipeline, "stages_brief", hold_at=4 * IDS)
    found.wait_done("events", 4 * IDS)

    with untouched(found, ("events", 1)):
        jvm = found.jvm("table", 1)
        kill_9(jvm.parent())
        found.hold_at(8 * IDS)
        found.wait_view("events", 2)
        found.wait(lambda: is_gone(jvm), "the end of the sink's JVM")
    found.hold_at(None)

    journal = found.ends()
    assert journal.executions() == {"events": 1, "table": 2}
    assert_account(found, journal, channel="events")


@pytest.mark.drill
def test_only_what_is_killed_or_cleared_starts_again_and_the_ledger_is_the_difference(pipeline: Pipeline) -> None:
    found = started(pipeline, "stages_single", hold_at=4 * IDS)
    run = found.run
    found.wait_done("scores", 4 * IDS)

    # Kill -9 of the keeper of the scorer's driver, whose JVM goes with it; while it is away the others go on.
    with untouched(found, ("events", 1), ("table", 1)):
        jvm = found.jvm("scores", 1)
        kill_9(jvm.parent())
        found.hold_at(8 * IDS)
        found.wait_view("events", 2)
        found.wait(lambda: is_gone(jvm), "the end of the scorer's JVM")
    assert found.tries() == {"events": 1, "scores": 2, "table": 1}

    # A person clears one task, without its downstream.
    with untouched(found, ("events", 1), ("table", 1)):
        assert run.clear("scores") == ["g.scores"]
        found.wait_view("events", 3)
    found.hold_at(None)
    journal = found.ends()
    assert found.tries() == {"events": 1, "scores": 3, "table": 1}
    assert journal.executions() == {"events": 1, "scores": 3, "table": 1}
    assert_account(found, journal)
    assert found.log("scores").void == []
    # The last line of the log, and the task's note, which the API server wrote for it.
    note = run.airflow.task_instance(run.dag_id, run.run_id, "g.table")["note"]
    line = f"scores: {len(found.ids())} records committed, "
    assert line in note
    assert line in run.log("table")


@pytest.mark.drill
def test_a_sink_that_is_killed_and_one_that_is_frozen_start_again_alone(streams: Pipeline) -> None:
    """Of processes without Airflow: `tests/streaming/test_streaming_processes.py`, beside the other tests."""
    found = started(streams, "stages_single", hold_at=4 * IDS)
    run = found.run
    found.wait_done("scores", 4 * IDS)

    # Kill -9 of the sink's JVM; while it is away the others go on.
    with untouched(found, ("events", 1), ("scores", 1)):
        kill_9(found.jvm("table", 1))
        found.hold_at(6 * IDS)
        found.wait_view("scores", 2)
    assert found.tries() == {"events": 1, "scores": 1, "table": 2}

    # The sink stands still, Airflow starts another one beside it, and it wakes.
    found.wait_done("scores", sum(found.log("scores").ends))
    with untouched(found, ("events", 1), ("scores", 1)):
        frozen = run.airflow.task_processes(run.dag_id, run.run_id, "g.table")
        assert frozen is not None
        zombie = found.jvm("table", 2)
        processes = frozen.all
        frozen.freeze()
        try:
            run.airflow.miss_heartbeat(run.dag_id, run.run_id, "g.table")
            found.wait_view("scores", 3)
        finally:
            for process in processes:
                if not is_gone(process):
                    process.resume()
        found.hold_at(10 * IDS)
        found.wait(lambda: is_gone(zombie), "the end of the one that woke")
    found.hold_at(None)
    journal = found.ends()
    assert found.tries() == {"events": 1, "scores": 1, "table": 3}
    assert journal.executions() == {"events": 1, "scores": 1, "table": 3}
    assert_account(found, journal)


@pytest.mark.drill
def test_downstream_a_scorer_that_is_killed_takes_its_sink_along_by_one_clear(streams: Pipeline) -> None:
    found = started(streams, "stages_downstream", hold_at=4 * IDS)
    found.wait_done("scores", 4 * IDS)

    with untouched(found, ("events", 1)):
        sink = found.jvm("table", 1)
        kill_9(found.jvm("scores", 1))
        # Which of the two is there first is open.
        found.wait_view("scores", 2)
        found.wait_view("events", 2)
    assert is_gone(sink)
    found.hold_at(None)
    journal = found.ends()
    assert found.run.tries("events") == 1
    assert journal.executions() == {"events": 1, "scores": 2, "table": 2}
    assert_account(found, journal)


@pytest.mark.drill
def test_sink_a_scorer_that_is_killed_makes_all_regions_start_over(streams: Pipeline) -> None:
    found = started(streams, "stages_sink", hold_at=4 * IDS)
    found.wait_done("scores", 4 * IDS)

    others = [found.jvm(name, 1) for name in ("events", "table")]
    kill_9(found.jvm("scores", 1))
    found.wait_view("scores", 2, generation=2)
    assert all(map(is_gone, others))
    found.hold_at(None)
    journal = found.ends()
    assert journal.executions() == dict.fromkeys(REGIONS, 2)
    assert found.missing() == set()
    assert {edge: each["lost_records"] for edge, each in found.told().items()} == {"events": 0, "scores": 0}
    assert_account(found, journal)


@pytest.mark.drill
def test_a_budget_that_is_exceeded_fails_the_run_by_name(streams: Pipeline) -> None:
    found = started(streams, "stages_tight", hold_at=2 * IDS)
    found.wait_done("events", 2 * IDS)

    kill_9(found.jvm("table", 1))
    found.hold_at(6 * IDS)
    found.wait(lambda: found.run.state("table") == "failed", "the end of the sink")
    # What it had committed stands in the log, and no more was.
    assert sum(found.log("events").done) == 2 * IDS
    found.hold_at(None)
    journal = found.ends("failed")
    assert found.run.states()["audit"] == "upstream_failed"
    assert "max_lost_records is 5" in found.run.log("table")
    assert journal.executions() == {"events": 1, "table": 2}
    assert journal.publishes == []


@pytest.mark.drill
def test_a_region_without_a_slot_hangs_nobody(pipeline: Pipeline) -> None:
    """The pool is too small: refused at once. It is large enough, and others are in it: the producer waits no longer
    than its block_timeout_s, says so, and its consumer ends by name when it gets the slot."""
    for name, slots in (("one_slot", 1), ("two_slots", 2)):
        pipeline.airflow.api("POST", "/pools", {"name": name, "slots": slots, "include_deferred": False})
    narrow, crowded = started(pipeline, "stages_few_slots"), started(pipeline, "stages_no_slot", "hog")

    narrow.ends("failed")
    assert "Expected the pool 'one_slot' to have 2 slots" in narrow.run.log("events")
    assert "the task of its producer 'events' is failed" in narrow.run.log("table")
    assert narrow.run.journal().attempts == {}

    crowded.wait(lambda: crowded.run.state("table") == "failed", "the end of the consumer")
    # The other's task is still there.
    assert crowded.run.airflow.task_instance("stages_no_slot", crowded.run.run_id, "hog")["state"] == "running"
    crowded.run.release("hog")
    crowded.ends("failed")
    assert "and it did not for 2 s" in crowded.run.log("events")
    assert "the task of its producer 'events' is failed: events has failed for good" in crowded.run.log("table")
    assert crowded.run.journal().executions() == {"events": 1}


def executor_of(driver: psutil.Process) -> psutil.Process | None:
    """The executor on the standalone cluster that works for it."""
    for each in psutil.process_iter(["cmdline"]):
        command = each.info["cmdline"] or []
        # It is told where its driver listens.
        ports = {
            connection.laddr.port
            for connection in driver.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        told = [part for part in command if part.startswith("spark://CoarseGrainedScheduler@")]
        if told and int(told[0].rpartition(":")[2]) in ports:
            return each
    return None


@pytest.mark.drill
def test_an_executor_airflow_itself_and_the_journal_are_lost_while_channels_are_open(streams: StreamsPipeline) -> None:
    """FLIP-135's failure detection: streaming regions meet in their channels alone, so none of it restarts one."""
    found = started(streams, "stages_cluster", hold_at=2 * IDS)
    found.wait_done("scores", 2 * IDS)
    airflow = found.run.airflow

    with untouched(found, *((region, 1) for region in REGIONS)):
        executor = executor_of(found.jvm("scores", 1))
        assert executor is not None
        kill_9(executor)
        found.hold_at(3 * IDS)
        found.wait_done("scores", 3 * IDS)

        airflow.kill("scheduler")
        found.hold_at(4 * IDS)
        found.wait_done("scores", 4 * IDS)
        airflow.start("scheduler")

        airflow.kill("api-server")
        found.hold_at(6 * IDS)
        found.wait(lambda: sum(found.log("scores").done) >= 6 * IDS, "records while the API server is away")
        airflow.start("api-server")

        backup = streams.folder / "metadata.dump"
        airflow.back_up_database(backup)
        airflow.restore_database(backup)
        found.hold_at(8 * IDS)
        found.wait_done("scores", 8 * IDS)

        streams.outage.lasts = True
        found.hold_at(10 * IDS)
        found.wait_done("scores", 10 * IDS)
        found.wait(lambda: streams.outage.refused > 0, "somebody to miss the journal")
        streams.outage.lasts = False
    found.hold_at(None)
    journal = found.ends()
    assert found.tries() == dict.fromkeys(REGIONS, 1)
    assert found.missing() == set()
    assert_account(found, journal)
