"""Sources: which splits an input consists of today, who reads which, and what the subtasks of a source share.

Listing describes; it opens no object for its content (but local files, whose etag is their hash). Files are listed in
`inventory`, other splits made in `enumerators`; `split`, `matching` and `assignment` are pure, and `assignment_log`
keeps assignments in the journal. This room knows nothing of Spark or Airflow. What a DAG file's parsing reads of it is
light; the rest is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_recovery.source.batch_snapshot import SupportsBatchSnapshot
from airflow_recovery.source.matching import Vanished
from airflow_recovery.source.split import Split

if TYPE_CHECKING:
    from airflow_recovery.source.inventory import list_objects

__all__ = [
    "Split",
    "SupportsBatchSnapshot",
    "Vanished",
    "list_objects",
]


def __getattr__(name: str) -> Any:
    if name == "list_objects":
        from airflow_recovery.source.inventory import list_objects

        return list_objects
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
