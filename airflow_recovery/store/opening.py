"""Opens the store that a URI names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.locations import expected, scheme_of
from airflow_recovery.store.allowed import NO_LIMITS, Limits, Reach, Source, decide
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore

if TYPE_CHECKING:
    from airflow_recovery.store.cloud import CloudAccess
    from airflow_recovery.store.encryption import Encryption
    from airflow_recovery.store.s3_clients import AnySession


def open_store(  # noqa: PLR0913 - a parameter each
    uri: str,
    *,
    source: Source = Source.SETTING,
    limits: Limits = NO_LIMITS,
    endpoint_url: str | None = None,
    region_name: str | None = None,
    session: AnySession | None = None,
    encryption: Encryption | None = None,
    access: CloudAccess | None = None,
    waits: Mapping[str, Any] | None = None,
) -> ObjectStore:
    """The store at ``uri``, which is written as `airflow_recovery.locations` says.

    Makes no request yet. Credentials for S3 come from ``session``; those for Google's and Azure's clouds, and the
    endpoint, from ``access``. Without one they come from the library's own chain: the environment, a profile, or the
    machine's role. ``source``: where ``uri`` was read. ``waits``: for how long its client waits, if that is not as
    usual: ``connect_timeout_s``, ``read_timeout_s`` and ``max_read_attempts``. Raises `LocationNotAllowed` as `decide`,
    and `ConfigurationError` for any other URI.
    """
    decide(uri, source, limits, Reach(endpoint_url if access is None else access.endpoint_url))
    scheme = scheme_of(uri)
    if scheme in ("gs", "abfss"):
        from airflow_recovery.store.azure import AzureStore
        from airflow_recovery.store.cloud import CloudAccess
        from airflow_recovery.store.google import GoogleStore

        return (GoogleStore if scheme == "gs" else AzureStore)(
            uri, access or CloudAccess({}, endpoint_url), **(waits or {})
        )
    if scheme == "s3":
        from airflow_recovery.store.s3 import S3Store

        return S3Store(
            uri,
            endpoint_url=endpoint_url,
            region_name=region_name,
            session=session,
            encryption=encryption,
            **(waits or {}),
        )
    if uri.startswith(("/", "file:")):
        return LocalStore(uri)
    raise ConfigurationError(
        f"Expected {expected()}, found {uri!r}. Other stores are not supported: give the location as one of these."
    )
