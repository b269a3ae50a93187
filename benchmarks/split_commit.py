"""A source of 1,000 files: committed split by split against one big job, and resumed after seven tenths of them."""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region import run_region
from airflow_recovery.driver.region_spec import ModeSpec, RegionSpec, RunDates, VertexSpec
from airflow_recovery.driver.submit import QUIET_CONF, store_conf
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import (
    AttemptState,
    AttemptTrace,
    Claim,
    ExternalObject,
    FenceCause,
    Outcome,
    RunIdentity,
)
from airflow_recovery.splits.mode import AdoptedBatches, SplitClaim
from airflow_recovery.splits.spec import SplitSpec
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing.s3_proxy import S3Proxy
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY, local_server
from airflow_recovery.testing.s3a_jars import class_path_variables
from benchmarks.report import Figure, Report, Table, summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 1_000
LINES = 1_000
"""In each file: about 20 KB."""
BATCHES = 10
KEPT = 7
"""Batches that the attempt that died has committed."""
BUCKET = "many-files"
NAME = "speeds"
JOB = "benchmarks.split_job:many_files"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
UPLOADERS = 16

BIG = "one big job"
SPLIT = f"{BATCHES} batches, each committed"
RESUMED = f"{BATCHES - KEPT} batches, {KEPT} adopted"

log = logging.getLogger(__name__)
log.setLevel(logging.WARNING)


@dataclass(frozen=True)
class Measured:
    """One attempt: from its spec to its outcome object, with a session that is warm."""

    seconds: float
    requests: int
    journal_writes: int


class Lake:
    """The files, the journal and the results on one S3 server, behind a proxy that counts."""

    def __init__(self, proxy: S3Proxy, spark: SparkSession, externals: tuple[ExternalObject, ...]) -> None:
        self._proxy = proxy
        self._spark = spark
        self._externals = externals
        self._journal = StoreSpec(f"s3://{BUCKET}/journal", proxy.endpoint_url, REGION)
        self._results = StoreSpec(f"s3://{BUCKET}/results", proxy.endpoint_url, REGION)

    def whole(self) -> Measured:
        """The vertices over all files at once, and one outcome."""
        return self._attempt(uuid.uuid4().hex, 1, ModeSpec())

    def split_wise(self) -> Measured:
        """The same, batch by batch."""
        return self._attempt(uuid.uuid4().hex, 1, self._splits())

    def resumed(self) -> Measured:
        """Attempt 2, after one that was lost when it had committed its first batches."""
        run = uuid.uuid4().hex
        first = self._externals[: FILES * KEPT // BATCHES]
        spec = self._spec(run, 1, self._splits(), first)
        journal = self._claim(spec)
        run_region(self._spark, spec, log=log, progress=Progress(log, 1))
        ended = Outcome(NAME, 1, AttemptState.FENCED, spec.trace.writer, _now(), cause=FenceCause.SUPERSEDED)
        journal.fence(ended)
        return self._attempt(run, 2, self._splits((AdoptedBatches(1, KEPT),)))

    def _splits(self, base: tuple[AdoptedBatches, ...] = ()) -> SplitSpec:
        return SplitSpec("lines", sum(external.size for external in self._externals) // BATCHES + FILES, base)

    def _attempt(self, run: str, number: int, mode: ModeSpec) -> Measured:
        spec = self._spec(run, number, mode, self._externals)
        begun, before = time.perf_counter(), len(self._proxy.requests)
        self._claim(spec)
        result = run_region(self._spark, spec, log=log, progress=Progress(log, number))
        finish_attempt(spec, result, log)
        seconds = time.perf_counter() - begun
        (made,) = result.outputs
        if made.rows != FILES * LINES:
            raise RuntimeError(f"expected {FILES * LINES} rows, found {made.rows}")
        requests = self._proxy.requests[before:]
        return Measured(seconds, len(requests), sum(1 for request in requests if request.is_conditional))

    def _spec(self, run: str, number: int, mode: ModeSpec, externals: Sequence[ExternalObject]) -> RegionSpec:
        trace = AttemptTrace(NAME, number, uuid.uuid4().hex, "code 1", (), tuple(externals))
        return RegionSpec(
            job=JOB,
            identity=RunIdentity("split_commit", run, "job"),
            trace=trace,
            tag="benchmark",
            vertices=(VertexSpec("lines", {}, False, False), VertexSpec(NAME, {}, True, False)),
            inputs=(),
            run=RunDates(None, None, None),
            location=f"{self._results.uri}/{run}/{NAME}/{number:08d}",
            journal=self._journal,
            results=self._results,
            mode=mode,
        )

    def _claim(self, spec: RegionSpec) -> Journal:
        store = open_store(spec.journal.uri, endpoint_url=spec.journal.endpoint_url, region_name=REGION)
        journal = Journal(store, spec.identity, writer=spec.trace.writer)
        base = SplitSpec.of(spec).base
        journal.claim(
            Claim(
                NAME,
                spec.attempt,
                journal.writer,
                "plan",
                (),
                "run",
                1,
                "ti",
                "tag",
                _now(),
                mode=SplitClaim(base=base, reading="same"),
            )
        )
        return journal


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 3) rounds of the three, after one that warms the session."""
    rounds = repeats or 3
    with _lake(folder) as lake:
        ways = {BIG: lake.whole, SPLIT: lake.split_wise, RESUMED: lake.resumed}
        for candidate in ways.values():
            candidate()
        found: dict[str, list[Measured]] = {way: [] for way in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                found[name].append(way())
    seconds = {name: [each.seconds for each in measured] for name, measured in found.items()}
    big, split, resumed = (median(seconds[name]) for name in (BIG, SPLIT, RESUMED))
    requests = {name: measured[-1].requests for name, measured in found.items()}
    return Report(
        name="split_commit",
        title=f"Split-wise commit of {FILES:,} files",
        method=(
            f"{FILES:,} CSV files of {LINES:,} lines on an S3 server, one source and one row-local vertex, Spark "
            "local[2] over s3a, everything through a proxy that counts requests. Measured is an attempt from its claim "
            "to its outcome object, on a session that is warm: by one job over all files, and by "
            f"{BATCHES} batches of which two run at a time and each is committed by itself. Resumed is attempt 2 "
            f"after one that was lost when {KEPT} of {BATCHES} batches were committed. The proxy, a Python process on "
            "the same machine, makes every request slower than it would be; the files are so small that requests are "
            "most of the time."
        ),
        figures=[
            Figure("split by split, against one big job", split / big, "times"),
            Figure("resumed at 70 %, against one big job", resumed / big, "times"),
            Figure("requests more, a batch", (requests[SPLIT] - requests[BIG]) / BATCHES, ""),
        ],
        tables=[
            Table(
                "Seconds, requests, and conditional writes (claim, batches, outcome)",
                ("the attempt", "requests", "conditional writes", "median", "least", "most", "tries"),
                [
                    (name, requests[name], measured[-1].journal_writes, *summary(seconds[name]))
                    for name, measured in found.items()
                ],
            )
        ],
        samples=seconds,
    )


@contextmanager
def _lake(folder: Path) -> Iterator[Lake]:
    from pyspark.sql import SparkSession

    folder.mkdir(parents=True)
    server = local_server(folder / "s3")
    environ = {
        **CREDENTIALS,
        **class_path_variables(),
        "PYSPARK_PYTHON": sys.executable,
    }
    with server, patch.dict(os.environ, environ), S3Proxy(server) as proxy:
        server.create_bucket(BUCKET)
        conf = store_conf(StoreSpec(f"s3://{BUCKET}", proxy.endpoint_url, REGION), os.environ)
        builder = SparkSession.builder.master("local[2]")
        settings = {"spark.ui.enabled": "false", "spark.scheduler.mode": "FAIR", "spark.driver.host": "127.0.0.1"}
        for key, value in {**QUIET_CONF, **settings, **conf}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield Lake(proxy, spark, _write_files(proxy))
        finally:
            spark.stop()


def _write_files(proxy: S3Proxy) -> tuple[ExternalObject, ...]:
    base = f"s3://{BUCKET}/in"
    store = open_store(base, endpoint_url=proxy.endpoint_url, region_name=REGION)

    def write(number: int) -> ExternalObject:
        rows = (
            f"{number * LINES + candidate},ua,{500 + candidate}.0,{60 + candidate}.0\n" for candidate in range(LINES)
        )
        info = store.put(f"{number:05d}.csv", "".join(rows).encode())
        return ExternalObject("lines", f"{base}/{info.key}", info.size, info.etag)

    with ThreadPoolExecutor(UPLOADERS) as pool:
        return tuple(pool.map(write, range(FILES)))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()
