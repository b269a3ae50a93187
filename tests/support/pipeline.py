"""A running Airflow with our provider, an S3 server and Spark, and one run of one DAG as a test handles it."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
from journal_objects import JournalObjects, decoded

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.store import ObjectStore, open_store
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task.left_in_airflow import SUMMARY_KEY
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION
from airflow_recovery.testing.spark_cluster import ConnectServer, connect_server
from airflow_recovery.verify import Report, verify_run
from scripts.spark_drivers import driver_of

AWS_CONNECTION = "recovery_s3"
FLIGHTS = "flights"
"""The folder with the CSV files that the examples read."""
EXAMPLE_CODE = "example_code"
"""The folder with the programs that `dags/examples` submit."""
SPARK_HISTORY = "https://history.example.com"
AFTER_THE_EXAMPLES_BEGIN = "2013-03-01"
"""A run of a date before its DAG's ``start_date`` has no tasks, and is a success."""

_days = itertools.count()


def fresh_day(begin: str = "2001-01-01") -> str:
    """Return a date that no other run has. The next call returns the date after it."""
    return (date.fromisoformat(begin) + timedelta(days=next(_days))).isoformat()


@dataclass(frozen=True)
class Pipeline:
    """``bucket`` is this pipeline's own. Journal on S3, results on the local disk."""

    airflow: LocalAirflow
    s3: S3Server
    bucket: str
    folder: Path
    connections: dict[str, str] = field(default_factory=dict)

    def run(
        self, dag_id: str, conf: Mapping[str, Any] | None = None, *, name: str = "", day: str | None = None
    ) -> DagRun:
        """A run with a logical date (``day``, else one of its own) and a gate folder. ``name`` is a part of its id."""
        day = day or fresh_day()
        run = DagRun(self, dag_id, f"{name or 'run'}-{day}", day, self.folder / "gates" / f"{dag_id}-{day}")
        run.gates.mkdir(parents=True)
        run.conf.update({"gates": str(run.gates), **(conf or {})})
        return run

    def set_aws_password(self, password: str) -> None:
        """Make or change the AWS connection, in Airflow's database."""
        body = {
            "connection_id": AWS_CONNECTION,
            "conn_type": "aws",
            "login": ACCESS_KEY,
            "password": password,
            "extra": json.dumps({"region_name": REGION, "endpoint_url": self.s3.endpoint_url}),
        }
        method = "PATCH" if self.connections else "POST"
        path = f"/connections/{AWS_CONNECTION}" if self.connections else "/connections"
        self.airflow.api(method, path, body)
        self.connections[AWS_CONNECTION] = password

    def remove_aws_connection(self) -> None:
        """As if nobody had ever made it."""
        self.airflow.api("DELETE", f"/connections/{AWS_CONNECTION}")
        self.connections.clear()

    def journal(self, dag_id: str, day: str, group_id: str, run_key: str = "") -> JournalObjects:
        """The journal of a run, as it is now: that of ``day``, or of another ``run_key`` (as the journal writes it)."""
        from botocore.config import Config

        config = Config(s3={"addressing_style": "path"})
        client = self.s3.session().create_client("s3", endpoint_url=self.s3.endpoint_url, config=config)
        run_key = run_key or f"date-{day}T000000Z"
        verify = partial(self._verify, dag_id, decoded(run_key), decoded(group_id))
        return JournalObjects(client, self.bucket, f"journal/{dag_id}/{run_key}/{group_id}/", verify)

    def _verify(self, dag_id: str, run_key: str, group_id: str) -> Report:
        """The independent checker, of a run that has ended. The drop-ins' and all others' results are on the disk."""
        journal = self.open_s3(f"s3://{self.bucket}/journal")
        return verify_run(
            journal, self.open_results, dag_id=dag_id, run_key=run_key, group_id=group_id, ended=True, deep=True
        )

    def open_s3(self, uri: str) -> S3Store:
        return S3Store(uri, endpoint_url=self.s3.endpoint_url, session=self.s3.session())

    def open_results(self, uri: str) -> ObjectStore:
        return open_store(uri)


@dataclass
class DagRun:
    """One run. Nothing is started before `start`, so that gates can be set."""

    pipeline: Pipeline
    dag_id: str
    run_id: str
    day: str
    gates: Path
    conf: dict[str, Any] = field(default_factory=dict)
    group_id: str = "g"

    @property
    def airflow(self) -> LocalAirflow:
        return self.pipeline.airflow

    # gates

    def hold(self, *vertices: str) -> None:
        for vertex in vertices:
            (self.gates / f"{vertex}.hold").touch()

    def release(self, *vertices: str) -> None:
        for vertex in vertices:
            (self.gates / f"{vertex}.hold").unlink()

    def make_fail_once(self, vertex: str) -> None:
        (self.gates / f"{vertex}.raise").touch()

    def make_die_once(self, vertex: str) -> None:
        (self.gates / f"{vertex}.kill").touch()

    def make_broken(self, vertex: str) -> None:
        (self.gates / f"{vertex}.broken").touch()

    def repair(self, vertex: str) -> None:
        (self.gates / f"{vertex}.broken").unlink()

    def calls(self, vertex: str) -> int:
        """How often the vertex was called: counted by itself, not by the journal."""
        return len(list(self.gates.glob(f"{vertex}.called-*")))

    def wait_called(self, vertex: str, times: int = 1) -> None:
        self.wait(lambda: self.calls(vertex) >= times, f"call {times} of {vertex}")

    # Airflow

    def start(self) -> DagRun:
        self.airflow.trigger(self.dag_id, logical_date=f"{self.day}T00:00:00Z", conf=self.conf, run_id=self.run_id)
        return self

    def forget(self) -> None:
        """Delete the run from Airflow; its journal stays."""
        self.airflow.api("DELETE", f"/dags/{self.dag_id}/dagRuns/{quote(self.run_id)}")

    def ends(self, state: str = "success") -> JournalObjects:
        """Wait for the end of the run, which must be ``state``; the journal then."""
        found = self.airflow.wait_run(self.dag_id, self.run_id)
        assert found == state, self.story()
        return self.journal()

    def clear(self, *regions: str, only_failed: bool = False, downstream: bool = False) -> list[str]:
        """Airflow's Clear of some tasks, or of the whole run; which ones. The run is not ended any more then.

        Without ``downstream`` a task that fails again leaves the run green: only its last task decides, in Airflow.
        """
        tasks = [self.task(region) for region in regions] or None
        return self.airflow.clear(self.dag_id, self.run_id, tasks, only_failed=only_failed, downstream=downstream)

    def mark(self, region: str, state: str) -> None:
        self.airflow.set_state(self.dag_id, self.run_id, self.task(region), state)

    def task(self, region: str) -> str:
        return f"{self.group_id}.{region}" if self.group_id == "g" else region

    def wait(self, claim: Any, what: str) -> None:
        self.airflow.wait_until(claim, what, self.story)

    def state(self, region: str) -> str | None:
        found = self.airflow.task_instance(self.dag_id, self.run_id, self.task(region))["state"]
        return None if found is None else str(found)

    def tries(self, region: str) -> int:
        return int(self.airflow.task_instance(self.dag_id, self.run_id, self.task(region))["try_number"])

    def states(self) -> dict[str, str]:
        found = self.airflow.task_instances(self.dag_id, self.run_id)
        return {instance["task_id"].removeprefix("g."): str(instance["state"]) for instance in found}

    def log(self, region: str, try_number: int | None = None) -> str:
        return self.airflow.log(self.dag_id, self.run_id, self.task(region), try_number or self.tries(region))

    def skip_reason(self, region: str) -> str:
        """Airflow logs it as a field of an entry."""
        path = f"/dags/{self.dag_id}/dagRuns/{quote(self.run_id)}/taskInstances/{self.task(region)}/logs/1"
        entries = self.airflow.api("GET", f"{path}?full_content=true")["content"]
        return next((str(entry["reason"]) for entry in entries if "reason" in entry), "")

    def said(self, region: str) -> Any:
        """What the newest try returned, or what recovery did, of an operator that returns a value of its own."""
        keys = self.airflow.xcom_keys(self.dag_id, self.run_id, self.task(region))
        key = SUMMARY_KEY if SUMMARY_KEY in keys else "return_value"
        return self.airflow.xcom(self.dag_id, self.run_id, self.task(region), key)

    def xcoms(self, region: str) -> dict[str, Any]:
        """All XComs of a region's task, but for the links of its page and what recovery did."""
        task = self.task(region)
        keys = self.airflow.xcom_keys(self.dag_id, self.run_id, task) - {SUMMARY_KEY}
        links = {key for key in keys if key.startswith("_link")}
        return {key: self.airflow.xcom(self.dag_id, self.run_id, task, key) for key in keys - links}

    def story(self) -> str:
        """For a failure: every task, and the end of the log of each that is no success."""
        lines = [self.airflow.describe(self.dag_id, self.run_id)]
        for instance in self.airflow.task_instances(self.dag_id, self.run_id):
            if instance["state"] in ("failed", "up_for_retry", "running") and instance["try_number"]:
                tried, index = instance["try_number"], instance["map_index"]
                log = self.airflow.log(self.dag_id, self.run_id, instance["task_id"], tried, index)
                lines.append(f"--- {instance['task_id']}\n{log[-3000:]}")
        return "\n".join(lines)

    def recovery(self, command: str, *arguments: str, code: ExitCode = ExitCode.DONE, through_api: bool = True) -> str:
        """``airflow recovery COMMAND`` of this run: what it says, on standard error where it was not ``code`` 0.

        Without ``through_api`` it has the metadata database alone.
        """
        env = dict(self.airflow.env)
        if through_api:
            login = {"login": self.airflow.admin.user, "password": self.airflow.admin.password}
            clear_client = {"conn_type": "airflow_recovery", "host": self.airflow.url, **login}
            env |= {
                "AIRFLOW_CONN_RECOVERY_API": json.dumps(clear_client),
                "AIRFLOW__RECOVERY__API_CONN_ID": "recovery_api",
            }
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "recovery", command, self.dag_id, self.day, *arguments],
            env=env,
            cwd=self.airflow.home,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code is ExitCode.DONE else done.stderr

    # journal and data

    def journal(self) -> JournalObjects:
        return self.pipeline.journal(self.dag_id, self.day, self.group_id)

    def delete(self, *results: str) -> None:
        """Delete the registered files of results."""
        journal = self.journal()
        for result in results:
            for file in journal.files(result):
                file.unlink()

    def delete_outputs(self, *regions: str) -> None:
        """Delete all registered files of regions."""
        journal = self.journal()
        for region in regions:
            for output in journal.attempts[region][journal.current(region)].outcome["outputs"]:
                for path, _, _ in output["objects"]:
                    (Path(output["location"].removeprefix("file://")) / path).unlink()

    # processes

    def jvm(self, region: str, attempt: int) -> psutil.Process:
        """The JVM of a submitted attempt, once its driver program runs. Its parent is its keeper."""
        name = f"{self.dag_id}.{region}@{attempt}"
        self.wait(lambda: driver_of(name, self.airflow.home) is not None, f"the JVM {name}")
        driver = driver_of(name, self.airflow.home)
        assert driver is not None
        return driver


def empty_folder(path: Path) -> Path:
    """Make an empty folder. An existing one is removed: another test may have used it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def is_gone(process: psutil.Process) -> bool:
    """Ended; a zombie has."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def small_connect_server() -> AbstractContextManager[ConnectServer]:
    """A server for tiny jobs: no Spark stage is cut into more parts than it has rows for."""
    conf = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
    return connect_server(master="local[2]", conf=conf)


def environment(folder: Path, bucket: str, connect_url: str) -> dict[str, str]:
    """What every component is told. The AWS connection is in Airflow's database, since a test changes it."""
    host, port = connect_url.removeprefix("sc://").split(":")
    connect = {"conn_type": "spark_connect", "host": f"sc://{host}", "port": int(port), "login": "integration"}
    return {
        "AIRFLOW__RECOVERY__JOURNAL": f"s3://{bucket}/journal",
        "AIRFLOW__RECOVERY__RESULTS": f"file://{folder}/results",
        "AIRFLOW__RECOVERY__AWS_CONN_ID": AWS_CONNECTION,
        "AIRFLOW__RECOVERY__PRELOAD": "connect",
        "AIRFLOW_CONN_CONNECT": json.dumps(connect),
        "AIRFLOW_CONN_SUBMIT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        # What the examples name.
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "FLIGHTS_LAKE": f"file://{folder}/{FLIGHTS}",
        "EXAMPLE_CODE": f"file://{folder}/{EXAMPLE_CODE}",
        "AIRFLOW__RECOVERY__SPARK_HISTORY_URL": SPARK_HISTORY,
        "AWS_EC2_METADATA_DISABLED": "true",
        "INTEGRATION_LAKE": f"file://{folder}/lake",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": f"{folder}/spark",
    }
