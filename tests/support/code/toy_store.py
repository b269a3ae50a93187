"""A store of a user's own, and all that this package knows of it: ``toy://box/...`` is a folder behind a password.

The folder is ``TOY_ROOT`` of the environment. The connection ``toy_conn_id`` has the password.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.store import ConnectionFields, ObjectInfo, StoreAccess, StoredObject, StoreScheme
from airflow_recovery.store.local import LocalStore

PASSWORD = "open sesame"


def folder_of(uri: str) -> str:
    return f"{os.environ['TOY_ROOT']}/{uri.partition('://')[2]}"


class ToyStore:
    """Every request is refused without the password."""

    def __init__(self, uri: str, password: str) -> None:
        self._uri, self._password = uri.rstrip("/"), password
        self._folder = LocalStore(folder_of(self._uri))

    @property
    def base_uri(self) -> str:
        return self._uri

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        return self._allowed().put_if_absent(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        return self._allowed().put(key, body)

    def get(self, key: str, max_bytes: int | None = None) -> StoredObject:
        return self._allowed().get(key, max_bytes)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._allowed().list(prefix, start_after=start_after)

    def delete(self, keys: Iterable[str]) -> None:
        self._allowed().delete(keys)

    def _allowed(self) -> LocalStore:
        if self._password != PASSWORD:
            raise StoreAccessDenied(f"{self._uri}: expected the password, found another one. Correct the connection.")
        return self._folder


class ToyScheme(StoreScheme):
    name = "toy"
    form = "toy://<box>/<prefix>"
    bucket_word = "box"
    conn_option = "toy_conn_id"
    conn_type = "toy"

    def store_at(
        self,
        uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        waits: Mapping[str, Any] | None = None,
    ) -> ToyStore:
        return ToyStore(uri, (access.options if access else {}).get("password", ""))

    def access(self, connection: ConnectionFields, location: str) -> StoreAccess:
        return StoreAccess({"password": connection.of_type(self.conn_type).password or ""})

    def spark_uri(self, uri: str) -> str:
        """No file system of Hadoop's knows a toy, but each knows the folder."""
        return f"file://{folder_of(uri)}"


SCHEME = ToyScheme()
