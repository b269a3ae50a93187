"""Opens the stores of `RecoverySettings`, with the credentials of an Airflow connection where one is named."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.runtime.spec import StoreSpec
from airflow_recovery.storage.opening import open_store

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper

    from airflow_recovery.storage.object_store import ObjectStore
    from airflow_recovery.storage.s3 import S3Store
    from airflow_recovery.storage.s3_clients import AnySession

S3_SCHEMES = ("s3://", "s3a://")


@dataclass(frozen=True)
class S3Access:
    """What an Airflow connection says about S3. ``session`` renews a role's credentials by itself."""

    session: AnySession
    endpoint_url: str | None
    region_name: str | None


class Stores:
    """Journal and results of this deployment. Talks to nobody until a store is asked for something."""

    def __init__(self, settings: RecoverySettings) -> None:
        self._settings = settings

    @cached_property
    def journal(self) -> ObjectStore:
        """The store that holds all journals. Raises `ConfigurationError` for a URI of another kind."""
        return self._open(self._settings.journal)

    @cached_property
    def results(self) -> ObjectStore:
        """The store that holds all results."""
        return self._open(self._settings.results)

    @cached_property
    def journal_spec(self) -> StoreSpec:
        """How a Spark driver opens the journal; without credentials (`driver_env`)."""
        return self._spec(self._settings.journal)

    @cached_property
    def results_spec(self) -> StoreSpec:
        """How a Spark driver opens the results; without credentials (`driver_env`)."""
        return self._spec(self._settings.results)

    def open_external(self, location: str) -> ObjectStore:
        """The store with base URI ``location`` (a user's own input or output), reached as the journal is."""
        return self._open(location)

    def driver_env(self) -> dict[str, str]:
        """Environment variables that a Spark driver needs for S3: frozen credentials of the connection, and its region.

        Empty without ``[recovery] aws_conn_id``: the driver then uses its own chain. Credentials of a role are not
        renewed in the driver: they have to outlive the region.
        """
        access = self._access
        if access is None:
            return {}
        credentials = access.session.get_credentials()
        if credentials is None:
            return {}
        frozen = credentials.get_frozen_credentials()
        found = {
            "AWS_ACCESS_KEY_ID": frozen.access_key,
            "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
            "AWS_SESSION_TOKEN": frozen.token,
            "AWS_DEFAULT_REGION": access.region_name,
            "AWS_ENDPOINT_URL_S3": access.endpoint_url,
        }
        return {name: value for name, value in found.items() if value}

    def _open(self, uri: str) -> ObjectStore:
        if self._access is None or not uri.startswith(S3_SCHEMES):
            return open_store(uri)
        return self._s3.beside(uri)

    @cached_property
    def _s3(self) -> S3Store:
        """All stores of the connection share its clients, whose making costs more than a small region's requests."""
        from airflow_recovery.storage.s3 import S3Store

        access = self._access
        if access is None:
            raise AssertionError("only a connection's stores share clients")
        return S3Store(
            "s3://any", endpoint_url=access.endpoint_url, region_name=access.region_name, session=access.session
        )

    def _spec(self, uri: str) -> StoreSpec:
        if self._access is None or not uri.startswith(S3_SCHEMES):
            return StoreSpec(uri)
        return StoreSpec(uri, self._access.endpoint_url, self._access.region_name)

    @cached_property
    def _access(self) -> S3Access | None:
        conn_id = self._settings.aws_conn_id
        if not conn_id:
            return None
        from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper
        from airflow.sdk import BaseHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            config = AwsConnectionWrapper(BaseHook.get_connection(conn_id))
        except AirflowNotFoundException as error:
            # Airflow's hook would go on without it, with whatever credentials this machine has.
            raise ConfigurationError(
                f"Expected the connection {conn_id!r} of [recovery] aws_conn_id, found none that can be read here. "
                "Define it, and give every component the same [core] fernet_key."
            ) from error
        endpoint_url = config.get_service_endpoint_url("s3")
        if endpoint_url and not endpoint_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"Expected endpoint_url in connection {conn_id!r} to begin with http:// or https://, found "
                f"{endpoint_url!r}."
            )
        session, region_name = _keys_session(config) if _has_plain_keys(config) else _hooks_session(conn_id)
        return S3Access(session, endpoint_url, region_name)


def _has_plain_keys(config: AwsConnectionWrapper) -> bool:
    """A key and its secret are all that there is: no role, no profile, no session factory of the deployment's own."""
    from airflow.sdk.configuration import conf

    return bool(
        config.aws_access_key_id
        and config.aws_secret_access_key
        and not (config.role_arn or config.assume_role_method or config.profile_name)
        and not conf.get("aws", "session_factory", fallback=None)
    )


def _keys_session(config: AwsConnectionWrapper) -> tuple[AnySession, str | None]:
    from airflow_recovery.storage.s3_clients import new_session

    session = new_session(config.aws_access_key_id, config.aws_secret_access_key, config.aws_session_token)
    return session, config.region_name or session.get_config_variable("region")


def _hooks_session(conn_id: str) -> tuple[AnySession, str | None]:
    """Airflow's own hook knows every way to authenticate; its import, and boto3's, cost 50 ms more."""
    from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

    session = AwsBaseHook(aws_conn_id=conn_id, client_type="s3").get_session()
    return session, session.region_name


def open_stores(settings: RecoverySettings) -> Stores:
    """The stores of ``settings``; nothing is asked of them, nor of Airflow, before they are used."""
    return Stores(settings)
