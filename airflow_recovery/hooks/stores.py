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
    from boto3.session import Session

    from airflow_recovery.storage.object_store import ObjectStore

S3_SCHEMES = ("s3://", "s3a://")


@dataclass(frozen=True)
class S3Access:
    """What an Airflow connection says about S3. ``session`` renews a role's credentials by itself."""

    session: Session
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
        from airflow_recovery.storage.s3 import S3Store

        access = self._access
        return S3Store(uri, endpoint_url=access.endpoint_url, region_name=access.region_name, session=access.session)

    def _spec(self, uri: str) -> StoreSpec:
        if self._access is None or not uri.startswith(S3_SCHEMES):
            return StoreSpec(uri)
        return StoreSpec(uri, self._access.endpoint_url, self._access.region_name)

    @cached_property
    def _access(self) -> S3Access | None:
        if not self._settings.aws_conn_id:
            return None
        # Airflow's own hook knows every way to authenticate (keys, profile, role, web identity). Its import costs
        # 45 ms more than boto3's, and only where a connection is named.
        from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

        hook = AwsBaseHook(aws_conn_id=self._settings.aws_conn_id, client_type="s3")
        if hook.conn_config.conn_id != self._settings.aws_conn_id:
            # The hook would go on without it, with whatever credentials this machine has.
            raise ConfigurationError(
                f"Expected the connection {self._settings.aws_conn_id!r} of [recovery] aws_conn_id, found none that "
                "can be read here. Define it, and give every component the same [core] fernet_key."
            )
        session = hook.get_session()
        endpoint_url = hook.conn_config.get_service_endpoint_url("s3")
        if endpoint_url and not endpoint_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"Expected endpoint_url in connection {self._settings.aws_conn_id!r} to begin with http:// or "
                f"https://, found {endpoint_url!r}."
            )
        return S3Access(session, endpoint_url, session.region_name)


def open_stores(settings: RecoverySettings) -> Stores:
    """The stores of ``settings``; nothing is asked of them, nor of Airflow, before they are used."""
    return Stores(settings)
