"""Opens the stores of `RecoverySettings`, with the credentials of an Airflow connection where one is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.region_spec import StoreSpec
from airflow_recovery.driver.stores import CREDENTIALS, OWN_CREDENTIALS, cloud_variable
from airflow_recovery.errors import ConfigurationError, LocationNotAllowed
from airflow_recovery.globs import alternatives
from airflow_recovery.hooks.cloud_connections import azure_access, google_access
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.locations import DELTA, scheme_of, split_uri
from airflow_recovery.store.allowed import Limits, Reach, Source, decide, place_of
from airflow_recovery.store.encryption import Encryption
from airflow_recovery.store.opening import open_store

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper

    from airflow_recovery.store.cloud import CloudAccess, CloudStore
    from airflow_recovery.store.object_store import ObjectStore
    from airflow_recovery.store.s3 import S3Store
    from airflow_recovery.store.s3_clients import AnySession


@dataclass(frozen=True)
class S3Access:
    """What an Airflow connection says about S3. ``session`` renews a role's credentials by itself.

    ``renew`` asks Airflow for the connection once more: its keys may have been replaced since.
    """

    session: AnySession
    endpoint_url: str | None
    region_name: str | None
    encryption: Encryption | None
    renew: Callable[[], AnySession]
    buckets: tuple[str, ...] = ()
    """Those that the connection names."""

    def variables(self) -> dict[str, str]:
        """Its credentials, frozen, as environment variables; empty where it has none."""
        credentials = self.session.get_credentials()
        if credentials is None:
            return {}
        frozen = credentials.get_frozen_credentials()
        named = zip(CREDENTIALS, (frozen.access_key, frozen.secret_key, frozen.token), strict=True)
        return {name: value for name, value in named if value}


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
        self._cloud_accesses: dict[str, CloudAccess | None] = {}
        self._timeouts = timeouts or Timeouts()
        self._accesses: dict[str, S3Access] = {}
        self._clients: dict[str | None, S3Store] = {}
        self._by_root: dict[str, CloudStore] = {}

    @cached_property
    def journal(self) -> ObjectStore:
        """The store that holds all journals. Raises `ConfigurationError` for a URI of another kind."""
        return self._open(self._settings.journal, self._settings.aws_conn_id, Source.SETTING)

    @cached_property
    def results(self) -> ObjectStore:
        """The store that holds the managed results of all runs."""
        return self._open(self._settings.results, self._results_conn_id, Source.SETTING)

    @cached_property
    def journal_spec(self) -> StoreSpec:
        """How a Spark driver opens the journal; without credentials (`driver_env`)."""
        return self._spec(self._settings.journal, self._settings.aws_conn_id, has_own=self._has_two_connections)

    @cached_property
    def results_spec(self) -> StoreSpec:
        """How a Spark driver opens the results; without credentials (`driver_env`)."""
        return self._spec(self._settings.results, self._results_conn_id)

    def open_external(self, location: str) -> ObjectStore:
        """The store with base URI ``location`` (a user's own input or output), reached as the results are.

        Raises `LocationNotAllowed`.
        """
        return self._open(location, self._results_conn_id, Source.RUN)

    def open_answered(self, location: str) -> ObjectStore:
        """As `open_external`, of a location that a catalog of the deployment has answered. The host is checked."""
        return self._open(location, self._results_conn_id, Source.CATALOG)

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
            return self._open(folder, conn_id or self._results_conn_id, decided, is_own=conn_id is not None)

        return open_at

    def check(self, location: str, conn_id: str | None = None, source: Source = Source.RUN) -> None:
        """Raise `LocationNotAllowed` if credentials may not be used at ``location``. Sends nothing there.

        ``location``: also that of a table, or of a web server. ``conn_id``: of a connection of a user's own.
        """
        decide(location, source, self._limits, self._reach(location, conn_id or self._results_conn_id, conn_id))

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
        return self.results if is_ours else self._open(location, self._results_conn_id, Source.RECORD)

    def driver_env(self) -> dict[str, str]:
        """Environment variables that a Spark driver needs for its stores: the connections' credentials.

        Of S3 frozen ones, and the region; those of the journal have names of their own where a second connection
        reaches the results. Of other clouds in variables that Spark does not know. None without a connection: the
        driver then uses its own chain. Credentials of a role are not renewed in the driver: where they end before the
        region does, the attempt fails, and the next one gets new ones.
        """
        clouds = (self._settings.journal, self._settings.results)
        return self._s3_env() | {
            cloud_variable(uri): json.dumps(access.options)
            for uri in clouds
            if (access := self._cloud_access(uri)) is not None and access.options
        }

    def _s3_env(self) -> dict[str, str]:
        if self._results_conn_id is None:
            return {}
        access = self._access(self._results_conn_id)
        variables = access.variables()
        if variables:
            reached = {"AWS_DEFAULT_REGION": access.region_name, "AWS_ENDPOINT_URL_S3": access.endpoint_url}
            variables |= {name: value for name, value in reached.items() if value}
        if self._settings.aws_conn_id and self._has_two_connections:
            own = self._access(self._settings.aws_conn_id)
            variables |= {OWN_CREDENTIALS + name: value for name, value in own.variables().items()}
            if own.endpoint_url != access.endpoint_url:
                # It holds for all that a process opens; Spark is told the results' endpoint in its settings.
                variables.pop("AWS_ENDPOINT_URL_S3", None)
        return variables

    @property
    def _results_conn_id(self) -> str | None:
        return self._settings.results_aws_conn_id or self._settings.aws_conn_id

    @property
    def _has_two_connections(self) -> bool:
        return self._results_conn_id != self._settings.aws_conn_id

    def _open(self, uri: str, conn_id: str | None, source: Source, *, is_own: bool = False) -> ObjectStore:
        """``is_own``: ``conn_id`` is a connection of a user's own, also for Google's cloud."""
        scheme = scheme_of(uri)
        decide(uri, source, self._limits, self._reach(uri, conn_id, conn_id if is_own else None))
        if is_own and scheme == "gs":
            from airflow_recovery.store.google import GoogleStore

            return GoogleStore(uri, google_access(str(conn_id)))
        if scheme in ("gs", "abfss"):
            return self._cloud(uri)
        return self._s3(conn_id or None).sibling(uri) if scheme == "s3" else open_store(uri, source=source)

    def _reach(self, location: str, conn_id: str | None, own: str | None) -> Reach:
        """What the connection for ``location`` names. ``own``: a connection of a user's own."""
        uri = location.removeprefix(DELTA)
        scheme = scheme_of(uri)
        if scheme == "s3" and conn_id:
            access = self._access(conn_id)
            return Reach(access.endpoint_url, access.buckets)
        if scheme not in ("gs", "abfss"):
            return Reach()
        if own is not None:
            return Reach(google_access(own).endpoint_url if scheme == "gs" else None)
        cloud = self._known_cloud_access(uri)
        return Reach(cloud.endpoint_url if cloud is not None else None)

    def _cloud(self, uri: str) -> CloudStore:
        """All stores of a bucket share its connections."""
        from airflow_recovery.store.azure import AzureStore
        from airflow_recovery.store.google import GoogleStore

        root = split_uri(uri)[0]
        if root not in self._by_root:
            access = self._known_cloud_access(uri)
            self._by_root[root] = (GoogleStore if root.startswith("gs:") else AzureStore)(
                uri,
                access,
                renew=partial(self._read_cloud_access, root) if access is not None else None,
                **self._timeouts.waits,
            )
        return self._by_root[root].sibling(uri)

    def _known_cloud_access(self, uri: str) -> CloudAccess | None:
        """As `_cloud_access`, read once for a bucket. A store reads it again if it is denied."""
        root = split_uri(uri)[0]
        if root not in self._cloud_accesses:
            self._cloud_accesses[root] = self._cloud_access(uri)
        return self._cloud_accesses[root]

    def _cloud_access(self, uri: str) -> CloudAccess | None:
        """As the connection for the cloud of ``uri`` says; `None` where none is named, or none is needed."""
        conn_id = {"gs": self._settings.gcp_conn_id, "abfss": self._settings.wasb_conn_id}.get(scheme_of(uri) or "")
        return self._read_cloud_access(split_uri(uri)[0]) if conn_id else None

    def _read_cloud_access(self, root: str) -> CloudAccess:
        settings = self._settings
        if root.startswith("gs:"):
            return google_access(str(settings.gcp_conn_id))
        return azure_access(str(settings.wasb_conn_id), root)

    def _s3(self, conn_id: str | None) -> S3Store:
        """All stores of a connection share its clients, whose making costs more than a small region's requests.

        Without one, the SDK's own chain of credentials has them.
        """
        from airflow_recovery.store.s3 import S3Store

        if conn_id not in self._clients:
            access = None if conn_id is None else self._access(conn_id)
            self._clients[conn_id] = S3Store(
                "s3://any",
                endpoint_url=access.endpoint_url if access else None,
                region_name=access.region_name if access else None,
                session=access.session if access else None,
                renew=access.renew if access else None,
                encryption=access.encryption if access else None,
                **self._timeouts.waits,
            )
        return self._clients[conn_id]

    def _spec(self, uri: str, conn_id: str | None, *, has_own: bool = False) -> StoreSpec:
        cloud = self._cloud_access(uri)
        if cloud is not None:
            return StoreSpec(uri, cloud.endpoint_url, has_own_credentials=bool(cloud.options))
        if not conn_id or scheme_of(uri) != "s3":
            return StoreSpec(uri)
        access = self._access(conn_id)
        spec = StoreSpec(uri, access.endpoint_url, access.region_name, has_own_credentials=has_own)
        if access.encryption is None:
            return spec
        return replace(spec, encryption=access.encryption.algorithm, kms_key_id=access.encryption.key_id)

    def _access(self, conn_id: str) -> S3Access:
        if conn_id not in self._accesses:
            option = "aws_conn_id" if conn_id == self._settings.aws_conn_id else "results_aws_conn_id"
            self._accesses[conn_id] = _read_access(conn_id, option)
        return self._accesses[conn_id]


def _read_access(conn_id: str, option: str) -> S3Access:
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        config = AwsConnectionWrapper(BaseHook.get_connection(conn_id))
    except AirflowNotFoundException as error:
        # Airflow's hook would go on without it, with whatever credentials this machine has.
        raise ConfigurationError(
            f"Expected the connection {conn_id!r} of [recovery] {option}, found none that can be read "
            "here. Define it, and give every component the same [core] fernet_key.",
            code="connection-unknown",
            connection=conn_id,
        ) from error
    endpoint_url = config.get_service_endpoint_url("s3")
    if endpoint_url and not endpoint_url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"Expected endpoint_url in connection {conn_id!r} to begin with http:// or https://, found "
            f"{endpoint_url!r}.",
            code="endpoint-unfit",
        )
    session, region_name = _keys_session(config) if _has_plain_keys(config) else _hooks_session(conn_id)
    try:
        encryption = Encryption.parse(config.get_service_config("s3").get("extra_args") or {})
    except ConfigurationError as error:
        raise ConfigurationError(
            f"Connection {conn_id!r}, extra_args of s3 in its service_config: {error}",
            code="encryption-arguments-unfit",
            connection=conn_id,
        ) from error
    bucket = config.get_service_config("s3").get("bucket_name")
    buckets = (str(bucket),) if bucket else ()
    return S3Access(session, endpoint_url, region_name, encryption, partial(_read_session, conn_id, option), buckets)


def _read_session(conn_id: str, option: str) -> AnySession:
    return _read_access(conn_id, option).session


def _has_plain_keys(config: AwsConnectionWrapper) -> bool:
    """A key and its secret are all that there is: no role, no profile, no session factory of the deployment's own."""
    from airflow.sdk import conf

    return bool(
        config.aws_access_key_id
        and config.aws_secret_access_key
        and not (config.role_arn or config.assume_role_method or config.profile_name)
        and not conf.get("aws", "session_factory", fallback=None)
    )


def _keys_session(config: AwsConnectionWrapper) -> tuple[AnySession, str | None]:
    from airflow_recovery.store.s3_clients import new_session

    session = new_session(config.aws_access_key_id, config.aws_secret_access_key, config.aws_session_token)
    return session, config.region_name or session.get_config_variable("region")


def _hooks_session(conn_id: str) -> tuple[AnySession, str | None]:
    """Airflow's own hook knows every way to authenticate; its import, and boto3's, cost 50 ms more."""
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

    session = AwsBaseHook(aws_conn_id=conn_id, client_type="s3").get_session()
    return session, session.region_name


def open_stores(
    settings: RecoverySettings, timeouts: Timeouts | None = None, written: Callable[[], Collection[str]] = tuple
) -> Stores:
    """The stores of ``settings``; nothing is asked of them, nor of Airflow, before they are used. As `Stores`."""
    return Stores(settings, timeouts, written)
