"""The session of an attempt on a Spark Connect server: its name, opening it, and interrupting what runs in it."""

from __future__ import annotations

import base64
import gc
import importlib.util
import os
import ssl
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, unquote, urlsplit

from airflow_recovery.driver.private_folder import own_folder, private_folder
from airflow_recovery.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_RETRIES = 4
"""Retries for a few seconds, not for the ten minutes of Spark's client: a server that does not answer is reported."""

REMOTE_VARIABLE = "SPARK_REMOTE"
"""Where ``SparkSession.builder.getOrCreate()`` finds the session that it is to use."""
_ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""The file with the certificates that gRPC believes."""
_CERTIFICATE = "certificate"
"""Our own parameter of a Connect URL: the one certificate that is believed there. Spark's client never sees it."""


def session_id_of(tag: str) -> str:
    """The Connect session of the attempt whose claim has this ``tag``: a later attempt reads it there and can find it.

    Another deployment with the same DAG may use the same server, and its attempts have other tags.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, tag))


def interrupt_attempt(url: str, *, session_id: str, user_id: str) -> tuple[str, ...]:
    """Interrupt all that runs in another attempt's session, and close that session so that nothing more begins there.

    Returns the ids of the operations that were interrupted; none where the session is closed already. For an attempt
    that must not go on: on_kill, or an orphan of an older attempt that the caller has fenced or is about to.
    """
    from pyspark.errors import PySparkException

    spark = open_session(url, session_id=session_id, user_id=user_id)
    try:
        return tuple(spark.interruptAll())
    except PySparkException as error:
        if (error.getCondition() or "").startswith("INVALID_HANDLE."):  # closed: nothing of it runs
            return ()
        raise
    finally:
        spark.stop()


def import_client() -> None:
    """Import all that a session needs (pandas, pyarrow, gRPC): most of the time that a small region's process takes.

    The garbage collector would look through some 300,000 new objects again and again, and they all stay as long as the
    process: it is paused, and told to leave them alone from then on. That saves a fifth of the time. May be called from
    a thread, before somebody waits for a session.
    """
    if "pyspark.sql.connect.session" in sys.modules:  # perhaps still being imported by that thread
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import pyspark.sql.connect.session  # noqa: F401
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def open_session(url: str, *, session_id: str, user_id: str) -> SparkSession:
    """A new client of the session ``session_id`` of ``user_id``; the server makes the session if it is new."""
    import_client()
    from pyspark.sql import SparkSession

    remote, certificate = _without_certificate(session_url(url, session_id=session_id, user_id=user_id))
    if certificate is None:
        return SparkSession.builder.remote(remote).create()
    return _open_believing(remote, certificate)


def _open_believing(remote: str, certificate: bytes) -> SparkSession:
    """A session at a server that shows this very certificate: Spark's client would believe those of all authorities."""
    import grpc  # type: ignore[import-untyped]
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    class Builder(DefaultChannelBuilder):
        def toChannel(self) -> grpc.Channel:
            credentials = grpc.composite_channel_credentials(
                grpc.ssl_channel_credentials(root_certificates=certificate),
                grpc.access_token_call_credentials(self.token),
            )
            return self._secure_channel(self.endpoint, credentials)

    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as the other builder does
    return cast("SparkSession", ConnectSession.builder.channelBuilder(Builder(remote)).create())


@contextmanager
def remote_variables(url: str, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The variables with which a program, whose environment is ``environment``, uses the session at ``url``.

    The program's gRPC accepts the certificate of ``url``, and all certificates that it accepts anyway: the program may
    connect to other servers, and Spark's client has no setting for one certificate.
    """
    remote, certificate = _without_certificate(url)
    if certificate is None:
        yield {REMOTE_VARIABLE: remote}
        return
    believed = Path(environment.get(_ROOTS_VARIABLE) or _roots_of_grpc())
    with own_folder(private_folder(), "roots") as folder:
        roots = folder / "roots.pem"
        roots.write_bytes(certificate + (believed.read_bytes() if believed.is_file() else b""))
        yield {REMOTE_VARIABLE: remote, _ROOTS_VARIABLE: str(roots)}


def _roots_of_grpc() -> str:
    spec = importlib.util.find_spec("grpc")
    return f"{Path(spec.origin).parent}/_cython/_credentials/roots.pem" if spec and spec.origin else ""


def limit_retries(spark: SparkSession, max_retries: int) -> None:
    """Have a session repeat a request without an answer so often at most, with pauses from 50 ms that grow fourfold."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=max_retries)])


def session_url(url: str, *, session_id: str, user_id: str) -> str:
    """``url`` with exactly this session and user. Raises `ConfigurationError` where it is no Connect URL."""
    if not url.startswith("sc://"):
        # Not shown: it may hold a token.
        raise ConfigurationError("expected a Spark Connect URL (sc://host:port/;key=value), found another scheme")
    base, *parameters = url.rstrip(";").split(";")
    kept = [parameter for parameter in parameters if parameter.partition("=")[0] not in ("session_id", "user_id")]
    return ";".join([base.rstrip("/") + "/", *kept, f"session_id={session_id}", f"user_id={quote(user_id, safe='')}"])


def with_certificate(url: str, certificate: bytes) -> str:
    """``url`` of a server that shows ``certificate`` (DER)."""
    return f"{url};{_CERTIFICATE}={quote(base64.b64encode(certificate), safe='')}"


def _without_certificate(url: str) -> tuple[str, bytes | None]:
    """``url`` as Spark's client takes it, and the certificate that `with_certificate` has put there (PEM)."""
    base, *parameters = url.split(";")
    ours = [parameter for parameter in parameters if parameter.startswith(f"{_CERTIFICATE}=")]
    kept = [parameter for parameter in parameters if parameter not in ours]
    if not ours:
        return url, None
    certificate = base64.b64decode(unquote(ours[0].partition("=")[2]))
    return ";".join([base, *kept]), ssl.DER_cert_to_PEM_cert(certificate).encode()


def host_of(url: str) -> str:
    """``host:port`` of a Connect URL: the part of it that may be shown."""
    return urlsplit(url.split(";")[0]).netloc.rpartition("@")[2]
