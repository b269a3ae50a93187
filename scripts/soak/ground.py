"""What the soak stands on: S3 behind a faulty proxy, a Spark Connect server, PostgreSQL, Airflow on two machines."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import deltalake
import psutil  # type: ignore[import-untyped]
import psycopg2  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]

from airflow_recovery.driver.submit import store_conf
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    S3Server,
    local_server,
)
from airflow_recovery.testing.spark_cluster import ConnectServer, connect_server
from scripts.jars import class_path_variables
from scripts.s3_proxy import S3Proxy
from scripts.soak.s3_faults import S3Faults

HERE = Path(__file__).resolve().parent
BUCKET = "soak"
JOURNAL, RESULTS, LAKE = (f"s3://{BUCKET}/{name}" for name in ("journal", "results", "lake"))
DELTA = f"{LAKE}/delta"
WAREHOUSE = "warehouse"
WORKERS = ("worker-1", "worker-2")
SMALL_DISK = "worker-2"
"""Its temporary folder is a file system of its own, which can be filled."""
SCRATCH_BYTES = 400 << 20
NUMBERS_A_FILE, FILES = 10, 6
FLIGHTS = pa.table({"carrier": ["UA", "AA", "MQ", "B6"], "delay": pa.array([11, 33, None, 20], "i8")})

PATIENT = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "40",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "40",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "3",
    "AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT": "20s",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
    # The schedule is there for backfills.
    "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
    # A file that is deployed is read soon.
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
}
"""Nobody is to be taken for dead because this machine is busy with all the others."""

SETTINGS = """
import sys

__all__ = []
if "celery" in sys.argv:
    from airflow_recovery.task.preloading import preload

    preload()
"""
"""Airflow's local settings, as docs/machines.md has them."""


class SparkServer:
    """One Spark Connect server for all DAGs that use none of their own; it can be killed and started again."""

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = dict(conf)
        self._port = free_port()
        self._stack = ExitStack()
        self._server: ConnectServer | None = None

    @property
    def port(self) -> int:
        """The same one after each start."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The process id of its JVM while it runs."""
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Start it; a second call does nothing while it runs."""
        if self._server is None or not psutil.pid_exists(self._server.pid):
            self.stop()
            self._server = self._stack.enter_context(connect_server(conf=self._conf, port=self._port))

    def kill(self) -> None:
        """``kill -9``."""
        if self._server is not None:
            with suppress(psutil.NoSuchProcess):
                psutil.Process(self._server.pid).kill()
            self.stop()

    def stop(self) -> None:
        """End it, if it runs."""
        self._server = None
        self._stack.close()
        self._stack = ExitStack()


@dataclass(frozen=True)
class Ground:
    """All that is running. Made by `open_ground`; ``folder`` is the soak's own."""

    folder: Path
    airflow: LocalAirflow
    s3: S3Server
    proxy: S3Proxy
    faults: S3Faults
    spark: SparkServer
    warehouse: dict[str, str | int]
    """How to connect to the database to which sinks commit."""
    lake: dict[str, str]
    """What pyiceberg is told of the catalog, as tasks are: through the proxy."""
    dags: Path
    environment: dict[str, str] = field(repr=False)

    def open_s3(self, uri: str) -> S3Store:
        """The store at a URI, past the proxy."""
        return S3Store(uri, endpoint_url=self.s3.endpoint_url, session=self.s3.session())

    def open_data(self, location: str) -> ObjectStore:
        """The store of a result."""
        return self._bucket.sibling(location.replace("s3a://", "s3://", 1))

    @cached_property
    def _bucket(self) -> S3Store:
        return self.open_s3(f"s3://{BUCKET}")

    @cached_property
    def journal(self) -> S3Store:
        """The journals' store, past the proxy."""
        return self._bucket.sibling(JOURNAL)

    @cached_property
    def results(self) -> S3Store:
        """The results' store, past the proxy."""
        return self._bucket.sibling(RESULTS)

    def catalog(self) -> Any:
        """The catalog of Iceberg tables, past the proxy."""
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("lake", **{**self.lake, "s3.endpoint": self.s3.endpoint_url})

    def delta(self, name: str, version: int | None = None) -> Any:
        """A Delta table, past the proxy."""
        return deltalake.DeltaTable(f"{DELTA}/{name}", version=version, storage_options=_delta_options(self.s3))

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement in the warehouse, over a connection of its own: the server is stopped at times."""
        with closing(psycopg2.connect(**self.warehouse)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def recovery(self, *words: str, timeout_s: float = 180.0) -> subprocess.CompletedProcess[str]:
        """``airflow recovery WORDS``, as a person with Airflow's settings and a connection to its API calls it."""
        login = {"login": self.airflow.admin.user, "password": self.airflow.admin.password}
        api = {"conn_type": "airflow_recovery", "host": self.airflow.url, **login}
        person = {"AIRFLOW_CONN_RECOVERY_API": json.dumps(api), "AIRFLOW__RECOVERY__API_CONN_ID": "recovery_api"}
        return subprocess.run(
            [sys.executable, "-m", "airflow", "recovery", *words],
            env={**self.airflow.env, **person},
            cwd=self.airflow.home,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def deploy(self, path: str, old: str, new: str) -> bool:
        """Change a file of the DAG folder, and of each machine's copy; whether ``old`` was in any."""
        folders = [self.dags, *(self.airflow.dags_of(worker) for worker in WORKERS)]
        found = False
        for file in (folder / path for folder in folders):
            if file.exists() and old in (text := file.read_text()):
                fresh = file.with_suffix(".fresh")
                fresh.write_text(text.replace(old, new))
                fresh.replace(file)
                found = True
        return found

    def scratch_of(self, worker: str) -> Path | None:
        """The temporary folder of a machine, as it is seen from outside; `None` while it does not run."""
        process = self.airflow.processes.get(worker)
        try:
            first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0] if process else ""
        except (OSError, IndexError):
            return None
        return Path(f"/proc/{first}/root{self.airflow.home}/tmp") if first else None


@contextmanager
def open_ground(folder: Path, seed: int) -> Iterator[Ground]:
    """Start everything below ``folder``, which is made; leave no process behind."""
    folder.mkdir(parents=True)
    dags = folder / "dags"
    shutil.copytree(HERE / "dags", dags)
    os.environ.update(class_path_variables())
    with ExitStack() as stack:
        s3 = stack.enter_context(local_server(folder / "s3"))
        s3.create_bucket(BUCKET)
        _fill_lake(S3Store(LAKE, endpoint_url=s3.endpoint_url, session=s3.session()))
        faults = S3Faults(seed)
        proxy = stack.enter_context(S3Proxy(s3, faults))
        proxy.requests = deque(maxlen=1000)
        os.environ.update(s3.environment())
        s3a = store_conf(StoreSpec(RESULTS, proxy.endpoint_url, REGION), os.environ)
        small = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1", "spark.driver.memory": "700m"}
        spark = SparkServer({**s3a, **small})
        stack.callback(spark.stop)
        spark.start()
        env = _environment(folder, proxy.endpoint_url, spark.port, s3a)
        airflow = LocalAirflow(
            folder / "airflow", dags, database="postgresql", schedulers=2, workers=1, env=env, parallelism=3
        )
        settings = airflow.home / "config" / "airflow_local_settings.py"
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS)
        small_disk = airflow.add_worker(scratch_bytes=SCRATCH_BYTES)
        assert small_disk == SMALL_DISK
        stack.enter_context(airflow)
        airflow.start(small_disk)
        warehouse, lake = _databases(airflow, proxy.endpoint_url)
        ground = Ground(folder, airflow, s3, proxy, faults, spark, warehouse, lake, dags, env)
        catalog = ground.catalog()
        catalog.create_namespace("db")
        for name in ("flights", "arrived", "cancelled", "late"):
            catalog.create_table(f"db.{name}", FLIGHTS.schema).append(FLIGHTS)
        deltalake.write_deltalake(f"{DELTA}/flights", FLIGHTS, storage_options=_delta_options(s3))
        airflow.api("POST", "/pools", {"name": "jvm", "slots": 2})
        yield ground


def _delta_options(s3: S3Server) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}
    return {**keys, "AWS_ENDPOINT_URL": s3.endpoint_url, "AWS_ALLOW_HTTP": "true"}


def own_address() -> str:
    """An address of this computer that leads to it from each of its machines, which 127.0.0.1 does not."""
    addresses = (address for of_one in psutil.net_if_addrs().values() for address in of_one)
    return next(
        str(address.address)
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    )


def _fill_lake(lake: S3Store) -> None:
    for number in range(FILES):
        rows = range(number * NUMBERS_A_FILE, (number + 1) * NUMBERS_A_FILE)
        lake.put(f"numbers/{number}.csv", "".join(f"{row}\n" for row in rows).encode())


def _environment(folder: Path, endpoint_url: str, spark_port: int, s3a: Mapping[str, str]) -> dict[str, str]:
    extra = {"region_name": REGION, "endpoint_url": endpoint_url}
    aws = {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY, "extra": extra}
    connect = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": spark_port, "login": "soak"}
    return {
        **PATIENT,
        "AIRFLOW__RECOVERY__JOURNAL": JOURNAL,
        "AIRFLOW__RECOVERY__RESULTS": RESULTS,
        "AIRFLOW__RECOVERY__AWS_CONN_ID": "recovery_s3",
        "AIRFLOW__RECOVERY__SPARK_IDLE_TIMEOUT": "1m",
        "AIRFLOW__RECOVERY__PRELOAD": "connect",
        "AIRFLOW__RECOVERY__DRIVER_JVM": "short-lived",
        "AIRFLOW__RECOVERY__CLASS_ARCHIVES": f"{sys.prefix}/spark-classes",  # made by scripts/setup.sh
        "AIRFLOW_CONN_RECOVERY_S3": json.dumps(aws),
        "AIRFLOW_CONN_CONNECT": json.dumps(connect),
        "AIRFLOW_CONN_SUBMIT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": f"{folder}/spark",
        "SOAK_ADDRESS": own_address(),
        "SOAK_LAKE": LAKE,
        "SOAK_S3": endpoint_url,
        "SOAK_S3A": json.dumps(dict(s3a)),
    }


def _databases(airflow: LocalAirflow, endpoint_url: str) -> tuple[dict[str, str | int], dict[str, str]]:
    """A warehouse and a catalog, beside Airflow's database and not in it; the connections by which tasks find them."""
    server = airflow.database_address
    own = psycopg2.connect(**server)
    own.autocommit = True
    with own.cursor() as cursor:
        for name in (WAREHOUSE, "lake"):
            cursor.execute(f"CREATE DATABASE {name}")
    own.close()
    warehouse = {**server, "dbname": WAREHOUSE}
    with closing(psycopg2.connect(**warehouse)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE booked (run_key text, id bigint, amount bigint)")
    where = {"host": server["host"], "port": server["port"], "login": server["user"], "password": server["password"]}
    postgres = {"connection_id": WAREHOUSE, "conn_type": "postgres", "schema": WAREHOUSE, **where}
    airflow.api("POST", "/connections", postgres)
    uri = f"postgresql+psycopg2://{server['user']}:{server['password']}@{server['host']}:{server['port']}/lake"
    s3 = {"s3.endpoint": endpoint_url, "s3.region": REGION}
    keys = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
    lake = {"type": "sql", "uri": uri, "warehouse": f"s3://{BUCKET}/tables", **s3, **keys}
    airflow.api("POST", "/connections", {"connection_id": "lake", "conn_type": "generic", "extra": json.dumps(lake)})
    return warehouse, lake
