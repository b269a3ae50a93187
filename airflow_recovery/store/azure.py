"""Azure Blob Storage: its scheme, and a container as an object store. Conditional writes: ``If-None-Match: *``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.cloud import NO_CONNECTOR, OBSTORE, CloudStore
from airflow_recovery.store.scheme import ConnectionFields, StoreAccess, StoreScheme

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

    def _new_client(self, bucket: str, access: StoreAccess, options: dict[str, Any]) -> ObstoreAzureStore:
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


class AzureScheme(StoreScheme):
    """``abfss://container@account.dfs.core.windows.net/prefix``, or ``abfs://``."""

    name = "abfss"
    aliases = ("abfs",)
    form = "abfss://<container>@<account>.dfs.core.windows.net/<prefix>"
    bucket = re.compile(r"[A-Za-z0-9$][A-Za-z0-9$._-]{0,254}")
    bucket_word = "container"
    has_host = True
    foreign_names = ("az", "azure", "adl", "wasb", "wasbs")
    spark_settings = ("spark.hadoop.fs.azure.",)

    conn_option = "wasb_conn_id"
    conn_type = "wasb"

    libraries = (OBSTORE,)

    connector = "hadoop-azure"
    connector_jar = r"hadoop-azure-(\d.+)\.jar"
    jars_for = "abfss://"
    spark_failures = (
        (
            r"No FileSystem for scheme \"?abfss?\b|"
            r"ClassNotFoundException: (?:Class )?org\.apache\.hadoop\.fs\.azurebfs\.",
            NO_CONNECTOR,
        ),
    )

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

    def store_at(
        self,
        uri: str,
        access: StoreAccess | None = None,
        *,
        renew: Callable[[], StoreAccess] | None = None,
        waits: Mapping[str, Any] | None = None,
    ) -> AzureStore:
        """As `StoreScheme.store_at`."""
        return AzureStore(uri, access, renew=renew, **(waits or {}))

    def access(self, connection: ConnectionFields, location: str) -> StoreAccess:
        """As `StoreScheme.access`, in the order of Airflow's own hook.

        By the connection string, the tenant's application, the SAS token, or the key; without one by the machine's own
        identity. Raises `ConfigurationError` for a connection of another storage account than that of ``location``.
        """
        conn_id, extra = connection.conn_id, connection.of_type(self.conn_type).extra
        texts = dict(_pairs(str(extra.get("connection_string") or "")))
        host = connection.host or ""
        account, endpoint = _account(host, None if extra.get("tenant_id") else connection.login)
        options: dict[str, Any] = {}
        if texts:
            account = texts.get("AccountName", account)
            endpoint = texts.get("BlobEndpoint", endpoint)
            options = {"account_key": texts.get("AccountKey"), "sas_key": texts.get("SharedAccessSignature")}
        elif extra.get("tenant_id"):
            options = {
                "tenant_id": extra["tenant_id"],
                "client_id": connection.login,
                "client_secret": connection.password,
            }
        elif extra.get("sas_token"):
            options = {"sas_key": str(extra["sas_token"]).rpartition("?")[2]}
        elif extra.get("shared_access_key") or connection.password:
            options = {"account_key": extra.get("shared_access_key") or connection.password}
        elif extra.get("managed_identity_client_id"):
            options = {"client_id": extra["managed_identity_client_id"]}
            if extra.get("workload_identity_tenant_id"):
                options["tenant_id"] = extra["workload_identity_tenant_id"]
        if account and account != account_of(location):
            raise ConfigurationError(
                f"Expected connection {conn_id!r} to be of the storage account {account_of(location)!r}, which "
                f"{location} names; found {account!r}. Name the connection of that account in [recovery] wasb_conn_id.",
                code="connection-of-other-account",
                connection=conn_id,
                found=account,
            )
        chosen = {name: str(value) for name, value in options.items() if value}
        return StoreAccess(chosen, connection.endpoint(extra.get("endpoint_url") or endpoint))


def _account(host: str, login: str | None) -> tuple[str | None, str | None]:
    """The account, and its endpoint where the host is more than its name."""
    if not host:
        return login or None, None
    if "://" not in host and "." not in host:
        return login or host, None  # as Airflow's hook takes it
    url = urlsplit(host if "://" in host else f"https://{host}")
    first, *domain = (url.hostname or "").split(".")
    if domain and domain[0] == "blob":
        return first, f"{url.scheme}://{url.netloc}"
    # A server that is not Azure's has the account in the path.
    return url.path.strip("/").rpartition("/")[2] or login, host.rstrip("/")


def _pairs(text: str) -> list[tuple[str, str]]:
    """Of a connection string: ``name=value;...``."""
    parts = (piece.partition("=") for piece in text.split(";") if piece)
    return [(name.strip(), value) for name, _, value in parts]


SCHEME = AzureScheme()
