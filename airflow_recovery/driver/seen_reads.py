"""What the vertices of a region are seen to read besides their inputs: tables and files that nobody has declared.

The *analysed* plan of each frame is walked, in classic sessions. It has no part that Spark has computed already: rows
that the driver has collected, a checkpoint, an RDD. Over Spark Connect there is no plan to look at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.paths import as_decoded
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.job.sources import EnumeratedSource
from airflow_recovery.locations import comparable, is_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_recovery.job import Vertex

_SNAPSHOTS: tuple[Callable[[Any], Any], ...] = (
    lambda table: table.version(),
    lambda table: table.table().currentSnapshot().snapshotId(),
)
"""How a table of a catalog names the snapshot that is read: Spark's own way, and Iceberg's."""


class SeenReads:
    """Collects what is read without a declaration, for the outcome of an attempt."""

    def __init__(self, spec: RegionSpec, log: logging.Logger) -> None:
        self._log = log
        self._folders = [as_decoded(location) for location in (*(each.location for each in spec.inputs), spec.location)]
        self._tables = [vertex.table.uri for vertex in spec.vertices if vertex.table is not None]
        self._files = [as_decoded(external.uri) for external in spec.trace.externals]
        self._vertices: set[str] = set()
        self._declared: set[str] = set()
        self._found: dict[str, None] = {}

    @property
    def found(self) -> tuple[str, ...]:
        """Each table or folder as a text, with the snapshot if it has one."""
        return tuple(self._found)

    def look(self, frame: DataFrame, vertex: Vertex) -> None:
        """Note what ``frame``, the result of ``vertex``, reads. Once a vertex, and never the cause of a failure.

        A vertex that names the state of what it reads, by a version or by splits that hold it, has declared that.
        """
        if vertex.name in self._vertices:
            return
        self._vertices.add(vertex.name)
        names_states = bool(vertex.versions) or (
            isinstance(vertex.splits, EnumeratedSource) and vertex.splits.names_content
        )
        try:
            plan = getattr(frame, "_jdf", None)
            reads = () if plan is None else tuple(_reads(plan.queryExecution().analyzed()))
        except Exception as error:
            self._log.debug("What %s reads could not be looked at: %s", vertex.name, error)
            return
        if names_states:
            self._declared |= {text for text, _ in reads}
        for text, folder in reads:
            if text in self._declared:
                continue
            if text not in self._found and not (folder and self._is_declared(comparable(folder))):
                self._found[text] = None
                self._log.warning(
                    "%s reads %s, which is not declared: recovery does not notice if it changes. Declare it with "
                    "splits=, or the source with inputs={...: Version(...)}.",
                    vertex.name,
                    text,
                )

    def _is_declared(self, folder: str) -> bool:
        """What is declared lies at or below ``folder``, or it lies below a declared folder."""
        below = f"{folder.rstrip('/')}/"
        return any(f"{file}/".startswith(below) for file in self._files) or any(
            below.startswith(f"{known.rstrip('/')}/")
            for known in (*self._folders, *(uri.partition("+")[2] for uri in self._tables if is_table(uri)))
        )


def _reads(node: Any) -> Iterator[tuple[str, str]]:
    """What the leaves of a plan read: the text, and the folder of files that have no name in a catalog."""
    for each in (*_seq(node.children()), *_seq(node.subqueries())):
        yield from _reads(each)
    name = node.getClass().getSimpleName()
    if name == "WithCTE":
        yield from (read for definition in _seq(node.cteDefs()) for read in _reads(definition))
    elif name == "HiveTableRelation":
        yield f"table {node.tableMeta().identifier().unquotedString()}", ""
    elif name == "DataSourceV2Relation":
        yield _of_catalog(node), ""
    elif name == "LogicalRelation":
        yield from _of_relation(node)


def _of_catalog(node: Any) -> str:
    table = node.table()
    catalog = f"{node.catalog().get().name()}." if node.catalog().isDefined() else ""
    text = f"table {str(table.name()).removeprefix(catalog).join((catalog, ''))}"
    for snapshot in _SNAPSHOTS:
        with suppress(Exception):
            version = snapshot(table)
            if version is not None:
                return f"{text} at snapshot {version}"
    return text


def _of_relation(node: Any) -> Iterator[tuple[str, str]]:
    relation = node.relation()
    kind = relation.getClass().getSimpleName()
    if node.catalogTable().isDefined():
        yield f"table {node.catalogTable().get().identifier().unquotedString()}{_version_of(relation)}", ""
    elif kind == "HadoopFsRelation":
        for path in _seq(relation.location().rootPaths()):
            version = _version_of(relation)
            yield f"{'table' if version else 'files'} {path.toString()}{version}", path.toString()
    elif kind == "JDBCRelation":
        yield f"table {relation.jdbcOptions().tableOrQuery()} of a database", ""


def _version_of(relation: Any) -> str:
    """Of a Delta table, whose files Spark finds in its log."""
    with suppress(Exception):
        return f" at snapshot {relation.location().tableVersion()}"
    return ""


def _seq(sequence: Any) -> Iterator[Any]:
    """A Scala sequence."""
    for at in range(sequence.size()):
        yield sequence.apply(at)
