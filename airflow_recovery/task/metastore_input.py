"""Tables of a Hive metastore as inputs of an operator: known by what the metastore has of them, and by their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_recovery.checks import shown
from airflow_recovery.errors import ConfigurationError, JobDefinitionError, ObjectMissing, StoreUnavailable
from airflow_recovery.hooks.sinks import AirflowSinkResources
from airflow_recovery.locations import EXPECTED_TABLE, MetastoreTable, comparable, scheme_of
from airflow_recovery.model.location import is_hidden_from_spark
from airflow_recovery.model.records import ExternalObject

if TYPE_CHECKING:
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.store.object_store import ObjectStore

_TIMEOUT_MS = 30_000
_EVERY = -1
_DIGEST_LENGTH = 12
_WITH_SNAPSHOTS = {"delta": "delta+<the location of its folder>", "iceberg": "iceberg://<catalog>/<database>.<table>"}


def metastore_input(stores: Stores, uri: str, name: str) -> ExternalObject:
    """The table at ``uri`` (`MetastoreTable`) as it is now, as the external input ``name``.

    Its ``etag`` is a text: the newest time that the metastore has of the table and its partitions, their number, the
    number of files, and a digest of all of it with columns, parameters and locations. ``size``: the bytes of the files.
    They are listed where this deployment has a store for their location. Elsewhere (``hdfs://``) only the metastore's
    answer counts.

    Raises `ObjectMissing` for a table that is not there, `JobDefinitionError` for a view and for a table that keeps
    snapshots, `ConfigurationError` for a connection without an address, and `StoreUnavailable` if nobody answers.
    """
    table = MetastoreTable.parse(uri)
    with _metastore(table, AirflowSinkResources(stores).catalog_properties(table.catalog)) as ask:
        found: Any = ask("get_table", table.database, table.table)
        _check_kind(table, found)
        partitions: list[Any] = []
        if found.partitionKeys:
            partitions = ask("get_partitions", table.database, table.table, _EVERY)
    files = [file for root in _roots(found, partitions) for file in _files(stores.open_answered, root)]
    parts = sorted(
        [list(part.values), part.createTime, sorted((part.parameters or {}).items()), part.sd.location]
        for part in partitions
    )
    columns = [[column.name, column.type] for column in (*found.sd.cols, *(found.partitionKeys or ()))]
    own = [found.createTime, sorted((found.parameters or {}).items()), found.sd.location, columns]
    digest = hashlib.sha256(json.dumps([own, parts, sorted(files)]).encode()).hexdigest()[:_DIGEST_LENGTH]
    times = [_time(each) for each in (found, *partitions)]
    newest = datetime.fromtimestamp(max(times), timezone.utc).isoformat()
    text = f"{newest}, {len(partitions)} partitions, {len(files)} files, {digest}"
    return ExternalObject(name, table.uri, sum(size for _, size, _ in files), text)


@contextmanager
def _metastore(table: MetastoreTable, properties: dict[str, str]) -> Iterator[Callable[..., Any]]:
    """Yields what calls a method of the metastore."""
    try:
        from hive_metastore.ThriftHiveMetastore import Client  # type: ignore[import-untyped]
        from hive_metastore.ttypes import (  # type: ignore[import-untyped]
            NoSuchObjectException,
            UnknownDBException,
        )
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # type: ignore[import-untyped]
        from thrift.transport.TSocket import TSocket  # type: ignore[import-untyped]
        from thrift.transport.TTransport import (  # type: ignore[import-untyped]
            TBufferedTransport,
            TTransportException,
        )
    except ImportError as error:
        raise ConfigurationError(
            f"{table.uri}: expected pyiceberg with its client of Hive metastores in the worker's environment, found: "
            f"{error}. Install airflow-recovery[hive]."
        ) from error
    address = urlsplit(properties.get("uri", ""))
    if address.scheme != "thrift" or not address.hostname:
        raise ConfigurationError(
            f"{table.uri}: expected the connection {table.catalog!r} with the address of a Hive metastore as uri in "
            f"its extra, such as thrift://metastore:9083, found {shown(properties.get('uri'))}: define it"
        )
    socket = TSocket(address.hostname, address.port or 9083)
    socket.setTimeout(_TIMEOUT_MS)
    transport = TBufferedTransport(socket)
    client = Client(TBinaryProtocol(transport))

    def ask(method: str, *arguments: Any) -> Any:
        try:
            return getattr(client, method)(*arguments)
        except (NoSuchObjectException, UnknownDBException):
            raise ObjectMissing(
                f"{table.uri}: the metastore answered, and it has no such table. Check its name and its database"
            ) from None

    try:
        transport.open()
        yield ask
    except (TTransportException, OSError) as error:
        raise StoreUnavailable(
            f"{table.uri}: expected an answer of the metastore at {address.hostname}:{address.port or 9083}, found: "
            f"{error}. The next try asks again"
        ) from error
    finally:
        transport.close()


def _check_kind(table: MetastoreTable, found: Any) -> None:
    if "VIEW" in str(found.tableType):
        raise JobDefinitionError(
            f"{table.uri}: expected a table, found a view ({found.tableType}), of whose rows the metastore knows "
            "nothing: declare the tables that it reads"
        )
    parameters = found.parameters or {}
    named = (parameters.get("spark.sql.sources.provider", ""), parameters.get("table_type", ""))
    kind = next((kind for kind in _WITH_SNAPSHOTS if kind in (name.lower() for name in named)), None)
    if kind is not None:
        raise JobDefinitionError(
            f"{table.uri}: expected a table without snapshots, found one of {kind.title()}: declare it as "
            f"{_WITH_SNAPSHOTS[kind]} ({EXPECTED_TABLE}), then the job is told which snapshot to read"
        )


def _time(found: Any) -> int:
    """Seconds since 1970: of a table or a partition the time of its last change, as far as the metastore has it."""
    changed = (found.parameters or {}).get("transient_lastDdlTime", "0")
    return max(int(changed) if changed.isdecimal() else 0, int(found.createTime or 0))


def _roots(found: Any, partitions: list[Any]) -> list[str]:
    """The folders that have all files: none lies inside another one."""
    locations = {str(part.sd.location).rstrip("/") for part in (found, *partitions) if part.sd and part.sd.location}
    roots: list[str] = []
    for location in sorted(locations):
        if not any(location.startswith(f"{root}/") for root in roots):
            roots.append(location)
    return roots


def _files(open_location: Callable[[str], ObjectStore], root: str) -> list[tuple[str, int, str]]:
    if scheme_of(root) is None and not comparable(root).startswith("file:/"):
        return []
    return [
        (f"{root}/{info.key}", info.size, info.etag)
        for info in open_location(root).list()
        if not any(is_hidden_from_spark(part) for part in info.key.split("/"))
    ]
