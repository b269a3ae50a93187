"""The session of an attempt on a Spark Connect server: its name, opening it, and interrupting what runs in it."""

from __future__ import annotations

import gc
import sys
import uuid
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow_recovery.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_RETRIES = 4
"""Retries for a few seconds, not for the ten minutes of Spark's client: a server that does not answer is reported."""


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

    return SparkSession.builder.remote(session_url(url, session_id=session_id, user_id=user_id)).create()


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


def host_of(url: str) -> str:
    """``host:port`` of a Connect URL: the part of it that may be shown."""
    return urlsplit(url.split(";")[0]).netloc.rpartition("@")[2]
