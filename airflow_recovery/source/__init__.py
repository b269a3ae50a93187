"""External inputs of a job: which objects a source or an operator's ``inputs=`` URI names today.

This room lists and describes; it opens no object for its content (but local files, whose etag is their hash) and knows
nothing of Spark or Airflow.
"""

from airflow_recovery.source.inventory import list_objects

__all__ = ["list_objects"]
