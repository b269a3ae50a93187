"""Opens the store that a URI names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.locations import expected
from airflow_recovery.store.allowed import NO_LIMITS, Limits, Reach, Source, decide
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.scheme import StoreAccess
from airflow_recovery.store.schemes import scheme_for


def open_store(
    uri: str,
    *,
    source: Source = Source.SETTING,
    limits: Limits = NO_LIMITS,
    endpoint_url: str | None = None,
    region_name: str | None = None,
    access: StoreAccess | None = None,
    waits: Mapping[str, Any] | None = None,
) -> ObjectStore:
    """The store at ``uri``, which is written as `airflow_recovery.locations` says.

    Makes no request yet. ``access`` has the credentials and the address. Without it, the address is ``endpoint_url``,
    and credentials come from the client's own chain: the environment, a profile, or the machine's role. ``source``:
    where ``uri`` was read. ``waits``: as `StoreScheme.store_at`. Raises `LocationNotAllowed` as `decide`, and
    `ConfigurationError` for any other URI.
    """
    decide(uri, source, limits, Reach(endpoint_url if access is None else access.endpoint_url))
    scheme = scheme_for(uri)
    if scheme is None:
        raise ConfigurationError(
            f"Expected {expected()}, found {uri!r}. Other stores are not supported: give the location as one of these.",
            code="store-unknown",
        )
    return scheme.store_at(uri, access or scheme.access_at(endpoint_url, region_name), waits=waits)
