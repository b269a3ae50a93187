"""Opening the stores that a region spec names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from airflow_recovery.store.scheme import OWN_CREDENTIALS, StoreSpec
from airflow_recovery.store.schemes import know, scheme_for

if TYPE_CHECKING:
    from airflow_recovery.store.object_store import ObjectStore


def catalog_variable(name: str) -> str:
    """The variable with pyiceberg's properties of the catalog ``name``, as JSON: Spark passes it to nobody."""
    return f"{OWN_CREDENTIALS}{blake2b(name.encode(), digest_size=8).hexdigest().upper()}_CATALOG"


def lend_catalogs(catalogs: Mapping[str, Mapping[str, str]]) -> None:
    """Let this process find the catalogs of its spec, where its environment does not say more about them."""
    for name, properties in catalogs.items():
        os.environ.setdefault(catalog_variable(name), json.dumps(properties))


def open_spec_store(spec: StoreSpec, waits: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store at ``spec.uri``. Credentials come from the environment of this process.

    ``waits``: as `airflow_recovery.store.opening.open_store` has them.
    """
    from airflow_recovery.store.allowed import Source
    from airflow_recovery.store.opening import open_store

    know(spec)
    scheme = scheme_for(spec.uri)
    access = None if scheme is None else scheme.access_in_driver(spec, os.environ)
    return open_store(spec.uri, source=Source.SETTING, access=access, waits=waits)
