"""Running a region over a warm Spark Connect server, and interrupting what an older attempt left running there.

The vertices are called in this process (the Airflow task); their operations run on the server. An operation survives
``kill -9`` of its client, so that every attempt has a session of its own, a tag, and a `watchdog`.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.masking import Mask
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.runtime.beside import beside
from airflow_recovery.runtime.failure import silence_query_loggers
from airflow_recovery.runtime.outcome import finish_attempt, heartbeat, open_early
from airflow_recovery.runtime.progress import Progress
from airflow_recovery.runtime.receipt import reporting_failure
from airflow_recovery.runtime.region import RegionResult, apply_spark_conf, run_region
from airflow_recovery.runtime.spec import RegionSpec
from airflow_recovery.runtime.watchdog import guarding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_recovery.storage.object_store import ObjectStore


def session_id_of(identity: RunIdentity, region: str, attempt: int) -> str:
    """The Connect session of an attempt: the same on every machine, so that a later attempt can find it."""
    name = json.dumps([identity.dag_id, identity.run_key, identity.group_id, region, attempt])
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def run_over_connect(
    url: str,
    spec: RegionSpec,
    *,
    archive: Path,
    log: logging.Logger,
    user_id: str,
    conf: Mapping[str, str] | None = None,
    journal: ObjectStore | None = None,
    results: ObjectStore | None = None,
    mask: Mask = scrubbed,
) -> RegionResult:
    """Run one attempt to its outcome object on the server at ``url`` (``sc://host:port/;token=...``).

    ``archive`` is `shipping.build_archive`'s. ``user_id`` must be the same for all attempts of a run: sessions are
    keyed by it. ``conf`` is set in the session, as far as the server lets it be set; what a vertex asks for wins.
    ``journal`` and ``results`` are the spec's stores where this process has them open already: more clients cost 70 ms.
    ``mask`` takes out of what is written the secrets that this process knows. The job must be importable here. Leaves
    the same failure file and object as the driver process of spark-submit, and raises the failure itself; raises
    `AttemptLost` where the attempt was fenced. Closes its session, never the server. This process is in Connect mode
    afterwards (pyspark's own mark in its environment): no classic session can be made in it.
    """
    silence_query_loggers()
    progress = Progress(log, spec.attempt)
    session_id = session_id_of(spec.identity, spec.region, spec.attempt)
    opened: SparkSession | None = None

    def stop() -> None:
        if opened is not None:
            opened.interruptTag(spec.tag)

    with (
        heartbeat(spec, open_early(spec) if journal is None else lambda: journal, log, stop=stop),
        reporting_failure(spec, progress, log, mask),
        guarding(url, session_id=session_id, tag=spec.tag, user_id=user_id),
    ):
        log.info("Spark Connect server: %s, session %s", host_of(url), session_id)
        spark = opened = open_session(url, session_id=session_id, user_id=user_id)
        try:
            spark.addTag(spec.tag)
            # No vertex is called before it has arrived; the session's settings and the inputs don't need it.
            shipped = beside(lambda: spark.addArtifacts(str(archive), pyfile=True), "ship code")
            apply_spark_conf(spark, "The task", conf or {}, log)
            result = run_region(
                spark, spec, log=log, progress=progress, results=results, ready=shipped, server=host_of(url), mask=mask
            )
            finish_attempt(spec, result, log, store=journal, mask=mask)
            return result
        finally:
            spark.stop()


def interrupt_attempt(url: str, *, session_id: str, tag: str, user_id: str) -> tuple[str, ...]:
    """Interrupt the operations of another attempt, and close its session so that it can't start more.

    Returns the ids of the operations that were interrupted; none where the session is closed already. For an attempt
    that must not go on: on_kill, or an orphan of an older attempt that the caller has fenced or is about to.
    """
    from pyspark.errors import PySparkException

    spark = open_session(url, session_id=session_id, user_id=user_id)
    try:
        return tuple(spark.interruptTag(tag))
    except PySparkException as error:
        if (error.getCondition() or "").startswith("INVALID_HANDLE."):  # closed: nothing of it runs
            return ()
        raise
    finally:
        spark.stop()


def import_client() -> None:
    """Import all that a session needs (pandas, pyarrow, gRPC): most of what a small region's process computes at all.

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


def session_url(url: str, *, session_id: str, user_id: str) -> str:
    """``url`` with exactly this session and user. Raises `ConfigurationError` where it is no Connect URL."""
    if not url.startswith("sc://"):
        # Not shown: it may hold a token.
        raise ConfigurationError("expected a Spark Connect URL (sc://host:port/;key=value), found another scheme")
    base, *parameters = url.rstrip(";").split(";")
    kept = [each for each in parameters if each.partition("=")[0] not in ("session_id", "user_id")]
    return ";".join([base.rstrip("/") + "/", *kept, f"session_id={session_id}", f"user_id={quote(user_id, safe='')}"])


def host_of(url: str) -> str:
    """``host:port`` of a Connect URL: the part of it that may be shown."""
    return urlsplit(url.split(";")[0]).netloc.rpartition("@")[2]
