"""The one commit of an attempt to the table whose snapshot its result is."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.driver.region_spec import RegionSpec, VertexSpec
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.results.tables import tag_of, token_of


@dataclass(frozen=True)
class TableCommit:
    """What is committed: ``result``, to ``table``, by ``attempt``.

    ``lineage``: of all attempts of this result in this run, of which a table takes only newer ones. ``token``: of this
    attempt alone. ``tag`` keeps the snapshot from being expired; `None` where nobody else reads it.
    """

    result: str
    table: str
    lineage: str
    attempt: int
    token: str
    tag: str | None

    @classmethod
    def of(cls, spec: RegionSpec, vertex: VertexSpec) -> TableCommit:
        """That of ``vertex``, whose result is a table's snapshot."""
        if vertex.table is None:
            raise JobDefinitionError(f"{vertex.name}: expected a table, found none.")
        key = RegionKey.of(spec.identity, spec.region)
        return cls(
            vertex.name,
            vertex.table.uri,
            f"{key.path}#{vertex.name}",
            spec.attempt,
            token_of(key, spec.attempt, spec.trace.writer),
            tag_of(spec.journal.uri, key, spec.attempt) if vertex.table.is_read else None,
        )

    def held(self, found: str) -> str:
        """For people: why the table does not take it."""
        return (
            f"{self.table}: expected to commit {self.token}, found {found} of {self.result!r} there. This attempt was "
            "given up, and a later one counts; or the journal was lost, moved or emptied since, and attempts are "
            "counted anew: then clear the task until there were as many, or give the vertex another table"
        )
