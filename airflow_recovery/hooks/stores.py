"""Opens the stores of `RecoverySettings`, with the credentials of an Airflow connection if one is named.

Asks the objects of the stores' schemes (`airflow_recovery.store.scheme`), and knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError, LocationNotAllowed
from airflow_recovery.globs import alternatives
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.locations import DELTA, scheme_of, split_uri
from airflow_recovery.store.allowed import Limits, Reach, Source, decide, place_of
from airflow_recovery.store.object_store import SharingStore
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.scheme import ConnectionFields, Lent, StoreAccess, StoreScheme, StoreSpec
from airflow_recovery.store.schemes import reference_to, registered, scheme_for

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_recovery.store.object_store import ObjectStore


@dataclass(frozen=True)
class Timeouts:
    """For how long a request waits, and how often a read is sent."""

    connect_s: float = 10.0
    read_s: float = 30.0
    read_attempts: int = 4

    @property
    def waits(self) -> dict[str, Any]:
        """The same, as `airflow_recovery.store.opening.open_store` has it."""
        return {
            "connect_timeout_s": self.connect_s,
            "read_timeout_s": self.read_s,
            "max_read_attempts": self.read_attempts,
        }


class Stores:
    """Journal and results of this deployment. Talks to nobody until a store is asked for something.

    Every location but these two is a location that a record, or a user who triggers a DAG, may have chosen. Before a
    client is made for it, `decide` must allow it. ``written`` returns the roots that the DAG file names, in a task.
    """

    def __init__(
        self,
        settings: RecoverySettings,
        timeouts: Timeouts | None = None,
        written: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._settings = settings
        self._limits = Limits((settings.journal, settings.results), settings.allowed_locations, written)
        self._timeouts = timeouts or Timeouts()
        self._accesses: dict[tuple[str, str, str], StoreAccess] = {}
        self._opened: dict[tuple[str, str | None, str], SharingStore] = {}

    @cached_property
    def journal(self) -> ObjectStore:
        """The store that holds all journals. Raises `ConfigurationError` for a URI of another kind."""
        return self._open(self._settings.journal, Source.SETTING, is_journal=True)

    @cached_property
    def results(self) -> ObjectStore:
        """The store that holds the managed results of all runs."""
        return self._open(self._settings.results, Source.SETTING)

    @cached_property
    def journal_spec(self) -> StoreSpec:
        """How a Spark driver opens the journal; without credentials (`driver_env`)."""
        return self._spec(self._settings.journal, is_journal=True)

    @cached_property
    def results_spec(self) -> StoreSpec:
        """How a Spark driver opens the results; without credentials (`driver_env`)."""
        return self._spec(self._settings.results)

    def open_external(self, location: str) -> ObjectStore:
        """The store with base URI ``location`` (a user's own input or output), reached as the results are.

        Raises `LocationNotAllowed`.
        """
        return self._open(location, Source.RUN)

    def open_answered(self, location: str) -> ObjectStore:
        """As `open_external`, of a location that a catalog of the deployment has answered. The host is checked."""
        return self._open(location, Source.CATALOG)

    def opener_of(
        self, location: str, conn_id: str | None = None, source: Source = Source.RUN
    ) -> Callable[[str], ObjectStore]:
        """Return a function that opens folders in the bucket of ``location``, a URI or a pattern. Checks it first.

        To find a file, the folder above it is listed. ``conn_id``: a connection of a user's own, for S3 or
        Google's cloud. Raises `LocationNotAllowed`, and `ConfigurationError` if there is no such connection.
        """
        try:
            each_location = alternatives(location)
        except ValueError:  # braces that are no pattern
            each_location = [location]
        for each in each_location:
            self.check(each, conn_id, source)
        roots = {place_of(each).root for each in each_location}
        decided = Source.SETTING  # only the host is looked at again

        def open_at(folder: str) -> ObjectStore:
            place = place_of(folder)
            if place.kind and place.root not in roots:
                raise LocationNotAllowed(f"Expected a folder in the bucket of {location!r}, found {folder!r}.")
            return self._open(folder, decided, own=conn_id)

        return open_at

    def check(self, location: str, conn_id: str | None = None, source: Source = Source.RUN) -> None:
        """Raise `LocationNotAllowed` if credentials may not be used at ``location``. Sends nothing there.

        ``location``: also that of a table, or of a web server. ``conn_id``: of a connection of a user's own.
        """
        decide(location, source, self._limits, self._reach(location, own=conn_id))

    def may_open(self, location: str) -> bool:
        """Whether `check` raises nothing."""
        try:
            self.check(location, source=Source.RECORD)
        except LocationNotAllowed:
            return False
        return True

    def open_location(self, location: str) -> ObjectStore:
        """The results of this deployment, or a user's own location, reached in the same way."""
        base = self.results.base_uri
        is_ours = location == base or location.startswith(f"{base}/")
        return self.results if is_ours else self._open(location, Source.RECORD)

    def driver_env(self) -> dict[str, str]:
        """Environment variables that a Spark driver needs for its stores: the connections' credentials.

        None without a connection: the driver then uses its own chain. Credentials of a role are not renewed in the
        driver: if they end before the region does, the attempt fails, and the next one gets new ones.
        """
        variables: dict[str, str] = {}
        for scheme in registered():
            journal = self._lent(scheme, self._settings.journal, is_journal=True)
            variables |= scheme.driver_variables(journal, self._lent(scheme, self._settings.results))
        return variables

    def _lent(self, scheme: StoreScheme, uri: str, *, is_journal: bool = False) -> Lent | None:
        """What a driver gets for the journal or the results at ``uri``, if they are in a store of this scheme."""
        if scheme_of(uri) != scheme.name and not scheme.is_for_sources:
            return None
        access = self._access(scheme, uri, self._conn_id(scheme, is_journal=is_journal))
        return None if access is None else Lent(uri, access)

    def _open(self, uri: str, source: Source, *, is_journal: bool = False, own: str | None = None) -> ObjectStore:
        """``own``: a connection of a user's own. Stores that can share a client share it."""
        decide(uri, source, self._limits, self._reach(uri, is_journal=is_journal, own=own))
        scheme = scheme_for(uri)
        if scheme is None or not scheme.conn_option:
            return open_store(uri, source=source, limits=self._limits, waits=self._timeouts.waits)
        conn_id = own or self._conn_id(scheme, is_journal=is_journal)
        key = (scheme.name, conn_id, _shared_at(scheme, uri))
        if key in self._opened:
            return self._opened[key].sibling(uri)
        renew = None if conn_id is None else partial(self._read_access, scheme, uri, conn_id)
        opened = scheme.store_at(uri, self._access(scheme, uri, conn_id), renew=renew, waits=self._timeouts.waits)
        if isinstance(opened, SharingStore):
            self._opened[key] = opened
        return opened

    def _reach(self, location: str, *, is_journal: bool = False, own: str | None = None) -> Reach:
        """What the connection for ``location`` names. ``own``: a connection of a user's own."""
        uri = location.removeprefix(DELTA)
        scheme = scheme_for(uri)
        if scheme is None:
            return Reach()
        access = self._access(scheme, uri, own or self._conn_id(scheme, is_journal=is_journal))
        return Reach() if access is None else Reach(access.endpoint_url, access.buckets)

    def _spec(self, uri: str, *, is_journal: bool = False) -> StoreSpec:
        scheme = scheme_for(uri)
        if scheme is None:
            return StoreSpec(uri)
        conn_id = self._conn_id(scheme, is_journal=is_journal)
        spec = scheme.spec(uri, self._access(scheme, uri, conn_id), is_apart=conn_id != self._conn_id(scheme))
        return replace(spec, scheme=reference_to(scheme))

    def _conn_id(self, scheme: StoreScheme, *, is_journal: bool = False) -> str | None:
        """The connection of the deployment that reaches a store of this scheme."""
        own = None if is_journal else self._settings.conn_id(scheme.results_conn_option)
        return own or self._settings.conn_id(scheme.conn_option)

    def _access(self, scheme: StoreScheme, uri: str, conn_id: str | None) -> StoreAccess | None:
        """What the connection says. It is read once; a store reads it again if the server refuses the credentials."""
        if conn_id is None:
            return None
        key = (scheme.name, conn_id, _shared_at(scheme, uri))
        if key not in self._accesses:
            self._accesses[key] = self._read_access(scheme, uri, conn_id)
        return self._accesses[key]

    def _read_access(self, scheme: StoreScheme, uri: str, conn_id: str) -> StoreAccess:
        is_journals = conn_id == self._settings.conn_id(scheme.conn_option)
        option = scheme.conn_option if is_journals else scheme.results_conn_option or scheme.conn_option
        return read_access(scheme, conn_id, option, split_uri(uri)[0])


def _shared_at(scheme: StoreScheme, uri: str) -> str:
    """For which buckets one client is good: all of a connection, or the one of ``uri``."""
    return "" if scheme.is_shared else split_uri(uri)[0]


def read_access(scheme: StoreScheme, conn_id: str, option: str, location: str) -> StoreAccess:
    """How the connection ``conn_id`` reaches the bucket of ``location``. Raises `ConfigurationError`.

    ``option``: the setting in ``[recovery]`` that names the connection.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        connection: Connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        # Without it, Airflow's own hook would go on with whatever credentials this machine has.
        raise ConfigurationError(
            f"Expected the connection {conn_id!r} of [recovery] {option}, found none that can be read here. Define it, "
            "and give every component the same [core] fernet_key.",
            code="connection-unknown",
            connection=conn_id,
        ) from error
    if scheme.connection_reader:
        access: StoreAccess = import_module(scheme.connection_reader).access(connection)
        return access
    return scheme.access(
        ConnectionFields(
            conn_id,
            option,
            connection.conn_type or "",
            connection.host,
            connection.login,
            connection.password,
            # Older connections have the type in the names.
            {
                name.removeprefix(f"extra__{scheme.conn_type}__"): value
                for name, value in (connection.extra_dejson or {}).items()
            },
        ),
        location,
    )


def open_stores(
    settings: RecoverySettings, timeouts: Timeouts | None = None, written: Callable[[], Collection[str]] = tuple
) -> Stores:
    """The stores of ``settings``; nothing is asked of them, nor of Airflow, before they are used. As `Stores`."""
    return Stores(settings, timeouts, written)
