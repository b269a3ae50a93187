"""One kind of object store as one object: all that this package must know of it, and asks nowhere else.

A subclass of `StoreScheme` for each: in `s3_scheme`, `google`, `azure` and `local`, and in one file for a store of
yours (docs/architecture.md#adding-a-store). Its only object is ``SCHEME``. The file is imported when a DAG file is
parsed, so it imports nothing heavy at its top: the client's library is imported with the first request.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.locations import UriScheme, comparable, split_uri

if TYPE_CHECKING:
    from airflow_recovery.store.object_store import ObjectStore

OWN_CREDENTIALS = "AIRFLOW_RECOVERY_"
"""What the names of variables with credentials begin with that Spark must not hand to its executors."""


@dataclass(frozen=True)
class StoreAccess:
    """How a store is reached: the client's own options by name, credentials among them.

    ``endpoint_url`` is that of a server which is not the cloud's own. ``buckets``: those that the connection names.
    Without options the client looks for credentials by itself: in the environment, in a file of the cloud's own tools,
    and on the machine (its service account).
    """

    options: Mapping[str, str] = field(default_factory=dict)
    endpoint_url: str | None = None
    buckets: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConnectionFields:
    """The fields of an Airflow connection. ``option``: the setting in ``[recovery]`` that names it."""

    conn_id: str
    option: str
    conn_type: str = ""
    host: str | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def of_type(self, kind: str) -> ConnectionFields:
        """The connection itself. Raises `ConfigurationError` if it has another type."""
        if self.conn_type != kind:
            raise ConfigurationError(
                f"Expected the connection {self.conn_id!r} of [recovery] {self.option} to be of type {kind}, found "
                f"{self.conn_type!r}. Name one of that type.",
                code="connection-of-other-cloud",
                option=self.option,
                found=self.conn_type,
            )
        return self

    def endpoint(self, url: object) -> str | None:
        """``url`` as the address of a server; `None` if it is empty. Raises `ConfigurationError`."""
        text = str(url or "") or None
        if text is not None and not text.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"Expected the endpoint in connection {self.conn_id!r} to begin with http:// or https://, found "
                f"{text!r}.",
                code="endpoint-unfit",
            )
        return text


@dataclass(frozen=True)
class StoreSpec:
    """Where a store is and how to reach it. Credentials travel through the environment, never through here.

    ``encryption`` and ``kms_key_id`` are those of `airflow_recovery.store.encryption.Encryption`.
    """

    uri: str
    endpoint_url: str | None = None
    region_name: str | None = None
    encryption: str | None = None
    kms_key_id: str | None = None
    has_own_credentials: bool = False
    """Other credentials than Spark's: they are in variables of their own (`StoreScheme.driver_variables`)."""
    scheme: str | None = None
    """The class of a scheme that another package has added, as ``module:name``: the driver imports it."""


@dataclass(frozen=True)
class Lent:
    """The journal or the results at ``uri``, and the access that a driver gets."""

    uri: str
    access: StoreAccess


@dataclass(frozen=True)
class ClientLibrary:
    """A client library that travels with a driver. ``module`` is imported first; ``oldest``: the first version to do.

    ``leaves_out`` returns whether a file of the packages stays behind.
    """

    name: str
    module: str
    packages: tuple[str, ...]
    oldest: tuple[int, ...]
    is_compiled: bool = False
    leaves_out: Callable[[str], bool] = lambda name: False

    @property
    def archive(self) -> str:
        """The beginning of its archive's name."""
        return f"airflow-recovery-{self.name}-sdk-"

    @property
    def top(self) -> str:
        """The package that tells its version."""
        return self.packages[0]


class StoreScheme(UriScheme, ABC):
    """One kind of object store. `UriScheme` says how its URIs are written.

    A store needs `name`, `form` and `store_at`. All else has a default: no Airflow connection, no library that travels,
    and a Spark that reaches the store by itself under the same URIs.
    """

    # --- the client ---

    @abstractmethod
    def store_at(
        self,
        uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        waits: Mapping[str, Any] | None = None,
    ) -> ObjectStore:
        """The store at ``uri``. Makes no request yet. Raises `ConfigurationError` for a URI that is not well-formed.

        ``renew`` returns new credentials, if the server refuses those of ``access``. ``waits``: for how long the client
        waits, if that is not as usual: ``connect_timeout_s``, ``read_timeout_s`` and ``max_read_attempts``.
        """

    def access_at(self, endpoint_url: str | None, region_name: str | None) -> StoreAccess:
        """How a store is reached that only has an address. The client finds credentials by itself."""
        return StoreAccess({}, endpoint_url)

    def preload(self) -> None:
        """Import what a client needs, in the process from which tasks are forked. Makes no connection."""

    is_folder: bool = False
    """Whether a location is a folder of one machine, unless all machines mount it."""

    # --- the Airflow connection ---

    conn_option: str = ""
    """The setting in ``[recovery]`` that names the connection; empty if no connection is read."""
    results_conn_option: str = ""
    """The setting that names another connection for everything but the journal, if there is one."""
    conn_type: str = ""
    """The type of the connection in Airflow."""
    operator_conn: str = ""
    """The attribute of Airflow's own operators that names a connection of this type."""
    connection_reader: str = ""
    """A module of the room ``hooks`` whose ``access`` reads the connection in place of `access`: it needs Airflow."""
    is_shared: bool = False
    """Whether one client, and one `StoreAccess`, serve all buckets that a connection reaches. Else each has its own."""

    def access(self, connection: ConnectionFields, location: str) -> StoreAccess:
        """How the connection reaches the bucket of ``location``. Raises `ConfigurationError`."""
        extra = connection.of_type(self.conn_type).extra
        return StoreAccess({}, connection.endpoint(extra.get("endpoint_url")))

    # --- what a driver gets ---

    libraries: tuple[ClientLibrary, ...] = ()
    """The client libraries that travel with a driver, since a stock Spark image has none."""
    is_for_sources: bool = False
    """Whether Spark also reads sources with these credentials, so that a driver gets them wherever the results are."""

    def spec(self, uri: str, access: StoreAccess | None, *, is_apart: bool = False) -> StoreSpec:
        """How a driver opens ``uri``, without credentials. ``is_apart``: not with the credentials of the results."""
        if access is None:
            return StoreSpec(uri)
        return StoreSpec(uri, access.endpoint_url, has_own_credentials=bool(access.options))

    def driver_variables(self, journal: Lent | None, results: Lent | None) -> dict[str, str]:
        """The environment variables with the credentials that a driver gets. `None`: no such store, or no connection.

        By default in variables that Spark does not know, and hands to nobody.
        """
        lent = [each for each in (journal, results) if each is not None and each.access.options]
        return {options_variable(each.uri): json.dumps(dict(each.access.options)) for each in lent}

    def access_in_driver(self, spec: StoreSpec, environment: Mapping[str, str]) -> StoreAccess:
        """The access that `driver_variables` has lent. A driver in cluster mode gets no variables."""
        lent = environment.get(options_variable(spec.uri), "{}") if spec.has_own_credentials else "{}"
        return StoreAccess(json.loads(lent), spec.endpoint_url)

    # --- Spark ---

    connector: str = ""
    """Hadoop's library by which Spark reads and writes there, for example ``gcs-connector``. Empty: none is needed."""
    connector_jar: str = ""
    """A pattern of its jar's name."""
    jars_for: str = ""
    """What ``airflow recovery doctor`` calls the store when it looks for the jars."""
    jars_advice: str = (
        "Take it into the image, and name it in both class paths of spark-defaults.conf (docs/stores.md); or put the "
        "results on a store that this Spark reaches."
    )
    """What to do if Spark has no such jar."""
    spark_failures: tuple[tuple[str, str], ...] = ()
    """Patterns of what Spark writes if it can't reach the store, each with what to do."""

    def spark_uri(self, uri: str) -> str:
        """The URI by which Spark reads and writes ``uri``."""
        return uri

    def spark_conf(self, spec: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """The settings with which Spark reaches the store. No credentials: settings are visible in many places."""
        return {}

    def jars_expected(self, hadoop: str | None) -> str:
        """What Spark needs on its class paths. ``hadoop``: the version of its Hadoop, if it is known."""
        return self.connector

    def jars_missing(self, jars: Iterable[str], hadoop: str | None) -> str | None:
        """What is there in place of `jars_expected`; `None` if ``jars``, the names on a class path, are enough."""
        return None if any(re.fullmatch(self.connector_jar, jar) for jar in jars) else "none"

    # --- libraries that read tables ---

    def delta_rs_options(self, results: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """The options by which delta-rs reaches the store. Empty: it looks for credentials by itself."""
        return {}

    def pyiceberg_properties(self, results: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """The properties by which pyiceberg reaches the store. Empty: it looks for credentials by itself."""
        return {}


def options_variable(uri: str) -> str:
    """The variable with the options by which the bucket of ``uri`` is reached, as JSON: Spark passes it to nobody."""
    digest = blake2b(split_uri(comparable(uri))[0].encode(), digest_size=8).hexdigest()
    return f"{OWN_CREDENTIALS}{digest.upper()}_SECRET"
