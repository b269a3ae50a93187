"""The kinds of stores that this process knows, and how a process gets to know one that another package has added."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from airflow_recovery import locations
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.local import SCHEME as FOLDER
from airflow_recovery.store.scheme import StoreScheme, StoreSpec

_OURS = "airflow_recovery."


def registered() -> tuple[StoreScheme, ...]:
    """Every kind of object store, each once. A folder is none."""
    return tuple(dict.fromkeys(map(_whole, locations.schemes().values())))


def scheme_for(location: str) -> StoreScheme | None:
    """The kind of the store at ``location``: an object store, or a folder. `None` if no store is meant."""
    if location.startswith(("/", "file:")):
        return FOLDER
    scheme = locations.scheme_at(location)
    return None if scheme is None else _whole(scheme)


def register(scheme: StoreScheme) -> None:
    """Let locations of ``scheme`` be used in this process, and in the drivers that it starts.

    A package that all components have installed needs no call: it names its object in an entry point of the group
    ``airflow_recovery.stores``, by the scheme's name. Raises `ConfigurationError`.
    """
    locations.register(_whole(scheme))


def reference_to(scheme: StoreScheme) -> str | None:
    """The class of a scheme that another package has added, as ``module:name``; `None` for one of ours."""
    kind = type(scheme)
    return None if kind.__module__.startswith(_OURS) else f"{kind.__module__}:{kind.__qualname__}"


def know(*specs: StoreSpec) -> None:
    """Register the schemes of these stores in this process. Raises `ConfigurationError` if one can't be imported."""
    for reference in {spec.scheme for spec in specs if spec.scheme is not None}:
        module, _, name = reference.partition(":")
        try:
            kind = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"Expected the scheme of a store at {reference}, found none that can be imported here ({error}). Put "
                "the class at the top of a module that has the same name in every process."
            ) from error
        register(kind())


def packages_of(*specs: StoreSpec) -> list[str]:
    """The packages with the schemes of these stores, for the archive of a driver's code."""
    return sorted({spec.scheme.partition(":")[0].partition(".")[0] for spec in specs if spec.scheme is not None})


def _whole(scheme: Any) -> StoreScheme:
    if not isinstance(scheme, StoreScheme):
        raise ConfigurationError(
            f"Expected an object of a subclass of airflow_recovery.store.StoreScheme as the scheme of a store, found "
            f"{scheme!r}. Name such an object."
        )
    return scheme
