"""The kinds of stores that this process knows."""

from __future__ import annotations

from airflow_recovery import locations
from airflow_recovery.store.local import SCHEME as FOLDER
from airflow_recovery.store.scheme import StoreScheme


def registered() -> tuple[StoreScheme, ...]:
    """Every kind of object store, each once. A folder is none."""
    return tuple(dict.fromkeys(map(_whole, locations.schemes().values())))


def scheme_for(location: str) -> StoreScheme | None:
    """The kind of the store at ``location``: an object store, or a folder. `None` if no store is meant."""
    if location.startswith(("/", "file:")):
        return FOLDER
    scheme = locations.scheme_at(location)
    return None if scheme is None else _whole(scheme)


def _whole(scheme: locations.UriScheme) -> StoreScheme:
    assert isinstance(scheme, StoreScheme)
    return scheme
