"""The tables that this deployment can ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.hooks.sinks import AirflowSinkResources
from airflow_recovery.locations import TableLocation
from airflow_recovery.results.tables import Tables

if TYPE_CHECKING:
    from airflow_recovery.hooks.stores import Stores

_NO_SECRETS = frozenset(
    (
        *("type", "warehouse", "prefix", "py-io-impl", "client.region", "scope", "audience", "oauth2-server-uri"),
        *("s3.endpoint", "s3.region", "s3.connect-timeout", "s3.force-virtual-addressing"),
        *("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name"),
        *("glue.id", "glue.region", "glue.endpoint", "init_catalog_tables", "pool_pre_ping"),
    )
)
"""Pyiceberg's properties of catalogs in which nobody writes a secret."""


def tables_of(stores: Stores) -> Tables:
    """With Airflow's connections as catalogs, and the stores' credentials where a catalog's properties name none."""
    resources = AirflowSinkResources(stores)
    return Tables(resources.catalog_properties, resources.storage_options, stores.open_location)


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """What of pyiceberg's properties a driver elsewhere may be told. Its address, where no user or option is in it."""
    told = {name: value for name, value in properties.items() if name in _NO_SECRETS}
    address = urlsplit(properties.get("uri", ""))
    if address.scheme and not (address.username or address.password or address.query):
        told["uri"] = properties["uri"]
    return told


def check_reachable(location: TableLocation, properties: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for a catalog that is in this process, or in a file of this machine."""
    kind, address = properties.get("type", ""), properties.get("uri", "")
    if kind == "in-memory" or address.startswith("sqlite"):
        raise ConfigurationError(
            f"{location.uri}: expected a catalog that a driver in deploy mode cluster can ask, found one of "
            f"{'this process' if kind == 'in-memory' else 'a file of this machine (sqlite)'} alone: take a REST "
            "catalog, or an SQL catalog in a database that listens to the cluster, or deploy mode client."
        )
