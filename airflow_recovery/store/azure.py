"""Azure Blob Storage: its scheme, and a container as an object store. Conditional writes: ``If-None-Match: *``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.locations import UriScheme
from airflow_recovery.store.cloud import CloudAccess, CloudStore

if TYPE_CHECKING:
    from obstore.store import AzureStore as ObstoreAzureStore

AZURE_CLOUDS = (
    *("core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net"),
    "fabric.microsoft.com",
)
"""The domains of Azure: public, China, US government, and OneLake of Fabric."""

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
        if access.endpoint_url is None and named["cloud"] not in AZURE_CLOUDS:
            raise ConfigurationError(
                f"Expected the location abfss://{bucket} to name a host of Azure ({', '.join(AZURE_CLOUDS)}), found "
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


class AzureScheme(UriScheme):
    """``abfss://container@account.dfs.core.windows.net/prefix``, or ``abfs://``."""

    name = "abfss"
    aliases = ("abfs",)
    form = "abfss://<container>@<account>.dfs.core.windows.net/<prefix>"
    bucket = re.compile(r"[A-Za-z0-9$][A-Za-z0-9$._-]{0,254}")
    bucket_word = "container"
    has_host = True
    foreign_names = ("az", "azure", "adl", "wasb", "wasbs")
    spark_settings = ("spark.hadoop.fs.azure.",)

    def check_host(self, host: str, endpoint_host: str) -> None:
        """As `UriScheme.check_host`: the host is one of Azure, or the connection names the server."""
        account, _, cloud = host.partition(".dfs.")
        clouds = ", ".join(AZURE_CLOUDS)
        if not cloud or "." in account:
            raise ValueError(f"expected <account>.dfs.<domain>, with a domain of Azure ({clouds})")
        if not endpoint_host:
            if cloud not in AZURE_CLOUDS:
                raise ValueError(
                    f"expected a host of Azure ({clouds}), found {cloud!r}. If this host is yours, name it as "
                    "endpoint_url in the connection of [recovery] wasb_conn_id"
                )
            return
        of_azure = next((each for each in AZURE_CLOUDS if endpoint_host.endswith(f".{each}")), None)
        named = endpoint_host.partition(".")[0].removesuffix("-secondary")
        if of_azure is not None and (named, of_azure) != (account, cloud):
            raise ValueError(f"expected a container of {endpoint_host}, which the connection names as the endpoint")


SCHEME = AzureScheme()
