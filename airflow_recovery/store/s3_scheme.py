"""S3, and every server that speaks its API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_recovery.store.encryption import Encryption
from airflow_recovery.store.scheme import (
    OWN_CREDENTIALS,
    Lent,
    StoreAccess,
    StoreScheme,
    StoreSpec,
)

if TYPE_CHECKING:
    from airflow_recovery.store.s3 import S3Store
    from airflow_recovery.store.s3_clients import AnySession

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The names of the variables, in the order in which a session takes them."""


@dataclass(frozen=True)
class S3Access(StoreAccess):
    """How S3 is reached. ``session`` renews a role's credentials by itself; `None` stands for the SDK's own chain."""

    session: AnySession | None = None
    region_name: str | None = None
    encryption: Encryption | None = None

    def variables(self) -> dict[str, str]:
        """Its credentials, frozen, as environment variables; empty where it has none."""
        credentials = None if self.session is None else self.session.get_credentials()
        if credentials is None:
            return {}
        frozen = credentials.get_frozen_credentials()
        named = zip(CREDENTIALS, (frozen.access_key, frozen.secret_key, frozen.token), strict=True)
        return {name: value for name, value in named if value}


class S3Scheme(StoreScheme):
    """``s3://bucket/prefix``, or ``s3a://`` as Hadoop writes it."""

    name = "s3"
    aliases = ("s3a",)
    form = "s3://<bucket>/<prefix>"
    bucket = re.compile(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
        r"|arn:aws[a-z-]*:s3(?:-outposts|-object-lambda)?:[a-z0-9-]*:[0-9]{12}:[A-Za-z0-9:._-]{1,255}"
    )
    """A bucket, or the ARN of an access point, whose host botocore makes from parts that are checked here."""
    spark_settings = ("spark.hadoop.fs.s3a.",)

    conn_option = "aws_conn_id"
    results_conn_option = "results_aws_conn_id"
    conn_type = "aws"
    connection_reader = "airflow_recovery.hooks.s3_connection"
    is_shared = True

    is_for_sources = True

    def store_at(
        self,
        uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        waits: Mapping[str, Any] | None = None,
    ) -> S3Store:
        """As `StoreScheme.store_at`."""
        from airflow_recovery.store.s3 import S3Store

        found = S3Access() if access is None else _of_s3(access)
        return S3Store(
            uri,
            endpoint_url=found.endpoint_url,
            region_name=found.region_name,
            session=found.session,
            renew=None if renew is None else lambda: _session(renew()),
            encryption=found.encryption,
            **(waits or {}),
        )

    def access_at(self, endpoint_url: str | None, region_name: str | None) -> S3Access:
        """As `StoreScheme.access_at`."""
        return S3Access(endpoint_url=endpoint_url, region_name=region_name)

    def spec(self, uri: str, access: StoreAccess | None, *, is_apart: bool = False) -> StoreSpec:
        """As `StoreScheme.spec`. Spark takes credentials of S3 from the environment, so only others are apart."""
        if access is None:
            return StoreSpec(uri)
        found = _of_s3(access)
        algorithm, key_id = (found.encryption.algorithm, found.encryption.key_id) if found.encryption else (None, None)
        return StoreSpec(uri, found.endpoint_url, found.region_name, algorithm, key_id, is_apart)

    def driver_variables(self, journal: Lent | None, results: Lent | None) -> dict[str, str]:
        """As `StoreScheme.driver_variables`: frozen credentials and the region, in the SDK's own variables.

        Those of the journal have names of their own if a second connection reaches the results: Spark hands the
        ``AWS_*`` variables to its executors, which must not see the journal's.
        """
        if results is None:
            return {}
        access = _of_s3(results.access)
        variables = access.variables()
        if variables:
            reached = {"AWS_DEFAULT_REGION": access.region_name, "AWS_ENDPOINT_URL_S3": access.endpoint_url}
            variables |= {name: value for name, value in reached.items() if value}
        if journal is not None and journal.access is not results.access:
            own = _of_s3(journal.access)
            variables |= {OWN_CREDENTIALS + name: value for name, value in own.variables().items()}
            if own.endpoint_url != access.endpoint_url:
                # It holds for all that a process opens; Spark is told the results' endpoint in its settings.
                variables.pop("AWS_ENDPOINT_URL_S3", None)
        return variables

    def access_in_driver(self, spec: StoreSpec, environment: Mapping[str, str]) -> S3Access:
        """As `StoreScheme.access_in_driver`."""
        from airflow_recovery.store.s3_clients import new_session

        own = [environment.get(OWN_CREDENTIALS + name) for name in CREDENTIALS] if spec.has_own_credentials else None
        return S3Access(
            endpoint_url=spec.endpoint_url,
            session=None if own is None else new_session(*own),
            region_name=spec.region_name,
            encryption=encryption_of(spec),
        )


def _of_s3(access: StoreAccess) -> S3Access:
    assert isinstance(access, S3Access)
    return access


def _session(access: StoreAccess) -> AnySession:
    session = _of_s3(access).session
    assert session is not None
    return session


def encryption_of(spec: StoreSpec) -> Encryption | None:
    """How what is written to the store of ``spec`` is encrypted."""
    return None if spec.encryption is None else Encryption(spec.encryption, spec.kms_key_id)


SCHEME = S3Scheme()
