"""What Airflow's connections to Google's and Azure's clouds say about a store, as options of obstore.

Read from the connection itself: the providers of Google and Microsoft need not be installed. What a connection has
besides (impersonation, secrets kept elsewhere) is refused by name, since leaving it out would reach the store as
somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.store.azure import account_of
from airflow_recovery.store.cloud import CloudAccess

if TYPE_CHECKING:
    from airflow.sdk import Connection

GOOGLE, AZURE = "google_cloud_platform", "wasb"
"""Airflow's types of these connections."""

_NOT_READ = ("credential_config_file", "idp_issuer_url", "impersonation_chain", "is_anonymous", "key_secret_name")
"""Other ways of Google's connections to be somebody."""


def google_access(conn_id: str) -> CloudAccess:
    """How a connection of type ``google_cloud_platform`` reaches Cloud Storage. Raises `ConfigurationError`.

    By its key (``keyfile_dict`` or ``key_path``); without one as the machine's own identity does. ``endpoint_url`` in
    the extra names a server that is not Google's.
    """
    connection = _connection(conn_id, GOOGLE, "gcp_conn_id")
    extra = _extra(connection, GOOGLE)
    others = [name for name in _NOT_READ if extra.get(name)]
    if others:
        raise ConfigurationError(
            f"Expected a service account's key in connection {conn_id!r}, found {', '.join(others)}: it is not read "
            "for journal and results. Give keyfile_dict or key_path; or none, for the machine's own identity.",
            code="key-of-other-kind",
        )
    key = extra.get("keyfile_dict") or None
    if key is None and extra.get("key_path"):
        try:
            key = Path(str(extra["key_path"])).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"Expected the key file of connection {conn_id!r} at {extra['key_path']}, found none that can be read "
                f"({error.strerror}). Put it there in every component, or give keyfile_dict.",
                code="key-file-unreadable",
                connection=conn_id,
            ) from error
    options = {} if key is None else {"service_account_key": _service_account(key, conn_id)}
    return CloudAccess(options, _endpoint(extra.get("endpoint_url"), conn_id))


def azure_access(conn_id: str, uri: str) -> CloudAccess:
    """How a connection of type ``wasb`` reaches the account of ``uri``. Raises `ConfigurationError`.

    By its connection string, its tenant's application, its SAS token, or its key, in the order of Airflow's hook;
    without one as the machine's own identity does.
    """
    connection = _connection(conn_id, AZURE, "wasb_conn_id")
    extra = _extra(connection, AZURE)
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
    if account and account != account_of(uri):
        raise ConfigurationError(
            f"Expected connection {conn_id!r} to be of the storage account {account_of(uri)!r}, which {uri} names; "
            f"found {account!r}. Name the connection of that account in [recovery] wasb_conn_id.",
            code="connection-of-other-account",
            connection=conn_id,
            found=account,
        )
    chosen = {name: str(value) for name, value in options.items() if value}
    return CloudAccess(chosen, _endpoint(extra.get("endpoint_url") or endpoint, conn_id))


def _connection(conn_id: str, kind: str, option: str) -> Connection:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        connection: Connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise ConfigurationError(
            f"Expected the connection {conn_id!r} of [recovery] {option}, found none that can be read here. Define it, "
            "and give every component the same [core] fernet_key.",
            code="connection-unknown",
            connection=conn_id,
        ) from error
    if connection.conn_type != kind:
        raise ConfigurationError(
            f"Expected the connection {conn_id!r} of [recovery] {option} to be of type {kind}, found "
            f"{connection.conn_type!r}. Name one of that type.",
            code="connection-of-other-cloud",
            option=option,
            found=connection.conn_type,
        )
    return connection


def _extra(connection: Connection, kind: str) -> dict[str, Any]:
    """Its extra; older connections have the type in the names."""
    extra: Mapping[str, Any] = connection.extra_dejson or {}
    return {name.removeprefix(f"extra__{kind}__"): value for name, value in extra.items()}


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


def _endpoint(url: object, conn_id: str) -> str | None:
    text = str(url or "") or None
    if text is not None and not text.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"Expected the endpoint in connection {conn_id!r} to begin with http:// or https://, found {text!r}.",
            code="endpoint-unfit",
        )
    return text
