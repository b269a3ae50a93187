"""Results that a Spark Connect server keeps (``CACHED``, ``CACHED_MEMORY_ONLY``): made, read, asked for, dropped.

A result is a global temporary view whose plan the server caches, so that it outlives the session that made it. What is
kept may be evicted, silently: Spark then computes it again, from the files that its region read. That gives the same
rows, since only vertices that are declared deterministic may be cached, or fails where such a file is gone.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_recovery.driver.cached_blocks import evicted
from airflow_recovery.driver.digest import digest_metrics, digest_of
from airflow_recovery.driver.failure import describe, is_user_error
from airflow_recovery.driver.failure_class import FailureClass, classify
from airflow_recovery.errors import CacheUnreachable, JobDefinitionError, ManifestInvalid, PartitionMissing
from airflow_recovery.model.cached_location import CachedLocation
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.result_type import CACHED, CACHED_MEMORY_ONLY
from airflow_recovery.results.cached import VIEW_PREFIX, cached_view_name
from airflow_recovery.results.keeper import AskServer, ResultKeeper, ResultPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STORAGE_LEVELS = {CACHED: "DISK_ONLY", CACHED_MEMORY_ONLY: "MEMORY_ONLY"}
"""Spark's storage level of each type. ``CACHED`` is on disk, so that other queries' memory evicts nothing."""

_BLAMED_ON_THE_RESULT = (
    FailureClass.PARTITION_MISSING,
    FailureClass.INPUT_ALTERED,
    FailureClass.INPUT_UNREADABLE,
    FailureClass.USER_CODE,
)
_NO_SUCH_VIEW = "TABLE_OR_VIEW_NOT_FOUND"


class CachedResults(ResultKeeper):
    """Keeps results on the Spark Connect server that runs their regions, for as long as it runs."""

    is_made_again = True

    def write(self, spark: SparkSession, frame: DataFrame, place: ResultPlace) -> PartitionManifest:
        """Have the server keep ``frame`` as a view. Raises `JobDefinitionError` if no server runs the region."""
        if place.server is None:
            raise JobDefinitionError(
                f"{place.where}: expected a Spark Connect server that keeps it, found an application that ends with "
                "its region: declare it with result=BLOCKING"
            )
        return cache_result(
            spark,
            frame,
            result=place.result,
            level=STORAGE_LEVELS[place.type],
            server=place.server,
            view=cached_view_name(place.journal, place.identity, place.region, place.attempt, place.result),
            is_digested=place.is_digested,
        )

    def read(self, spark: SparkSession, manifest: PartitionManifest) -> DataFrame:
        """A lazy frame over what the view of ``manifest`` holds.

        Raises `PartitionMissing` if the session's server does not keep it: the region task then looks for itself.
        """
        location = CachedLocation.parse(manifest.location)
        lost = why_lost(spark, location)
        if lost is not None:
            raise PartitionMissing(f"the cached result {manifest.result!r} can't be read: {lost}")
        return spark.table(f"global_temp.{location.view}")

    def why_lost(self, manifest: PartitionManifest, ask_server: AskServer) -> str | None:
        """What the server says."""
        return ask_server(manifest)

    def after_failure(
        self, error: Exception, spark: SparkSession, inputs: Sequence[PartitionManifest], log: logging.Logger
    ) -> None:
        """Raise `PartitionMissing` if one of ``inputs`` is lost. Returns if the server can't be asked."""
        if isinstance(error, PartitionMissing):
            return
        from pyspark.errors import PySparkException

        is_own = not isinstance(error, PySparkException) or is_user_error(describe(error))
        for manifest in inputs:
            try:
                lost = why_lost(spark, CachedLocation.parse(manifest.location))
                if lost is None and not is_own:
                    lost = forget_unreadable(spark, manifest, log)
            except Exception as second:
                log.warning("It could not be asked if the cached input %s is there: %s", manifest.result, second)
                return
            if lost is not None:
                raise PartitionMissing(f"the cached input {manifest.result!r} is lost: {lost} ({error})") from error


KEEPER = CachedResults()


def cache_result(
    spark: SparkSession, frame: DataFrame, *, result: str, level: str, server: str, view: str, is_digested: bool = False
) -> PartitionManifest:
    """Have the server keep ``frame`` as the global temporary view ``view``, which must not exist. Returns its manifest.

    ``level`` is one of `STORAGE_LEVELS`. The one pass that fills the cache counts the rows, and digests them. Raises
    `ManifestInvalid` where the server's memory is seen not to hold what is to be held in memory alone.
    """
    from pyspark.sql import functions as F

    only_mine(frame, view).createGlobalTempView(view)
    spark.sql(f"CACHE LAZY TABLE global_temp.{view} OPTIONS ('storageLevel' '{level}')").collect()
    kept = spark.table(f"global_temp.{view}")
    schema = kept.schema
    (counted,) = kept.agg(F.count(F.lit(1)).alias("rows"), *(digest_metrics(schema) if is_digested else [])).collect()
    document = counted.asDict()
    rows = int(document["rows"])
    manifest = PartitionManifest(
        result=result,
        location=CachedLocation(server, application_id(spark), view).uri,
        objects=(),
        rows=rows,
        schema=schema.json(),
        digest=digest_of(schema, rows, document) if is_digested else None,
    )
    too_small = why_evicted(spark, manifest)
    if too_small is not None:
        # If it were registered, its readers would find it lost each time that it is made.
        raise ManifestInvalid(
            f"result {result!r}: expected the server's memory to hold it, found that it does not ({too_small}): "
            "declare it with result=CACHED, which is kept on disk, or give the server more memory"
        )
    return manifest


def only_mine(frame: DataFrame, view: str) -> DataFrame:
    """``frame`` with a plan that no other query has: a condition that is always true names ``view``, and costs nothing.

    Spark takes plans for equal that read the same paths, whatever lies there. A later attempt over changed files would
    be given what is kept for an earlier one, and to drop that one would drop both.
    """
    from pyspark.sql import functions as F

    return frame.where(F.lit(view) == F.lit(view))


def application_id(spark: SparkSession) -> str:
    """The id of the server's Spark application: a server that was restarted has another one."""
    return str(spark.conf.get("spark.app.id"))


def why_lost(spark: SparkSession, location: CachedLocation) -> str | None:
    """Why the session's server does not keep this result any more; `None` where it does.

    Raises Spark's errors where it gives no answer.
    """
    now = application_id(spark)
    if now != location.application_id:
        return (
            f"{location.server} kept it as the application {location.application_id}, and the server that is asked is "
            f"{now}: it was restarted, or is another one"
        )
    is_cached = _is_cached(spark, location.view)
    if is_cached is None:
        return f"{location.server} ({now}) has no view {location.view} any more: it was dropped"
    return None if is_cached else f"{location.server} ({now}) keeps nothing for {location.view} any more: uncached"


def why_evicted(spark: SparkSession, manifest: PartitionManifest) -> str | None:
    """How much of a result that is kept in memory alone was evicted; `None` for nothing, or where nobody can say."""
    location = CachedLocation.parse(manifest.location)
    if not manifest.rows or spark.table(f"global_temp.{location.view}").storageLevel.useDisk:
        return None
    text = evicted(spark, location)
    return None if text is None else f"{location.server}: {location.view}: {text}"


def forget_unreadable(spark: SparkSession, manifest: PartitionManifest, log: logging.Logger) -> str | None:
    """After a failure of a reader: read the cached result alone, and drop its view where even that fails.

    Then parts of it are gone, and so are the files that Spark would make them of: nobody can read it any more, while
    the server still calls it cached. Returns what failed; `None` where it can be read. Raises Spark's errors where they
    say nothing about the result.
    """
    from pyspark.errors import PySparkException

    location = CachedLocation.parse(manifest.location)
    try:
        spark.table(f"global_temp.{location.view}").count()
    except PySparkException as error:
        failure = describe(error)
        if classify(failure) not in _BLAMED_ON_THE_RESULT:
            raise
        spark.catalog.dropGlobalTempView(location.view)
        why = f"{location.view} could not be read alone either ({failure.condition or failure.type}): dropped"
        log.warning("Cached result %s: %s", manifest.result, why)
        return why
    return None


class CacheServer:
    """The cached results of one server, for whoever runs nothing there: a pre-check, a publish, the command line.

    ``url`` (``sc://host:port/;token=...``) is never logged. Every question opens a session of its own and closes it.
    Raises `CacheUnreachable` where the server gives no answer, which never means that a result is gone.
    """

    def __init__(self, url: str, *, user_id: str = "airflow-recovery") -> None:
        self._url = url
        self._user_id = user_id

    def ask(self, manifest: PartitionManifest) -> str | None:
        """`None` where the server keeps this result, else why it is lost."""
        location = CachedLocation.parse(manifest.location)
        with self._session() as spark:
            return why_lost(spark, location) or why_evicted(spark, manifest)

    def names(self) -> frozenset[str]:
        """All global temporary views there whose names begin as ours do, those of other deployments among them."""
        with self._session() as spark:
            views = spark.catalog.listTables("global_temp", f"{VIEW_PREFIX}*")
            return frozenset(view.name for view in views if view.namespace == ["global_temp"])

    def drop(self, views: Collection[str]) -> None:
        """Forget these views and what is kept for them. One that is gone already is no error."""
        if not views:
            return
        with self._session() as spark:
            for view in views:
                spark.catalog.dropGlobalTempView(view)

    @contextmanager
    def _session(self) -> Iterator[SparkSession]:
        from airflow_recovery.driver.connect_session import CONNECT_RETRIES, host_of, limit_retries, open_session

        spark: SparkSession | None = None
        try:
            spark = open_session(self._url, session_id=str(uuid.uuid4()), user_id=self._user_id)
            limit_retries(spark, CONNECT_RETRIES)
            yield spark
        except Exception as error:
            if spark is not None:
                # The server would not answer that request either.
                setattr(spark, "release_session_on_close", False)  # noqa: B010 - of the Connect class alone
            failure = describe(error)
            raise CacheUnreachable(
                f"expected the Spark Connect server {host_of(self._url)} to say what it keeps, found {failure.type}: "
                f"{' '.join(failure.message.split())[:300]}. That says nothing about the cached results: start the "
                "server, or have the connection name another one, which has lost them"
            ) from error
        finally:
            if spark is not None:
                spark.stop()


def _is_cached(spark: SparkSession, view: str) -> bool | None:
    """Whether the server keeps the view's rows; `None` where there is no such view."""
    from pyspark.errors import AnalysisException

    try:
        return bool(spark.catalog.isCached(f"global_temp.{view}"))
    except AnalysisException as error:
        if error.getCondition() == _NO_SUCH_VIEW:
            return None
        raise
