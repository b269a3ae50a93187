"""Prepared results, and the database that they are committed to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow
import pyarrow.parquet

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.sinks import Committable, CommitToken, DatabaseAddress
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.opening import open_store

ROWS: dict[str, list[object]] = {"carrier": ["AA", "UA", None, ""], "delay": [1.5, -2.0, 3.0, None]}


class Resources:
    """The `SinkResources` of a test: one database, local results or those of an S3 server."""

    def __init__(self, address: dict[str, str | int] | None = None, s3: Any = None) -> None:
        self._address = address or {}
        self._s3 = s3

    def database(self, conn_id: str) -> DatabaseAddress:
        given = self._address
        return DatabaseAddress(
            str(given["host"]), int(given["port"]), str(given["dbname"]), str(given["user"]), str(given["password"])
        )

    def open_location(self, location: str) -> ObjectStore:
        return open_store(location) if self._s3 is None else self._s3(location)

    def catalog_properties(self, name: str) -> dict[str, str]:
        return {}

    def storage_options(self, location: str) -> dict[str, str]:
        return {}


def stage(
    store: ObjectStore, name: str, rows: dict[str, list[object]] | pyarrow.Table, files: int = 2
) -> PartitionManifest:
    """``rows`` in so many Parquet files below ``name``, as the driver registers them."""
    table = rows if isinstance(rows, pyarrow.Table) else pyarrow.table(rows)
    objects = []
    for at in range(files):
        body = io.BytesIO()
        part = table.slice(
            at * table.num_rows // files, (at + 1) * table.num_rows // files - at * table.num_rows // files
        )
        pyarrow.parquet.write_table(part, body)
        info = store.put(f"{name}/part-{at}.parquet", body.getvalue())
        objects.append(ResultObject(f"part-{at}.parquet", info.size, info.etag))
    return PartitionManifest("delays", f"{store.base_uri}/{name}", tuple(objects), rows=table.num_rows)


def token(attempt: int = 1, run_key: str = "date-1") -> CommitToken:
    return CommitToken("dag", run_key, "flights", "delays", attempt)


class Warehouse:
    """A table ``delays`` in a schema of its own."""

    def __init__(self, address: dict[str, str | int], schema: str, folder: Path) -> None:
        self.address = address
        self.schema = schema
        self.table = f"{schema}.delays"
        self.store = LocalStore(str(folder))
        self.resources = Resources(address)

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(**self.address)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(query, values)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def rows(self) -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT carrier, delay FROM {self.table} ORDER BY ord")

    def held(self) -> list[tuple[str, int]]:
        return self.ask(f"SELECT lineage, attempt FROM {self.schema}.airflow_recovery_commits ORDER BY lineage")

    def committable(self, attempt: int = 1, rows: Any = None, run_key: str = "date-1") -> Committable:
        manifest = stage(self.store, f"{run_key}/delays/{attempt}", ROWS if rows is None else rows)
        return Committable(token(attempt, run_key), manifest)
