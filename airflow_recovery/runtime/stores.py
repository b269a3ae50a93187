"""Opening the stores that a region spec names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.runtime.spec import StoreSpec

if TYPE_CHECKING:
    from airflow_recovery.storage.object_store import ObjectStore


def open_spec_store(spec: StoreSpec) -> ObjectStore:
    """The store at ``spec.uri``. Credentials come from the environment of this process."""
    from airflow_recovery.storage.opening import open_store

    return open_store(spec.uri, endpoint_url=spec.endpoint_url, region_name=spec.region_name)
