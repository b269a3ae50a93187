"""Google Cloud Storage: its scheme, and a bucket as an object store.

Conditional writes: ``x-goog-if-generation-match: 0``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.cloud import NO_CONNECTOR, OBSTORE, CloudStore
from airflow_recovery.store.scheme import ConnectionFields, StoreAccess, StoreScheme

if TYPE_CHECKING:
    from obstore.store import GCSStore

_NOT_READ = ("credential_config_file", "idp_issuer_url", "impersonation_chain", "is_anonymous", "key_secret_name")
"""Other ways of Google's connections to be somebody."""
_ROOT = re.compile(r"gs://[^/@?#]+")


class GoogleStore(CloudStore):
    """Objects below ``gs://bucket/prefix``, as `CloudStore` has them.

    Options are obstore's for GCS: ``service_account_key`` (the key file's JSON), ``bearer_token``,
    ``application_credentials`` (a file's path), ``skip_signature``. Without one the machine's own identity is used.
    """

    cloud = "Google Cloud Storage"
    extra = "google"
    deletion = (
        "Google keeps deleted objects for 7 days unless the bucket's soft delete was changed, and permanently if the "
        "bucket has versioning. `gcloud storage buckets describe` shows both."
    )
    identity_hosts = ("googleapis.com", "metadata.google.internal", "metadata", "169.254.169.254")
    identity_variables = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT")

    def _new_client(self, bucket: str, access: StoreAccess, options: dict[str, Any]) -> GCSStore:
        from obstore.store import GCSStore

        config: Any = dict(access.options)
        if access.endpoint_url:
            config["base_url"] = access.endpoint_url.rstrip("/")
        return GCSStore(bucket, config=config, **options)

    def _own_url(self) -> str:
        return "https://storage.googleapis.com"

    @staticmethod
    def _form() -> str:
        return "gs://<bucket>/<prefix>"

    @staticmethod
    def _check_root(root: str) -> None:
        if not _ROOT.fullmatch(root):
            raise ValueError(root)


class GoogleScheme(StoreScheme):
    """``gs://bucket/prefix``."""

    name = "gs"
    form = "gs://<bucket>/<prefix>"
    foreign_names = ("gcs",)
    spark_settings = ("spark.hadoop.fs.gs.", "spark.hadoop.google.cloud.")

    conn_option = "gcp_conn_id"
    conn_type = "google_cloud_platform"
    operator_conn = "gcp_conn_id"

    libraries = (OBSTORE,)

    connector = "gcs-connector"
    connector_jar = r"gcs-connector-(.+)\.jar"
    jars_for = "gs://"
    spark_failures = (
        (
            r"No FileSystem for scheme \"?gs\b|"
            r"ClassNotFoundException: (?:Class )?com\.google\.cloud\.hadoop\.",
            NO_CONNECTOR,
        ),
    )

    def store_at(
        self,
        uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        waits: Mapping[str, Any] | None = None,
    ) -> GoogleStore:
        """As `StoreScheme.store_at`."""
        return GoogleStore(uri, access, renew=renew, **(waits or {}))

    def access(self, connection: ConnectionFields, location: str) -> StoreAccess:
        """As `StoreScheme.access`, by a service account's key (``keyfile_dict`` or ``key_path``).

        Without one the machine's own identity is used. Other ways of the connection to be somebody (impersonation,
        secrets kept elsewhere) are refused by name, since leaving them out would reach the store as somebody else.
        """
        conn_id, extra = connection.conn_id, connection.of_type(self.conn_type).extra
        others = [name for name in _NOT_READ if extra.get(name)]
        if others:
            raise ConfigurationError(
                f"Expected a service account's key in connection {conn_id!r}, found {', '.join(others)}: it is not "
                "read for journal and results. Give keyfile_dict or key_path; or none, for the machine's own identity.",
                code="key-of-other-kind",
            )
        key = extra.get("keyfile_dict") or None
        if key is None and extra.get("key_path"):
            try:
                key = Path(str(extra["key_path"])).read_text(encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(
                    f"Expected the key file of connection {conn_id!r} at {extra['key_path']}, found none that can be "
                    f"read ({error.strerror}). Put it there in every component, or give keyfile_dict.",
                    code="key-file-unreadable",
                    connection=conn_id,
                ) from error
        options = {} if key is None else {"service_account_key": _service_account(key, conn_id)}
        return StoreAccess(options, connection.endpoint(extra.get("endpoint_url")))


def _service_account(key: object, conn_id: str) -> str:
    """The key's JSON. Raises `ConfigurationError` where it is none of a service account; never shows it."""
    try:
        read = json.loads(key) if isinstance(key, str) else key
    except ValueError:
        read = None
    kind = read.get("type") if isinstance(read, dict) else None
    if kind != "service_account":
        raise ConfigurationError(
            f"Expected the JSON of a service account's key in connection {conn_id!r}, found "
            f"{f'one of type {kind!r}' if kind else 'other text'}. Give such a key; or none, for the machine's own "
            "identity.",
            code="service-account-key-unfit",
        )
    return json.dumps(read)


SCHEME = GoogleScheme()
