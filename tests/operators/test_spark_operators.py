"""The Spark provider's other operators as recoverable ones: programs of a test's own in place of Spark's, and Spark."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_jdbc import SparkJDBCOperator
from airflow.providers.apache.spark.operators.spark_pipelines import SparkPipelinesOperator
from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from tries import run_try, submissions

from airflow_recovery.operators import RecoverableSparkJDBCOperator, recoverable
from airflow_recovery.operators.spark_jdbc import OWN_METASTORE
from airflow_recovery.testing.spark_cluster import connect_server

PROGRAM = f"""#!{sys.executable}
import json, os, pathlib, re, sys
with open(os.environ["SUBMITTED"], "a") as log:
    log.write(json.dumps({{"arguments": sys.argv[1:]}}) + "\\n")
said = " ".join(sys.argv[1:])
if "pipelines" in sys.argv[0] and {{"--master", "--name"}} & set(sys.argv):
    sys.exit("Remote cannot be specified with master and/or deploy mode.")
for place in re.findall(r"(?:DIRECTORY '|warehouse.dir=)([^' ]+)", said):
    folder = pathlib.Path(place.removeprefix("file://"))
    for below in (["cleaned", "report"] if "warehouse" in said else ["."]):
        (folder / below).mkdir(parents=True)
        (folder / below / "part-0").write_text("rows")
"""
"""In place of ``spark-sql`` and ``spark-pipelines``: writes where it is told, and logs what it was told.

It refuses what Spark's own one refuses.
"""

SQL = "INSERT OVERWRITE DIRECTORY '{output:cleaned}' USING parquet SELECT explode(sequence(1, 3)) AS n"


@pytest.fixture
def programs(submitted: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Beside the `spark-submit` of `submitted`."""
    for name in ("spark-sql", "spark-pipelines"):
        program = submitted.parent / "bin" / name
        program.write_text(PROGRAM)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_SQL_DEFAULT", json.dumps({"conn_type": "spark_sql", "host": "local[1]"}))
    return submitted


def new_dag() -> DAG:
    return DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc))


def folder_of(answer: dict[str, Any], result: str) -> Path:
    return Path(answer["results"][result]["location"].removeprefix("file://"))


def test_a_query_writes_to_the_place_of_its_attempt_and_is_kept(recovery: Path, programs: Path) -> None:
    with new_dag():
        operator = recoverable(SparkSqlOperator)(task_id="t", sql=SQL, outputs=["cleaned"])
    made = run_try(operator)
    assert (folder_of(made, "t.cleaned") / "part-0").read_text() == "rows"
    assert run_try(operator, try_number=2)["decision"] == "kept"
    (one,) = submissions(programs)
    assert f"DIRECTORY 'file://{recovery}/results/" in one["arguments"][one["arguments"].index("-e") + 1]


def test_a_query_in_a_file_is_filled_too(recovery: Path, programs: Path, tmp_path: Path) -> None:
    (tmp_path / "clean.sql").write_text(SQL)
    with DAG("d", schedule=None, template_searchpath=[str(tmp_path)]) as dag:
        operator = recoverable(SparkSqlOperator)(task_id="t", sql="clean.sql", outputs=["cleaned"])
    dag.resolve_template_files()
    assert run_try(operator)["results"]["t.cleaned"]["files"] == 1


PIPELINE = {"pipeline_spec": "/code/pipeline.yml", "conf": {"spark.sql.warehouse.dir": "{output:*}"}}


def test_the_datasets_of_a_declarative_pipeline_are_results(recovery: Path, programs: Path) -> None:
    dag = new_dag()
    with dag:
        pipeline = recoverable(SparkPipelinesOperator)(task_id="t", outputs=["cleaned", "report"], **PIPELINE)
        reader = recoverable(SparkSqlOperator)(
            task_id="r",
            sql="INSERT OVERWRITE DIRECTORY '{output:out}' SELECT * FROM parquet.`{input:report}`",
            inputs={"report": pipeline.result("report")},
            outputs=["out"],
        )
    made = run_try(pipeline)
    assert {folder_of(made, f"t.{name}").name for name in ("cleaned", "report")} == {"cleaned", "report"}
    assert run_try(reader)["decision"] == "ran"
    assert f"parquet.`{folder_of(made, 't.report').as_uri()}`" in " ".join(submissions(programs)[-1]["arguments"])


CONNECT = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": 1}


@pytest.mark.parametrize(
    ("connection", "given", "code"),
    [
        (
            {"conn_type": "spark", "host": "yarn"},
            {},
            "pipelines-without-connect",
        ),
        ({"conn_type": "spark", "host": "spark://a", "port": 7077}, {}, "pipelines-without-connect"),
        (CONNECT, {}, "pipelines-placeholder-in-conf"),
        (CONNECT, {"conf": {}, "env_vars": {"OUT": "{output:*}"}}, None),
    ],
)
def test_a_pipeline_that_spark_would_not_run_is_refused_before_the_claim(
    recovery: Path, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], given: dict[str, Any], code: str | None
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    with new_dag():
        operator = recoverable(SparkPipelinesOperator)(task_id="t", outputs=["cleaned"], **{**PIPELINE, **given})
    if code is None:
        operator.check_rendered()
        return
    with fails_with(code, by=AirflowFailException):
        run_try(operator)
    assert not list((recovery / "journal").rglob("*.claim"))


def test_a_pipeline_that_does_not_make_a_dataset_is_told_which(recovery: Path, programs: Path) -> None:
    with new_dag():
        pipeline = recoverable(SparkPipelinesOperator)(task_id="t", outputs=["cleaned", "other"], **PIPELINE)
    with fails_with("output-not-written", output="other"):
        run_try(pipeline)


# --- to a database ----------------------------------------------------------------------------------------------------

JDBC = {"metastore_table": "parquet.`{input:report}`", "jdbc_table": "report", "save_mode": "overwrite"}


def transfer(dag: DAG | None = None, **given: Any) -> Any:
    with dag or new_dag():
        return RecoverableSparkJDBCOperator(
            **{"task_id": "t", "inputs": {"report": "s3://lake/report"}, **JDBC, **given}
        )


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"save_mode": "append"}, "application-cannot-run-again"),
        ({"save_mode": None}, "application-cannot-run-again"),
        ({"idempotent": False}, "application-cannot-run-again"),
        (
            {"outputs": ["out"], "metastore_table": "{output:out}"},
            "jdbc-outputs",
        ),
        ({"cmd_type": "jdbc_to_spark"}, "jdbc-outputs"),
        (
            {"metastore_table": "{input:other}"},
            "placeholder-in-vain",
        ),
    ],
)
def test_a_transfer_that_may_leave_other_rows_or_none_is_refused(given: dict[str, Any], code: str) -> None:
    with fails_with(code, task="t"):
        transfer(**given)


@pytest.mark.parametrize("given", [{"save_mode": "append", "allow_duplicates": True}, {"idempotent": True}])
def test_a_transfer_runs_where_its_readers_can_live_with_it(given: dict[str, Any]) -> None:
    assert transfer(**given).outputs == {}


def report_of_one_part(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `transfer_of` reads; its submission does not run, and its connection is there."""
    monkeypatch.setenv("AIRFLOW_CONN_JDBC_DEFAULT", json.dumps({"conn_type": "jdbc", "host": "db", "schema": "s"}))
    monkeypatch.setenv("SUBMIT_ONLY", "1")
    report = recovery / "report"
    report.mkdir()
    (report / "part-0").write_text("1")
    return report


def transfer_of(report: Path) -> Any:
    return transfer(
        inputs={"report": str(report)}, spark_conn_id="spark_default", jdbc_conn_id="jdbc_default", jdbc_driver="d"
    )


def test_a_transfer_is_kept_until_what_it_reads_has_changed(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = report_of_one_part(recovery, monkeypatch)
    operator = transfer_of(report)
    assert recoverable(SparkJDBCOperator) is RecoverableSparkJDBCOperator
    assert run_try(operator)["decision"] == "ran"
    assert run_try(operator, try_number=2)["decision"] == "kept"
    (report / "part-1").write_text("2")
    assert (again := run_try(operator, try_number=3))["decision"] == "ran", again
    one, two = submissions(submitted)
    assert f"parquet.`{report}`" in one["arguments"]
    assert one["arguments"][:2] == ["-name", "airflow-spark-jdbc"]  # Spark 4.2 runs none without
    assert one["arguments"] == two["arguments"]


@pytest.mark.slow
def test_fault_177_a_transfer_is_made_again_where_one_of_other_input_was_begun_after_it(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have overwritten the database's table, at which nobody can look."""
    report = report_of_one_part(recovery, monkeypatch)
    operator = transfer_of(report)
    assert run_try(operator)["decision"] == "ran"
    (report / "part-1").write_text("2")
    with monkeypatch.context() as dying:
        dying.setattr("airflow_recovery.task.drop_in.DropInApplication._finish", _dies)
        with pytest.raises(Exception, match="died after it had overwritten the table"):
            run_try(operator, try_number=2)
    (report / "part-1").unlink()
    assert run_try(operator, try_number=3)["decision"] == "ran"
    assert run_try(operator, try_number=4)["decision"] == "kept"


def _dies(*given: Any) -> None:
    raise RuntimeError("died after it had overwritten the table")


FROM_DATABASE: dict[str, Any] = {"cmd_type": "jdbc_to_spark", "inputs": None, "metastore_table": "names"}
WAREHOUSE = {"spark.sql.warehouse.dir": "{output:*}"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"outputs": ["names"], "spark_conf": WAREHOUSE}, {**OWN_METASTORE, **WAREHOUSE}),
        (
            {"outputs": ["names"], "spark_conf": {**WAREHOUSE, "spark.hadoop.hive.metastore.uris": "thrift://a:1"}},
            {**OWN_METASTORE, **WAREHOUSE, "spark.hadoop.hive.metastore.uris": "thrift://a:1"},
        ),
        ({"outputs": {"names": "s3://lake/names/"}}, None),
    ],
)
def test_what_comes_from_a_database_to_the_place_of_an_attempt_has_a_metastore_of_its_own(
    given: dict[str, Any], expected: dict[str, str] | None
) -> None:
    assert transfer(**FROM_DATABASE, **given)._spark_conf == expected


# --- functions --------------------------------------------------------------------------------------------------------


def made_by(function: Any) -> list[Any]:
    """As an operator, and by the decorator."""
    with new_dag():
        one = recoverable(PySparkOperator)(
            task_id="one", python_callable=function, op_kwargs={"out": "{output:rows}"}, outputs=["rows"]
        )
        two = recoverable(task.pyspark)(outputs=["rows"], task_id="two")(function)(out="{output:rows}").operator
    return [one, two]


def test_a_function_with_a_session_is_told_the_place_of_its_attempt(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(out: str, spark: Any) -> str:
        folder = Path(out.removeprefix("file://"))
        folder.mkdir(parents=True)
        (folder / "part-0").write_text(spark.answer)
        return "not kept"

    from types import SimpleNamespace

    import pyspark.sql

    session = SimpleNamespace(answer="rows", stop=lambda: None)
    builder: Any = SimpleNamespace(getOrCreate=lambda: session)
    builder.config = lambda **_: builder
    monkeypatch.setattr(pyspark.sql, "SparkSession", SimpleNamespace(builder=builder))
    for operator in made_by(write):
        made = run_try(operator)
        assert (folder_of(made, f"{operator.task_id}.rows") / "part-0").read_text() == "rows"
        assert run_try(operator, try_number=2)["decision"] == "kept"


# --- with Spark itself ------------------------------------------------------------------------------------------------

DATASETS = """
import os, zlib

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
out = os.environ.get("OUT")
attempt = f"_{zlib.crc32(out.encode())}" if out else ""

def place(name):
    return {"name": name + attempt, "table_properties": {"location": f"{out}/{name}"} if out else {}}

@dp.materialized_view(**place("cleaned"))
def cleaned():
    return spark.range(3)

@dp.materialized_view(**place("report"))
def report():
    return spark.read.table("cleaned" + attempt).groupBy().count()
"""
"""On a server that others use, too, each attempt has tables of its own name (`docs/operators.md`)."""

LOCALLY = {"conf": {"spark.sql.warehouse.dir": "{output:*}"}}
BY_CONNECT = {"env_vars": {"OUT": "{output:*}"}, "conn_id": "connect"}


@pytest.fixture
def spark_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of pyspark's package."""
    import pyspark

    place = os.pathsep.join([str(Path(pyspark.__file__).parent / "bin"), os.environ["PATH"]])
    monkeypatch.setenv("PATH", place)
    monkeypatch.setenv("SPARK_HOME", str(Path(pyspark.__file__).parent))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_SQL_DEFAULT", json.dumps({"conn_type": "spark_sql", "host": "local[1]"}))


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Spark Connect server."""
    with connect_server(master="local[1]", conf={"spark.sql.shuffle.partitions": "1"}) as server:
        host, port = server.url.removeprefix("sc://").split(":")
        connection = {"conn_type": "spark_connect", "host": f"sc://{host}", "port": int(port)}
        monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps(connection))
        yield


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.parametrize("way", [LOCALLY, BY_CONNECT], ids=["locally", "connect"])
def test_the_datasets_of_a_pipeline_are_read_by_a_query_and_by_a_function(
    recovery: Path,
    spark_programs: None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    way: dict[str, Any],
) -> None:
    from pyarrow import parquet

    if way is BY_CONNECT:
        request.getfixturevalue("connect")
    monkeypatch.chdir(recovery)
    (recovery / "transformations").mkdir()
    (recovery / "transformations" / "datasets.py").write_text(DATASETS)
    spec = recovery / "pipeline.yml"
    libraries = "libraries:\n  - glob:\n      include: transformations/**\n"
    spec.write_text(f"name: flights\nstorage: file://{recovery}/storage\n{libraries}")

    def read(rows: str, out: str, spark: Any) -> None:
        spark.read.parquet(rows).selectExpr("count + 1 AS more").write.parquet(out)

    with new_dag():
        pipeline = recoverable(SparkPipelinesOperator)(
            task_id="p", pipeline_spec=str(spec), outputs=["cleaned", "report"], **way
        )
        query = recoverable(SparkSqlOperator)(
            task_id="q",
            sql="INSERT OVERWRITE DIRECTORY '{output:out}' USING parquet SELECT * FROM parquet.`{input:report}`",
            inputs={"report": pipeline.result("report")},
            outputs=["out"],
        )
        function = recoverable(PySparkOperator)(
            task_id="f",
            python_callable=read,
            op_kwargs={"rows": "{input:rows}", "out": "{output:out}"},
            inputs={"rows": query.result("out")},
            outputs=["out"],
        )
    for operator in (pipeline, query, function):
        assert run_try(operator)["decision"] == "ran"
        assert run_try(operator, try_number=2)["decision"] == "kept"
    rows = parquet.read_table(folder_of(run_try(function, try_number=3), "f.out"), partitioning=None)
    assert rows.to_pylist() == [{"more": 4}]
    spec.write_text(f"{spec.read_text()}# other")
    again = run_try(pipeline, try_number=3)
    assert (again["decision"], again["attempt"]) == ("ran", 2)
    assert parquet.read_table(folder_of(again, "p.report"), partitioning=None).to_pylist() == [{"count": 3}]
