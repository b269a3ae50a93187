"""Tables that sinks commit to, and the Airflow connection by which they find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg2

from airflow_recovery.testing.local_airflow import LocalAirflow


class Warehouse:
    """A database of its own in the server that holds Airflow's; each of ``tables`` has one column, ``id``."""

    def __init__(self, airflow: LocalAirflow, tables: Sequence[str]) -> None:
        server = airflow.database_address
        self._airflow = airflow
        self._tables = ", ".join(tables)
        self._server = connected(server)
        ask(self._server, "CREATE DATABASE warehouse")
        self._ours = connected({**server, "dbname": "warehouse"})
        for table in tables:
            ask(self._ours, f"CREATE TABLE {table} (id bigint)")
        where = {"host": server["host"], "port": server["port"], "login": server["user"]}
        self.connection = {"conn_type": "postgres", "schema": "warehouse", **where, "password": server["password"]}
        airflow.api("POST", "/connections", {"connection_id": "warehouse", **self.connection})

    def lock(self) -> None:
        """Nobody else gets any further with any table."""
        ask(self._ours, "BEGIN")
        ask(self._ours, f"LOCK TABLE {self._tables} IN ACCESS EXCLUSIVE MODE")

    def unlock(self) -> None:
        ask(self._ours, "COMMIT")

    def waiting(self) -> int:
        """How many are inside their commits, and wait for the lock."""
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'warehouse' AND wait_event_type = 'Lock'"
        return int(ask(self._server, waits)[0][0])

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return ask(self._ours, statement)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT id FROM {table} ORDER BY id")

    def close(self) -> None:
        """Nothing of it is left, whoever is connected to it."""
        self._airflow.api("DELETE", "/connections/warehouse")
        self._ours.close()
        ask(self._server, "DROP DATABASE warehouse WITH (FORCE)")
        self._server.close()


def connected(address: dict[str, str | int]) -> Any:
    # The server ends transactions that do nothing: ours holds a lock for as long as it is needed.
    found = psycopg2.connect(**address, options="-c idle_in_transaction_session_timeout=0")
    found.autocommit = True
    return found


def ask(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []
