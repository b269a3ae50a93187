"""What a deployment lends to the committers of sinks: Airflow's connections, and the stores' credentials."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.hooks.stores import Stores
from airflow_recovery.locations import DELTA, ICEBERG
from airflow_recovery.sinks import CommitSpec, Committer, DatabaseAddress, sink_of
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.schemes import registered, scheme_for

if TYPE_CHECKING:
    from airflow.sdk import Connection


class AirflowSinkResources:
    """What a task lends to committers, as `airflow_recovery.sinks.SinkResources`: databases, stores, S3 options."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def database(self, conn_id: str) -> DatabaseAddress:
        """A connection's address; its extra's texts and numbers are options. Raises `ConfigurationError`."""
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            connection: Connection = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"Expected the connection {conn_id!r} that a sink commits to, found none that can be read here: define "
                "it.",
                code="sink-connection-missing",
                connection=conn_id,
            ) from error
        extra = connection.extra_dejson or {}
        return DatabaseAddress(
            host=connection.host,
            port=connection.port,
            database=connection.schema,
            user=connection.login,
            password=connection.password,
            options=tuple(sorted((str(key), str(value)) for key, value in extra.items() if type(value) in (str, int))),
        )

    def open_location(self, location: str) -> ObjectStore:
        """The results of this deployment, or a user's own location, reached in the same way."""
        return self._stores.open_location(location)

    def storage_options(self, location: str) -> dict[str, str]:
        """delta-rs' names of what a Spark driver gets in its environment. Empty if delta-rs looks there by itself.

        Raises `LocationNotAllowed`.
        """
        self._stores.check(f"{DELTA}{location}")
        scheme = scheme_for(location)
        return {} if scheme is None else scheme.delta_rs_options(self._stores.results_spec, self._environment())

    def catalog_properties(self, name: str) -> dict[str, str]:
        """The extra of the Airflow connection ``name``, if there is one, over what reaches the results' stores.

        Its host is the ``uri`` where the extra has none, its login and password the ``credential``. Raises
        `LocationNotAllowed` for a catalog that a run's conf or a record has chosen.
        """
        self._stores.check(f"{ICEBERG}{name}")
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        properties: dict[str, str] = {}
        environment = self._environment()
        for scheme in registered():
            properties |= scheme.pyiceberg_properties(self._stores.results_spec, environment)
        try:
            connection: Connection = BaseHook.get_connection(name)
        except AirflowNotFoundException:
            return properties
        own = {key: str(value) for key, value in (connection.extra_dejson or {}).items()}
        if connection.host:
            own.setdefault("uri", connection.host)
        if connection.login and connection.password:
            own.setdefault("credential", f"{connection.login}:{connection.password}")
        return properties | own

    def _environment(self) -> dict[str, str]:
        """That of a Spark driver."""
        return {**os.environ, **self._stores.driver_env()}


def open_committers(stores: Stores) -> Callable[[CommitSpec], Committer]:
    """The way to the target of whatever sink; nothing is asked of Airflow before it is used."""
    resources = AirflowSinkResources(stores)
    return lambda spec: sink_of(spec).open(resources)
