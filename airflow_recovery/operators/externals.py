"""Today's objects of an external input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.source.inventory import list_objects

if TYPE_CHECKING:
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.journal.records import ExternalObject


def list_external(stores: Stores, pattern: str, vertex: str) -> tuple[ExternalObject, ...]:
    """The objects that ``pattern`` names now, reached as the journal is. Raises where there is none."""
    spec = stores.journal_spec if stores.journal_spec.endpoint_url else stores.results_spec
    return list_objects(pattern, vertex=vertex, endpoint_url=spec.endpoint_url, region_name=spec.region_name)
