"""Google Cloud Storage: its scheme, and a bucket as an object store.

Conditional writes: ``x-goog-if-generation-match: 0``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_recovery.locations import UriScheme
from airflow_recovery.store.cloud import CloudAccess, CloudStore

if TYPE_CHECKING:
    from obstore.store import GCSStore

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

    def _new_client(self, bucket: str, access: CloudAccess, options: dict[str, Any]) -> GCSStore:
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


class GoogleScheme(UriScheme):
    """``gs://bucket/prefix``."""

    name = "gs"
    form = "gs://<bucket>/<prefix>"
    foreign_names = ("gcs",)
    spark_settings = ("spark.hadoop.fs.gs.", "spark.hadoop.google.cloud.")


SCHEME = GoogleScheme()
