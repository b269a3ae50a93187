"""Sources: which objects an external input names today, and what the subtasks of a source share (coordinators).

Listing describes; it opens no object for its content (but local files, whose etag is their hash). This room knows
nothing of Spark or Airflow. Of it, `airflow_recovery.source.coordinator` is read wherever a DAG file is parsed, so the
rest is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_recovery.source.coordinator import BATCH_CHECKPOINT_ID, OperatorCoordinator

if TYPE_CHECKING:
    from airflow_recovery.source.inventory import list_objects

__all__ = ["BATCH_CHECKPOINT_ID", "OperatorCoordinator", "list_objects"]


def __getattr__(name: str) -> Any:
    if name == "list_objects":
        from airflow_recovery.source.inventory import list_objects

        return list_objects
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
