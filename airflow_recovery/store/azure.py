"""A container of Azure Blob Storage as an object store. Conditional writes: ``If-None-Match: *``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.allowed import AZURE_CLOUDS as _CLOUDS
from airflow_recovery.store.cloud import CloudAccess, CloudStore

if TYPE_CHECKING:
    from obstore.store import AzureStore as ObstoreAzureStore

_ROOT = re.compile(r"abfss://(?P<container>[^/@]+)@(?P<account>[^/@.:]+)\.dfs\.(?P<cloud>[^/@:]+)")


class AzureStore(CloudStore):
    """Objects below ``abfss://container@account.dfs.core.windows.net/prefix``, as `CloudStore` has them.

    The name is that of Spark's connector; requests go to the account's Blob endpoint. Options are obstore's for Azure:
    ``account_key``, ``sas_key``, ``client_id`` with ``client_secret`` and ``tenant_id``, and others. Without one the
    machine's own identity is used. A host outside of Azure is refused, unless the connection names the endpoint: then
    requests go there, whatever host the URI names.
    """

    cloud = "Azure Blob Storage"
    extra = "azure"
    deletion = (
        "Azure keeps deleted blobs for some days if the account has soft delete, and permanently if it has versioning. "
        "`az storage account blob-service-properties show` shows both."
    )
    identity_hosts = (
        *("login.microsoftonline.com", "login.microsoftonline.us", "login.partner.microsoftonline.cn"),
        *("login.chinacloudapi.cn", "169.254.169.254"),
    )
    identity_variables = ("AZURE_AUTHORITY_HOST", "IDENTITY_ENDPOINT", "MSI_ENDPOINT")

    def _new_client(self, bucket: str, access: CloudAccess, options: dict[str, Any]) -> ObstoreAzureStore:
        named = _named(f"abfss://{bucket}")
        if access.endpoint_url is None and named["cloud"] not in _CLOUDS:
            raise ConfigurationError(
                f"Expected the location abfss://{bucket} to name a host of Azure ({', '.join(_CLOUDS)}), found "
                f"{named['cloud']!r}. Nothing was sent there. If this host is yours, name it as endpoint_url in the "
                "connection of [recovery] wasb_conn_id."
            )
        from obstore.store import AzureStore as ObstoreAzureStore

        endpoint = access.endpoint_url or self._own_url()
        config: Any = {**access.options, "account_name": named["account"], "endpoint": endpoint.rstrip("/")}
        return ObstoreAzureStore(named["container"], config=config, **options)

    def _own_url(self) -> str:
        named = _named(self.root_uri)
        return f"https://{named['account']}.blob.{named['cloud']}"

    @staticmethod
    def _form() -> str:
        return "abfss://<container>@<account>.dfs.core.windows.net/<prefix>"

    @staticmethod
    def _check_root(root: str) -> None:
        _named(root)


def account_of(uri: str) -> str:
    """The storage account that ``uri`` names. Raises `ValueError` where it names none."""
    return _named(uri)["account"]


def _named(uri: str) -> re.Match[str]:
    match = _ROOT.match(uri)
    if match is None:
        raise ValueError(uri)
    return match
