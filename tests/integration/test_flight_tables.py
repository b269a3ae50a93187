"""`dags/examples/flight_tables.py` as it is written, all on S3: a driver that dies, and two snapshots that are lost.

The Iceberg catalog is in PostgreSQL. Spark has Delta's jars, and none of Iceberg's.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from delta_spark import DELTA_SETTINGS
from pipeline import AFTER_THE_EXAMPLES_BEGIN, DagRun, Pipeline, environment, fresh_day
from pyiceberg.catalog import Catalog, load_catalog

from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from scripts.jars import class_path_variables, fetched_jars
from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.postgres, pytest.mark.drill]

DAGS = Path(__file__).parents[2] / "dags"
ARRIVED = pa.schema([("carrier", pa.string()), ("flight", pa.int32()), ("delay", pa.int64())])
COLUMNS = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)
FLIGHT = "2013,1,1,517,515,2,830,819,{delay},{carrier},{flight},N1,EWR,IAH,227,1400,5,15,2013-01-01T05:00:00Z"


@dataclass(frozen=True)
class TablesPipeline(Pipeline):
    """``catalog`` and ``options`` (delta-rs') are how others than we reach the tables; ``secret`` opens the catalog."""

    catalog: Any = None
    options: Any = None
    secret: str = ""

    @property
    def delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(f"s3://{self.bucket}/tables/by_carrier", storage_options=self.options)

    def rows(self, run: DagRun, result: str) -> list[Any]:
        manifest = run.journal().manifest(result)
        store = self.open_s3(manifest["location"])
        return [
            row
            for path, _, _ in manifest["objects"]
            for row in parquet.read_table(io.BytesIO(store.get(path).body)).to_pylist()
        ]

    def delete(self, run: DagRun, result: str) -> None:
        manifest = run.journal().manifest(result)
        self.open_s3(manifest["location"]).delete([path for path, _, _ in manifest["objects"]])

    def everything(self, *prefixes: str) -> bytes:
        """All that lies below these prefixes."""
        stores = [self.open_s3(f"s3://{self.bucket}/{prefix}") for prefix in prefixes]
        return b"".join(store.get(found.key).body for store in stores for found in store.list())


@pytest.fixture
def lake(tmp_path: Path, one_s3_server: S3Server, postgres: dict[str, str | int]) -> Iterator[TablesPipeline]:
    bucket = f"tables-{uuid.uuid4().hex[:8]}"
    one_s3_server.create_bucket(bucket)
    settings = DELTA_SETTINGS | {
        f"spark.{side}.extraClassPath": f"{fetched_jars('delta', 'Delta', 'delta-spark_4.2_2.13', '--drill')}/*"
        for side in ("driver", "executor")
    }
    (tmp_path / "spark_conf").mkdir()
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    (tmp_path / "spark_conf" / "spark-defaults.conf").write_text(text)
    dags = tmp_path / "dags"
    shutil.copytree(DAGS / "jobs", dags / "jobs")
    (dags / ".airflowignore").write_text("jobs/\n")
    shutil.copy(DAGS / "examples" / "flight_tables.py", dags)
    properties = {
        "type": "sql",
        "uri": "postgresql+psycopg2://{user}:{password}@{host}:{port}/{dbname}".format(**postgres),
        "warehouse": f"s3://{bucket}/warehouse",
    }
    env = environment(tmp_path, bucket, "sc://127.0.0.1:1") | class_path_variables()
    env |= {
        "AIRFLOW__RECOVERY__RESULTS": f"s3://{bucket}/results",
        "FLIGHTS_LAKE": f"s3://{bucket}/flights",
        "FLIGHTS_TABLES": f"s3://{bucket}/tables",
        "SPARK_CONF_DIR": str(tmp_path / "spark_conf"),
        "PYSPARK_PYTHON": sys.executable,
    }
    s3 = {"s3.endpoint": one_s3_server.endpoint_url, "s3.region": REGION}
    s3 |= {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
    options = {"AWS_ENDPOINT_URL": one_s3_server.endpoint_url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION}
    options |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    options |= {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    airflow = LocalAirflow(tmp_path / "airflow", dags, env=env)
    # Only the connections may let a task in.
    for name in [name for name in airflow.env if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"]:
        del airflow.env[name]
    with airflow:
        catalog = load_catalog("lake", **properties, **s3)
        secret = str(postgres["password"])
        running = TablesPipeline(
            airflow, one_s3_server, bucket, tmp_path, catalog=catalog, options=options, secret=secret
        )
        running.set_aws_password(SECRET_KEY)
        connection = {"connection_id": "lake", "conn_type": "generic", "extra": json.dumps(properties)}
        airflow.api("POST", "/connections", connection)
        yield running


def roll_back(catalog: Catalog, snapshot: int) -> None:
    catalog.load_table("flights.arrived").manage_snapshots().rollback_to_snapshot(snapshot).commit()


def test_fault_170_171_a_driver_that_dies_and_snapshots_that_are_lost_are_made_again_in_order(
    lake: TablesPipeline,
) -> None:
    # The Iceberg table is there, as somebody has made it; the Delta table is not.
    lake.catalog.create_namespace("flights")
    lake.catalog.create_table("flights.arrived", ARRIVED).append(
        pa.table({"carrier": ["XX"], "flight": pa.array([1], "i4"), "delay": pa.array([1], "i8")})
    )
    before = lake.catalog.load_table("flights.arrived").metadata.current_snapshot_id
    flights = [
        FLIGHT.format(carrier=carrier, flight=n, delay=delay)
        for n, (carrier, delay) in enumerate([("UA", 11), ("AA", 33), ("UA", 30), ("MQ", "NA")])
    ]
    lake.open_s3(f"s3://{lake.bucket}/flights").put("a.csv", "\n".join([COLUMNS, *flights]).encode())

    run = lake.run("flight_tables", day=fresh_day(AFTER_THE_EXAMPLES_BEGIN))
    run.group_id = "flights"
    run.start()
    kill_9(run.jvm("arrived", 1))
    first = run.ends()
    assert first.executions() == {"arrived": 2, "by_carrier": 1, "worst": 1}
    assert lake.rows(run, "worst") == [{"carrier": "UA", "delay": 41}]
    assert first.manifest("arrived")["location"] == "iceberg://lake/flights.arrived"
    assert first.manifest("by_carrier")["location"] == f"delta+s3://{lake.bucket}/tables/by_carrier"
    table = lake.catalog.load_table("flights.arrived")
    assert first.manifest("arrived")["objects"][0][0] == str(table.metadata.current_snapshot_id)

    # Whoever commits on top changes nothing; then a version is vacuumed, and a snapshot rolled back.
    deltalake.write_deltalake(lake.delta, pa.table({"carrier": ["ZZ"], "delay": pa.array([1], "i8")}), mode="overwrite")
    run.clear("flights.worst")
    assert run.ends().ran_since(first) == {}
    lake.delta.vacuum(0, dry_run=False, enforce_retention_duration=False)
    roll_back(lake.catalog, before)
    lake.delete(run, "worst")
    run.clear("flights.worst")
    second = run.ends()
    assert second.ran_since(first) == {"arrived": 1, "by_carrier": 1, "worst": 1}
    assert "has expired" in json.dumps(second.attempts["by_carrier"][1].objects["lost"])
    assert "was rolled back" in json.dumps(second.attempts["arrived"][2].objects["lost"])
    assert lake.rows(run, "worst") == [{"carrier": "UA", "delay": 41}]

    # What opens the catalog stands nowhere but in its connection.
    told = lake.everything("journal", "results") + run.log("flights.arrived").encode()
    assert b"flights.arrived" in told
    assert lake.secret.encode() not in told
