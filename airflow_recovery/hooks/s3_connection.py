"""What an Airflow connection says about S3: `airflow_recovery.store.s3_scheme` names this module as its reader.

Airflow's own hook knows every way to authenticate, so the connection is read by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.encryption import Encryption
from airflow_recovery.store.s3_scheme import S3Access

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper
    from airflow.sdk import Connection

    from airflow_recovery.store.s3_clients import AnySession


def access(connection: Connection) -> S3Access:
    """How ``connection`` reaches S3. Raises `ConfigurationError`."""
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper

    conn_id, config = connection.conn_id, AwsConnectionWrapper(connection)
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
    return S3Access(
        endpoint_url=endpoint_url,
        buckets=(str(bucket),) if bucket else (),
        session=session,
        region_name=region_name,
        encryption=encryption,
    )


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
