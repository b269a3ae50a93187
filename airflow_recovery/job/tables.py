"""Which results may be a table's snapshot (``table=``), and which can't: a table is overwritten as a whole."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.checks import check_location
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.context import RunLike
from airflow_recovery.job.parallelism import Parallelism
from airflow_recovery.job.templates import check_templates, render
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.locations import EXPECTED_TABLE, is_table
from airflow_recovery.model.result_type import BLOCKING


def checked_table(given: object, where: str) -> str | None:
    """``table=`` of a vertex, which may be a template over the run. Raises `JobDefinitionError`."""
    if given is None:
        return None
    table = check_location(given, f"{where}: table=", tables=True)
    if not is_table(table):
        raise JobDefinitionError(
            f"{where}: table=: expected {EXPECTED_TABLE}, found {given!r}: write it like that", code="table-unfit"
        )
    check_templates({"table": table}, where=where)
    return table


def rendered_table(vertex: Vertex, run: RunLike) -> str | None:
    """The table of ``vertex`` in this run, in its one spelling. Raises `JobDefinitionError`."""
    if vertex.table is None:
        return None
    rendered = render({"table": vertex.table}, run, where=vertex.where)["table"]
    table: str = check_location(rendered, f"{vertex.where}: table=", templated=False, tables=True)
    return table


def check_apart(made: Iterable[tuple[str, str]]) -> None:
    """``made``: vertex and table. Raise `JobDefinitionError` for a table that several would overwrite."""
    names: dict[str, str] = {}
    for vertex, table in made:
        other = names.setdefault(table, vertex)
        if other != vertex:
            raise JobDefinitionError(
                f"vertex {vertex!r}: its result is a snapshot of {table}, and so is that of {other!r}: each would "
                "overwrite the other's. Give each a table of its own",
                code="table-of-two",
                vertex=vertex,
                other=other,
                table=table,
            )


def check_tables(vertices: Iterable[tuple[Vertex, Parallelism | None]]) -> None:
    """Raise `JobDefinitionError` for a table that several would overwrite, or that can't be read as one result."""
    made = [(vertex, parallelism, vertex.table) for vertex, parallelism in vertices if vertex.table is not None]
    for vertex, parallelism, table in made:
        where = f"{vertex.where}: its result is a snapshot of {table}"
        for what, is_declared in (
            (f"result={vertex.result.name}", vertex.result is not BLOCKING),
            ("parallelism=", parallelism is not None),
            ("commit=", vertex.sink is not None or bool(vertex.modes)),
        ):
            if is_declared:
                raise JobDefinitionError(
                    f"{where}, and it has {what}: expected one attempt that overwrites the table as a whole, for one "
                    f"run. Leave {what} out, or give another vertex with result=BLOCKING the table",
                    code="table-not-as-a-whole",
                    found=what,
                )
    check_apart((vertex.name, table) for vertex, _, table in made)
