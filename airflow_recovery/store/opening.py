"""Opens the store that a URI names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore

if TYPE_CHECKING:
    from airflow_recovery.store.encryption import Encryption
    from airflow_recovery.store.s3_clients import AnySession


def open_store(
    uri: str,
    *,
    endpoint_url: str | None = None,
    region_name: str | None = None,
    session: AnySession | None = None,
    encryption: Encryption | None = None,
) -> ObjectStore:
    """The store at ``uri``: ``s3://bucket/prefix`` (or ``s3a://``), ``file:///folder``, or an absolute path.

    Makes no request yet. S3 credentials come from ``session``, else from the SDK's own chain: the environment, a
    profile, or the machine's role. Raises `ConfigurationError` for any other URI.
    """
    if uri.startswith(("s3://", "s3a://")):
        from airflow_recovery.store.s3 import S3Store

        return S3Store(uri, endpoint_url=endpoint_url, region_name=region_name, session=session, encryption=encryption)
    if uri.startswith(("/", "file:")):
        return LocalStore(uri)
    raise ConfigurationError(
        f"Expected s3://<bucket>/<prefix>, file:///<folder> or an absolute path, found {uri!r}. "
        "Other stores are not supported: give the location as one of these."
    )
