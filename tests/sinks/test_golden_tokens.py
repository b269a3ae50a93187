"""What sinks write into their targets beside the rows: found again by versions before and after, for ever.

    tests/golden/tokens-v1.json     of one token: columns and row, transactions, properties of a snapshot
    tests/golden/tokens-v2.json     the same, of a version that also writes down whose rows a target holds

The file is never written again: another form gets a file beside it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pytest
from staging import Resources, Warehouse, token
from test_delta_sink import Lake as DeltaLake
from test_iceberg_sink import ROWS
from test_iceberg_sink import Lake as IcebergLake

from airflow_recovery.sinks import PostgresTable, Probe
from airflow_recovery.store.local import LocalStore

GOLDEN = Path(__file__).parents[1] / "golden"
FORMS = ["tokens-v1", "tokens-v2"]
TOKEN = replace(token(3), writer="w1")
OF_ANOTHER_WRITER = replace(TOKEN, writer="w2")
OF_NO_WRITER = replace(TOKEN, writer=None)


def golden(target: str, form: str = FORMS[-1]) -> Any:
    return json.loads((GOLDEN / f"{form}.json").read_text(encoding="utf-8"))[target]


@pytest.fixture
def delta(tmp_path: Path) -> DeltaLake:
    return DeltaLake(str(tmp_path / "lake"), LocalStore(str(tmp_path / "results")), Resources())


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergLake:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    return IcebergLake(tmp_path, catalog)


def in_postgres(warehouse: Warehouse) -> dict[str, Any]:
    """The table of tokens. The target's name is without the schema, which is the test's own."""
    tokens = f"{warehouse.schema}.airflow_recovery_commits"
    columns = warehouse.ask(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        tokens,
    )
    rows = warehouse.ask(f"SELECT lineage, target, attempt, writer, replaces FROM {tokens}")
    return {
        "columns": [list(column) for column in columns],
        "rows": [[lineage, target.removeprefix(f"{warehouse.schema}."), *rest] for lineage, target, *rest in rows],
    }


def in_delta(lake: DeltaLake) -> dict[str, Any]:
    [log] = Path(lake.uri).glob("_delta_log/*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    transactions = [action["txn"] for action in actions if "txn" in action]
    [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return {
        "transactions": sorted([each["appId"], each["version"]] for each in transactions),
        "commit info": info["airflow_recovery"],
        "owner": {name: value for name, value in info.items() if name.startswith("airflow_recovery_")},
    }


def in_iceberg(lake: IcebergLake) -> dict[str, str]:
    snapshot = lake.catalog.load_table("db.t").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    properties = snapshot.summary.additional_properties
    return {name: value for name, value in properties.items() if name.startswith("airflow-recovery")}


def test_this_version_writes_the_golden_row_into_postgresql(warehouse: Warehouse) -> None:
    sink = PostgresTable(conn_id="warehouse", table=warehouse.table, mode="append")
    sink.open(warehouse.resources).commit(replace(warehouse.committable(3), token=TOKEN))
    assert in_postgres(warehouse) == golden("postgresql")


def test_this_version_writes_the_golden_transactions_into_delta(delta: DeltaLake) -> None:
    delta.committer().commit(replace(delta.committable(3), token=TOKEN))
    assert in_delta(delta) == golden("delta")


def test_this_version_writes_the_golden_properties_into_iceberg(iceberg: IcebergLake) -> None:
    iceberg.committer().commit(replace(iceberg.committable(3), token=TOKEN))
    assert in_iceberg(iceberg) == golden("iceberg")


@pytest.mark.parametrize(("form", "has_writer"), [("tokens-v2", True), ("tokens-v1", True), ("tokens-v1", False)])
def test_fault_39_a_token_in_postgresql_is_found_for_ever(warehouse: Warehouse, form: str, has_writer: bool) -> None:
    given = golden("postgresql", form)
    columns = [f"{name} {kind}" for name, kind in given["columns"] if has_writer or name != "writer"]
    tokens = f"{warehouse.schema}.airflow_recovery_commits"
    warehouse.ask(f"CREATE TABLE {tokens} ({', '.join(columns)})")
    [[lineage, target, attempt, writer, *_]] = given["rows"]
    names, values = ["lineage", "target", "attempt"], [lineage, f"{warehouse.schema}.{target}", attempt]
    if has_writer:
        names, values = [*names, "writer"], [*values, writer]
    warehouse.ask(f"INSERT INTO {tokens} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})", *values)
    into = PostgresTable(conn_id="warehouse", table=warehouse.table, mode="append").open(warehouse.resources)
    found = {each.writer for each in (TOKEN, OF_ANOTHER_WRITER, OF_NO_WRITER) if into.probe(each) is Probe.APPLIED}
    assert found == ({"w1"} if has_writer else {None})


@pytest.mark.parametrize("form", FORMS)
def test_fault_39_a_token_in_delta_is_found_for_ever(delta: DeltaLake, form: str) -> None:
    transactions = [deltalake.Transaction(name, version) for name, version in golden("delta", form)["transactions"]]
    deltalake.write_deltalake(
        delta.uri,
        pyarrow.table({"carrier": ["AA"]}),
        commit_properties=deltalake.CommitProperties(app_transactions=transactions),
    )
    into = delta.committer()
    assert [into.probe(each) for each in (TOKEN, OF_ANOTHER_WRITER)] == [Probe.APPLIED, Probe.NOT_APPLIED]


@pytest.mark.parametrize("form", FORMS)
def test_fault_39_a_token_in_iceberg_is_found_for_ever(iceberg: IcebergLake, form: str) -> None:
    iceberg.catalog.load_table("db.t").append(ROWS, snapshot_properties=golden("iceberg", form))
    into = iceberg.committer()
    assert [into.probe(each) for each in (TOKEN, OF_ANOTHER_WRITER)] == [Probe.APPLIED, Probe.NOT_APPLIED]
