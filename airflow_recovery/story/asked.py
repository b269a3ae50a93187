"""What a question reads (`airflow_recovery.story.question`). The command line and the API server make these objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_recovery.journal.journal import Journal
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.run_view import RunView, view_run


@dataclass(frozen=True)
class AskedRun:
    """A run. ``results``: the store of its channels. `None` for a bundle without them; ``no_results`` says why."""

    journal: Journal
    results: ObjectStore | None
    no_results: str = ""


@dataclass(frozen=True)
class AskedDag:
    """The runs of a DAG. ``group_id``: only runs of this task group. ``read`` reads one run."""

    journal: ObjectStore
    dag_id: str
    group_id: str | None = None
    read: Callable[[Journal], RunView] = view_run
