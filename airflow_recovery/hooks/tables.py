"""The tables that this deployment can ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.hooks.sinks import AirflowSinkResources
from airflow_recovery.results.tables import Tables

if TYPE_CHECKING:
    from airflow_recovery.hooks.stores import Stores


def tables_of(stores: Stores) -> Tables:
    """With Airflow's connections as catalogs, and the stores' credentials where a catalog's properties name none."""
    resources = AirflowSinkResources(stores)
    return Tables(resources.catalog_properties, resources.storage_options, stores.open_location)
