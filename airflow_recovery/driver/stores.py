"""Opening the stores that a region spec names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.region_spec import StoreSpec
from airflow_recovery.locations import comparable, scheme_of, split_uri

if TYPE_CHECKING:
    from airflow_recovery.store.cloud import CloudAccess
    from airflow_recovery.store.encryption import Encryption
    from airflow_recovery.store.object_store import ObjectStore
    from airflow_recovery.store.s3_clients import AnySession

OWN_CREDENTIALS = "AIRFLOW_RECOVERY_"
"""The prefix of the ``AWS_*`` variables of a journal that is reached with other credentials than the results.

Spark hands its executors the ``AWS_*`` variables that it finds: with the prefix they never see the journal's.
"""

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The names of the variables, in the order in which a session takes them."""


def cloud_variable(uri: str) -> str:
    """The variable with the options by which the bucket of ``uri`` is reached, as JSON: Spark passes it to nobody."""
    digest = blake2b(split_uri(comparable(uri))[0].encode(), digest_size=8).hexdigest()
    return f"{OWN_CREDENTIALS}{digest.upper()}_SECRET"


def catalog_variable(name: str) -> str:
    """The variable with pyiceberg's properties of the catalog ``name``, as JSON: Spark passes it to nobody."""
    return f"{OWN_CREDENTIALS}{blake2b(name.encode(), digest_size=8).hexdigest().upper()}_CATALOG"


def lend_catalogs(catalogs: Mapping[str, Mapping[str, str]]) -> None:
    """Let this process find the catalogs of its spec, where its environment does not say more about them."""
    for name, properties in catalogs.items():
        os.environ.setdefault(catalog_variable(name), json.dumps(properties))


def open_spec_store(spec: StoreSpec, waits: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store at ``spec.uri``. Credentials come from the environment of this process.

    ``waits``: as `airflow_recovery.store.opening.open_store` has them.
    """
    from airflow_recovery.store.allowed import Source
    from airflow_recovery.store.opening import open_store

    return open_store(
        spec.uri,
        source=Source.SETTING,
        endpoint_url=spec.endpoint_url,
        region_name=spec.region_name,
        encryption=encryption_of(spec),
        session=_own_session() if spec.has_own_credentials and scheme_of(spec.uri) == "s3" else None,
        access=_cloud_access(spec) if spec.has_own_credentials and scheme_of(spec.uri) != "s3" else None,
        waits=waits,
    )


def encryption_of(spec: StoreSpec) -> Encryption | None:
    """How what is written to the store of ``spec`` is encrypted."""
    from airflow_recovery.store.encryption import Encryption

    return None if spec.encryption is None else Encryption(spec.encryption, spec.kms_key_id)


def _cloud_access(spec: StoreSpec) -> CloudAccess:
    """Without the variable, as in a driver of cluster mode: the machine's own identity."""
    from airflow_recovery.store.cloud import CloudAccess

    return CloudAccess(json.loads(os.environ.get(cloud_variable(spec.uri), "{}")), spec.endpoint_url)


def _own_session() -> AnySession:
    from airflow_recovery.store.s3_clients import new_session

    return new_session(*(os.environ.get(OWN_CREDENTIALS + credential) for credential in CREDENTIALS))
