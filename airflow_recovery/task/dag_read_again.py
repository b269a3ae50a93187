"""What the DAG's file declares of its recoverable operators, and the same after the file was read a second time."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from airflow_recovery.airflow_compat import DagBag
from airflow_recovery.attempt.run import DeclaredOperators
from airflow_recovery.task.dag_operators import drop_ins_of


def declared_operators(dag: Any) -> DeclaredOperators:
    """What ``dag``, as this process has read it, declares. A digest is made when it is first asked for."""
    root = _root_of(dag)

    @cache
    def own(task_id: str) -> str | None:
        digest: str | None = dag.task_dict[task_id].declared(root)
        return digest

    @cache
    def again() -> dict[str, str | None]:
        read = read_again(dag)
        return {} if read is None else {name: read.task_dict[name].declared(root) for name in drop_ins_of(read)}

    return DeclaredOperators(own, lambda task_id: again().get(task_id))


def declared_now(dag: Any, task_id: str) -> str | None:
    """What ``dag`` declares of one operator, with the files of this machine as they are now."""
    digest: str | None = dag.task_dict[task_id].declared(_root_of(dag))
    return digest


def read_again(dag: Any) -> Any | None:
    """``dag``, as Airflow makes it from its file now; `None` if the file can't be read again.

    Only the DAG's own module is imported a second time. The one that this task runs in stays the imported one.
    """
    before = dict(sys.modules)
    bag: Any = DagBag(dag_folder=dag.fileloc, collect_dags=False, load_op_links=False, bundle_path=Path(_root_of(dag)))
    try:
        read = bag.process_file(dag.fileloc, only_if_updated=False, safe_mode=False)
    finally:
        sys.modules.update(before)
    return next((each for each in read if each.dag_id == dag.dag_id), None)


def _root_of(dag: Any) -> str:
    """The folder of the DAG's bundle; the file's own folder if that is not known."""
    relative = getattr(dag, "relative_fileloc", None)
    if relative and str(dag.fileloc).endswith(f"/{relative}"):
        return str(dag.fileloc).removesuffix(relative)
    return str(Path(dag.fileloc).parent)
