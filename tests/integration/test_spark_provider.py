"""`dags/examples/spark_operators.py` as written, on Spark and PostgreSQL: each Spark dies once, results are lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
from pipeline import AFTER_THE_EXAMPLES_BEGIN, EXAMPLE_CODE, FLIGHTS, DagRun, Pipeline, empty_folder, fresh_day
from warehouse import Warehouse

from scripts.jars import fetched_jars
from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]

RESULTS = ("carriers", "flights", "late", "totals", "worst")
"""The tasks with results. `export` has none: its rows are in the database."""
ROWS = "carrier,arr_delay\nUA,11\nAA,33\nB6,20\nAA,45\nMQ,\nMQ,\nUA,"
WORST = [("American", 45), ("JetBlue", 20)]
DATASETS = """
import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession


def flights():
    rows = SparkSession.active().read.csv(os.environ["FLIGHTS"], header=True, schema="carrier string, arr_delay long")
    return rows.coalesce(1)


@dp.materialized_view
def arrived():
    return flights().where("arr_delay IS NOT NULL")


@dp.materialized_view
def cancelled():
    return flights().where("arr_delay IS NULL").select("carrier")
"""
SLOW = """
CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON worst FOR EACH ROW EXECUTE FUNCTION wait_for_the_test()
"""
"""Whoever inserts waits while the test holds the lock."""


@pytest.fixture
def code(pipeline: Pipeline) -> None:
    """What the example submits, and the file that it reads."""
    folder = empty_folder(pipeline.folder / EXAMPLE_CODE)
    (folder / "transformations").mkdir()
    (folder / "transformations" / "datasets.py").write_text(DATASETS)
    libraries = "libraries:\n  - glob:\n      include: transformations/**\n"
    (folder / "flights.yml").write_text(f"name: flights\nstorage: file://{folder}/storage\n{libraries}")
    (jar,) = fetched_jars("jdbc", "PostgreSQL's JDBC driver", "postgresql", "--drill").glob("*.jar")
    shutil.copy(jar, folder / "postgresql.jar")
    lake = pipeline.folder / FLIGHTS
    lake.mkdir(exist_ok=True)
    (lake / "flights.csv").write_text(ROWS)


@pytest.fixture
def warehouse(pipeline: Pipeline) -> Iterator[Warehouse]:
    """The tables that the example reads and writes, and the connections that it names."""
    warehouse = Warehouse(pipeline.airflow, [])
    warehouse.ask("CREATE TABLE carriers (carrier text, name text)")
    warehouse.ask("INSERT INTO carriers VALUES ('AA', 'American'), ('B6', 'JetBlue'), ('UA', 'United')")
    warehouse.ask("CREATE TABLE worst (name text, minutes bigint)")
    warehouse.ask("INSERT INTO worst VALUES ('yesterday', 1)")
    warehouse.ask(SLOW)
    jdbc = {**warehouse.connection, "conn_type": "jdbc", "extra": json.dumps({"conn_prefix": "jdbc:postgresql://"})}
    sql = {"conn_type": "spark_sql", "host": "local[1]"}
    connections: dict[str, dict[str, Any]] = {"warehouse_jdbc": jdbc, "spark_sql_default": sql}
    for name, connection in connections.items():
        pipeline.airflow.api("POST", "/connections", {"connection_id": name, **connection})
    yield warehouse
    for name in connections:
        pipeline.airflow.api("DELETE", f"/connections/{name}")
    warehouse.close()


def children_of(run: DagRun, task: str) -> list[psutil.Process]:
    found = run.airflow.task_processes(run.dag_id, run.run_id, task)
    with suppress(psutil.NoSuchProcess):
        return [] if found is None else found.task.children(recursive=True)
    return []


def kill_spark_once(run: DagRun, *tasks: str) -> None:
    """Kill the JVM that each task starts, whichever program of Spark's that is, as soon as it is there."""
    alive = set(tasks)

    def are_killed() -> bool:
        for task in sorted(alive):
            for child in children_of(run, task):
                with suppress(psutil.NoSuchProcess):  # it has ended, and perhaps nobody has asked yet how
                    if "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                        kill_9(child)
                        alive.discard(task)
        return not alive

    run.wait(are_killed, "every Spark")


def test_every_spark_that_dies_begins_again_and_a_lost_result_is_made_again_by_its_producer_alone(
    pipeline: Pipeline, code: None, warehouse: Warehouse
) -> None:
    run = pipeline.run("spark_operators", day=fresh_day(AFTER_THE_EXAMPLES_BEGIN))
    run.group_id = "~28operators~29"
    warehouse.ask("SELECT pg_advisory_lock(1)")
    run.start()
    kill_spark_once(run, *RESULTS)

    # Killed half-way: its predecessor's rows are gone, and its own are not there.
    inserting = "SELECT 1 FROM pg_stat_activity WHERE datname = 'warehouse' AND wait_event = 'advisory'"
    run.wait(lambda: bool(warehouse.ask(inserting)), "rows that are inserted")
    assert warehouse.ask("SELECT * FROM worst") == []
    kill_spark_once(run, "export")
    warehouse.ask("SELECT pg_advisory_unlock(1)")

    first = run.ends()
    assert first.executions() == dict.fromkeys((*RESULTS, "export"), 2)
    assert first.rows("late.late") == [(20, "B6"), (33, "AA"), (45, "AA")]
    assert first.rows("totals.totals") == [("MQ", 2), ("UA", 1)]
    assert first.rows("worst.worst") == [(20, "JetBlue"), (45, "American")]
    assert sorted(warehouse.ask("SELECT * FROM worst")) == WORST
    first.check()

    # A dataset of the pipeline is lost, and a final result: its producer is cleared, and nobody else is disturbed.
    run.delete("flights.cancelled", "totals.totals")
    run.clear("totals")
    second = run.ends()
    assert second.ran_since(first) == {"flights": 1, "totals": 1}
    assert second.attempts["flights"][2].objects["lost"]["reporter"] == "totals"
    run.clear()
    third = run.ends()
    assert third.ran_since(second) == {}
    kept = {task: run.said(task)["decision"] for task in (*RESULTS, "export")}
    assert kept == dict.fromkeys((*RESULTS, "export"), "kept")
    run.recovery("verify", "--ended")  # a reader has kept its result: `check` would not know why

    # Other rows go all the way to the database. What came from there is lost, and its reader wants it now.
    run.delete("carriers.names")
    (pipeline.folder / FLIGHTS / "flights.csv").write_text(ROWS.replace("B6,20", "UA,50"))
    run.clear()
    last = run.ends()
    assert set(last.ran_since(third)) == {"flights", "late", "carriers", "worst", "export"}
    assert sorted(warehouse.ask("SELECT * FROM worst")) == [("American", 45), ("United", 50)]
    run.recovery("verify", "--ended")
