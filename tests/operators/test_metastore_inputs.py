"""Tables of a Hive metastore as inputs of an operator. The metastore is a real one, of Spark's own jars."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from metastore_server import HiveMetastore
from tries import run_try

from airflow_recovery.errors import RecoveryError
from airflow_recovery.operators import recoverable
from airflow_recovery.planning import evaluation
from airflow_recovery.task.metastore_input import _files

pytestmark = pytest.mark.spark

Bash = recoverable(BashOperator, paths="plain")
NUMBERS = itertools.count()
TELL = "mkdir -p '{output:out}' && echo '{input:orders}|{version:orders}' > '{output:out}/part-0'"
FAILS = (RecoveryError, AirflowException)


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    with HiveMetastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


class Orders:
    """The table ``orders`` of a database of its own, with a partition a day, in a folder."""

    def __init__(self, server: HiveMetastore, folder: Path) -> None:
        from hive_metastore.ttypes import (  # type: ignore[import-untyped]
            Database,
            FieldSchema,
            SerDeInfo,
            StorageDescriptor,
            Table,
        )

        self._server, self.folder, self.database = server, folder, f"shop{next(NUMBERS)}"
        self.uri = f"hive://meta/{self.database.title()}.Orders"
        server.ask("create_database", Database(self.database, None, f"file:{folder}/shop.db", {}))
        columns = [FieldSchema("id", "bigint", None)]
        self._columns = lambda location: StorageDescriptor(
            columns, location, "org.apache.hadoop.mapred.TextInputFormat",
            "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat", serdeInfo=SerDeInfo(None, "lazy", {}),
        )  # fmt: skip
        self.table = Table(
            tableName="orders", dbName=self.database, sd=self._columns(f"file:{folder}/orders"), parameters={},
            partitionKeys=[FieldSchema("day", "string", None)], tableType="EXTERNAL_TABLE",
        )  # fmt: skip
        server.ask("create_table", self.table)

    def add(self, day: str, rows: str) -> None:
        from hive_metastore.ttypes import Partition

        self.write(day, rows)
        sd = self._columns(f"file:{self.folder}/orders/day={day}")
        self._server.ask("add_partition", Partition([day], self.database, "orders", sd=sd, parameters={}))

    def write(self, day: str, rows: str) -> None:
        folder = self.folder / "orders" / f"day={day}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part-0").write_text(rows)

    def set(self, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(self.table, name, value)
        self._server.ask("alter_table", self.database, "orders", self.table)

    def drop(self, day: str) -> None:
        self._server.ask("drop_partition", self.database, "orders", [day], False)


@pytest.fixture
def orders(metastore: HiveMetastore, recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Orders:
    extra = json.dumps({"uri": metastore.uri})
    monkeypatch.setenv("AIRFLOW_CONN_META", json.dumps({"conn_type": "generic", "extra": extra}))
    found = Orders(metastore, recovery)
    found.add("1", "1\n")
    return found


def reader(declared: str) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return Bash(task_id="t", outputs=["out"], inputs={"orders": declared}, bash_command=TELL)


def tried(declared: str) -> tuple[str, int, str]:
    answer = run_try(reader(declared))
    (result,) = answer["results"].values()
    told = (Path(result["location"].removeprefix("file://")) / "part-0").read_text().strip()
    return answer["decision"], answer["attempt"], told


CHANGES = {
    "a partition is added": lambda orders: orders.add("2", "2\n"),
    "a partition is dropped, its files stay": lambda orders: orders.drop("1"),
    "a file is replaced, the metastore is not told": lambda orders: orders.write("1", "9\n"),
    "a property is changed": lambda orders: orders.set(parameters={"source": "other"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_fault_303_a_task_runs_again_when_its_table_of_a_metastore_has_changed(orders: Orders, change: str) -> None:
    decision, attempt, told = tried(orders.uri)
    assert (decision, attempt) == ("ran", 1)
    assert told.startswith(f"{orders.database}.orders|20")
    assert ", 1 partitions, 1 files, " in told
    assert tried(orders.uri)[:2] == ("kept", 1)
    CHANGES[change](orders)
    assert tried(orders.uri)[:2] == ("ran", 2)
    assert tried(orders.uri)[:2] == ("kept", 2)


@pytest.mark.control
def test_fault_303_control_without_the_comparison_the_old_rows_are_kept(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried(orders.uri)
    monkeypatch.setattr(evaluation, "_changed_external", lambda *_: None)
    orders.add("2", "2\n")
    assert tried(orders.uri)[:2] == ("kept", 1)


@pytest.mark.parametrize("location", ["hdfs://nowhere/orders", "viewfs:///orders", "wasbs://c@a/orders"])
def test_files_that_no_store_of_this_deployment_reaches_are_not_listed(location: str) -> None:
    assert _files(lambda uri: pytest.fail(f"{uri} was opened"), location) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": {"spark.sql.sources.provider": "delta"}}, r"found one of Delta: declare it as delta\+"),
        ({"parameters": {"table_type": "ICEBERG"}}, "found one of Iceberg: declare it as iceberg://"),
        ({"tableType": "VIRTUAL_VIEW"}, "expected a table, found a view"),
    ],
)
def test_what_the_metastore_can_not_tell_the_state_of_is_refused(
    orders: Orders, changes: dict[str, Any], said: str
) -> None:
    orders.set(**changes)
    with pytest.raises(FAILS, match=said):
        tried(orders.uri)


def test_a_table_that_is_not_there_and_a_metastore_that_gives_no_answer_are_named(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FAILS, match="the metastore answered, and it has no such table"):
        tried("hive://meta/shop.returns")
    with pytest.raises(FAILS, match="expected the connection 'nowhere' with the address of a Hive metastore"):
        tried("hive://nowhere/shop.orders")
    extra = json.dumps({"uri": "thrift://127.0.0.1:1"})
    monkeypatch.setenv("AIRFLOW_CONN_META", json.dumps({"conn_type": "generic", "extra": extra}))
    with pytest.raises(FAILS, match=r"expected an answer of the metastore at 127\.0\.0\.1:1, found"):
        tried(orders.uri)


@pytest.mark.parametrize(
    "unfit", ["hive://meta/orders", "hive:/meta/shop.orders", "hive://meta/a.b.c", "hive+s3://b/t"]
)
def test_what_is_not_written_like_a_table_is_refused_when_the_dag_is_parsed(unfit: str) -> None:
    with pytest.raises(RecoveryError, match=r"t: input 'orders': expected"):
        reader(unfit)


def test_it_is_no_output() -> None:
    with pytest.raises(RecoveryError, match="output 'out': expected a table that keeps snapshots"):
        Bash(task_id="t", outputs={"out": "hive://meta/shop.orders"}, bash_command="true")
