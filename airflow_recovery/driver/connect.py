"""Running a region over a warm Spark Connect server.

The vertices are called in this process (the Airflow task); their operations run on the server. An operation survives
``kill -9`` of its client, so that every attempt has a session of its own, a tag, and a `watchdog`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.background import in_background
from airflow_recovery.driver.connect_session import host_of, limit_retries, open_session, session_id_of
from airflow_recovery.driver.exit_report import reporting_failure
from airflow_recovery.driver.failure import silence_query_loggers
from airflow_recovery.driver.outcome import finish_attempt, heartbeat, open_early
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region import apply_spark_conf, run_region
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.watchdog import guarding
from airflow_recovery.journal.masking import Mask
from airflow_recovery.journal.scrub import scrubbed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_recovery.store.object_store import ObjectStore


def run_over_connect(  # noqa: PLR0913 - what a session is opened with
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
    max_retries: int | None = None,
) -> AttemptResult:
    """Run one attempt to its outcome object on the server at ``url`` (``sc://host:port/;token=...``).

    ``archive`` is `shipping.build_archive`'s. ``user_id`` must be the same for all attempts of a run: sessions are
    keyed by it. ``conf`` is set in the session, as far as the server lets it be set; what a vertex asks for wins.
    ``journal`` and ``results`` are the spec's stores where this process has them open already: more clients cost 70 ms.
    ``mask`` takes out of what is written the secrets that this process knows. ``max_retries``: of a request without an
    answer; without it, Spark's client repeats it for ten minutes. The job must be importable here. Leaves
    the same failure file and object as the driver process of spark-submit, and raises the failure itself; raises
    `AttemptLost` where the attempt was fenced. Closes its session, never the server. This process is in Connect mode
    afterwards (pyspark's own mark in its environment): no classic session can be made in it.
    """
    silence_query_loggers()
    progress = Progress(log, spec.attempt)
    session_id = session_id_of(spec.tag)
    opened: SparkSession | None = None

    def stop() -> None:
        if opened is not None:
            opened.interruptTag(spec.tag)

    with (
        heartbeat(spec, open_early(spec) if journal is None else lambda: journal, log, stop=stop),
        reporting_failure(spec, progress, log, mask),
        guarding(url, session_id=session_id, user_id=user_id),
    ):
        log.info("Spark Connect server: %s, session %s", host_of(url), session_id)
        spark = opened = open_session(url, session_id=session_id, user_id=user_id)
        try:
            if max_retries is not None:
                limit_retries(spark, max_retries)
            spark.addTag(spec.tag)
            # No vertex is called before it has arrived; the session's settings and the inputs don't need it.
            shipped = in_background(lambda: spark.addArtifacts(str(archive), pyfile=True), "ship code")
            apply_spark_conf(spark, "The task", conf or {}, log)
            result = run_region(
                spark, spec, log=log, progress=progress, results=results, ready=shipped, server=host_of(url), mask=mask
            )
            finish_attempt(spec, result, log, store=journal, mask=mask)
            return result
        finally:
            spark.stop()
