"""A channel between two Spark applications, against the same stream in one application; and what an epoch costs."""

from __future__ import annotations

import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

from airflow_recovery.driver.driver import FINISHED
from airflow_recovery.driver.region_spec import RegionSpec, RunDates, VertexSpec
from airflow_recovery.driver.submit import QUIET_CONF, store_conf
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.channel_options import UNLIMITED, Overflow, Reconnect
from airflow_recovery.model.records import AttemptTrace, Claim, RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.mode import ChannelRef, StreamingClaim, StreamingOutcome
from airflow_recovery.streaming.reading import read_channel
from airflow_recovery.streaming.spec import ChannelSpec, StreamingSpec
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY, local_server
from benchmarks.channel_job import FILES_A_BATCH, read_stream, with_speed
from benchmarks.report import Figure, Report, Table, summary
from scripts.jars import class_path_variables
from scripts.s3_proxy import S3Proxy, S3Request
from scripts.streaming_driver import StreamingDriverProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = 24
LINES = 20_000
"""In each file: about 400 KB."""
EPOCHS = FILES // FILES_A_BATCH
SUBPARTITIONS = (1, 8, 64)
BUCKET = "channels"
JOB = "benchmarks.channel_job:two_regions"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
ONE = "one application"
KINDS = {
    "control log": "/log/",
    "segments": "/seg/",
    "outputs": "/out/",
    "Spark's checkpoints": "/(_stages|checkpoint)/",
}
PER_THOUSAND_WRITES, PER_THOUSAND_READS = 0.005, 0.0004
"""Dollars, as S3 Standard in us-east-1 has charged for years; DELETE is free."""


@dataclass(frozen=True)
class Measured:
    """One way of running the stream once: from its start to its end, with sessions that are warm."""

    seconds: float
    requests: Counter[tuple[str, str]]
    """By what it was about, and whether it is billed as a write, as a read, or not at all."""

    def count(self, *billed: str, kind: str | None = None) -> float:
        """Requests an epoch."""
        found = (n for (of, how), n in self.requests.items() if kind in (None, of) and (not billed or how in billed))
        return sum(found) / EPOCHS


class ChannelBench:
    """Files, channels and results; the latter on an S3 server behind a proxy that counts."""

    def __init__(
        self, folder: Path, proxy: S3Proxy, spark: SparkSession, drivers: dict[str, StreamingDriverProcess]
    ) -> None:
        self._folder = folder
        self._proxy = proxy
        self._spark = spark
        self._drivers = drivers
        self._results = StoreSpec(f"s3://{BUCKET}/results", proxy.endpoint_url, REGION)
        self._journal = StoreSpec(f"file://{folder}/journal")

    def in_one_application(self) -> Measured:
        """Spark's own Parquet sink and checkpoint on S3: what there is without a channel."""
        where = f"s3a://{BUCKET}/plain/{uuid.uuid4().hex}"

        def run() -> None:
            stream = with_speed(read_stream(self._spark, f"file://{self._folder}/in"))
            writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{where}/checkpoint")
            query = writer.trigger(availableNow=True).start(f"{where}/out")
            query.awaitTermination()
            if self._spark.read.parquet(f"{where}/out").count() != FILES * LINES:
                raise RuntimeError(f"expected {FILES * LINES} rows at {where}")

        return self._measured(run)

    def through_a_channel(self, subpartitions: int) -> Measured:
        """Two applications at the same time, to the registered result."""
        run = RunIdentity("approximate_channel", uuid.uuid4().hex, "job")
        specs = {name: self._spec(run, name, subpartitions) for name in ("rows", "speeds")}

        def go() -> None:
            for name, spec in specs.items():
                self._claim(spec)
                self._drivers[name].begin(spec)
            for name, spec in specs.items():
                if self._drivers[name].code(spec) != FINISHED:
                    raise RuntimeError(f"{name} has failed:\n{self._drivers[name].log()[-4000:]}")

        measured = self._measured(go)
        state = read_channel(self._store, ChannelIdentity(run, "rows", 1))
        if sum(state.done) != FILES * LINES or state.ledger or state.epoch + 1 != EPOCHS:
            raise RuntimeError(
                f"expected {FILES * LINES} rows in {EPOCHS} epochs, found {state.done}, {state.epoch + 1}"
            )
        return measured

    @property
    def _store(self) -> ObjectStore:
        return open_store(self._results.uri, endpoint_url=self._proxy.endpoint_url, region_name=REGION)

    def _measured(self, run: object) -> Measured:
        assert callable(run)
        before, begun = len(self._proxy.requests), time.perf_counter()
        run()
        seconds = time.perf_counter() - begun
        return Measured(seconds, Counter(map(_kind, self._proxy.requests[before:])))

    def _spec(self, run: RunIdentity, name: str, subpartitions: int) -> RegionSpec:
        channel = ChannelSpec(
            result="rows",
            generation=1,
            reconnect=Reconnect.REWIND,
            overflow=Overflow.BLOCK,
            max_bytes=10**9,
            block_timeout_s=600.0,
            subpartitions=subpartitions,
            partition_by=(),
            budget=UNLIMITED,
            restart_budget=UNLIMITED,
        )
        is_source = name == "rows"
        streaming = StreamingSpec(
            input=None if is_source else channel,
            output=channel if is_source else None,
            trigger_s=1.0,
            max_rows=None,
            output_mode="append",
            run_for_s=None,
            stateful=False,
            replays=True,
            allow_stateful_loss=False,
        )
        pins = (ChannelRef("rows", 1),)
        params = {"folder": f"file://{self._folder}/in"} if is_source else {}
        return RegionSpec(
            job=JOB,
            identity=run,
            trace=AttemptTrace(name, 1, f"writer-{name}", "code 1", (), (), mode=StreamingOutcome(pins)),
            tag=f"{name}-{run.run_key}",
            vertices=(VertexSpec(name, params, not is_source, False),),
            inputs=(),
            run=RunDates(None, None, None),
            location=f"{self._results.uri}/{JournalLayout(run).data_of_number(name, 1)}",
            journal=self._journal,
            results=self._results,
            receipt=str(self._folder / f"receipt-{name}-{run.run_key}"),
            heartbeat_s=600.0,
            mode=streaming,
        )

    def _claim(self, spec: RegionSpec) -> None:
        journal = Journal(open_store(spec.journal.uri), spec.identity, writer=spec.trace.writer)
        name, writer = spec.region, spec.trace.writer
        claim = Claim(
            name,
            1,
            writer,
            "plan",
            (),
            "run",
            1,
            "ti",
            spec.tag,
            "2026-01-01",
            mode=StreamingClaim(StreamingOutcome.of(spec.trace).channels),
        )
        journal.claim(claim)


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 2) rounds of the four ways, after one that warms the sessions."""
    with _bench(folder) as bench:
        ways = {ONE: bench.in_one_application}
        for each in SUBPARTITIONS:
            ways[_told(each)] = lambda each=each: bench.through_a_channel(each)  # type: ignore[misc]
        bench.in_one_application()
        bench.through_a_channel(SUBPARTITIONS[0])
        found: dict[str, list[Measured]] = {way: [] for way in ways}
        for _ in range(repeats or 2):
            for name, way in ways.items():
                found[name].append(way())
    seconds = {name: [each.seconds for each in measured] for name, measured in found.items()}
    last = {name: measured[-1] for name, measured in found.items()}
    times = {name: median(each) / median(seconds[ONE]) for name, each in seconds.items()}
    eight = last[_told(8)]
    return Report(
        name="approximate_channel",
        title="A stream through a channel",
        method=(
            f"{FILES} CSV files of {LINES:,} lines, {FILES_A_BATCH} a micro-batch ({EPOCHS} epochs), one projection, "
            "Parquet at the end. Either in one Spark application with Spark's own file sink, or in two that run at the "
            "same time with a channel between them, whose last one writes its registered result as well. All sessions "
            "are warm, local[2], on one machine; channels, checkpoints and results on an S3 server over HTTP, behind a "
            "proxy that counts. The proxy, a Python process on the same machine, makes every request slower than it "
            "would be, so that many requests weigh more than they should."
        ),
        figures=[
            Figure("through a channel with 1 subpartition, against one application", times[_told(1)], "times as long"),
            Figure("with 8 subpartitions", times[_told(8)], "times as long"),
            Figure("with 64 subpartitions", times[_told(64)], "times as long"),
            Figure("rows a second, through 8 subpartitions", FILES * LINES / median(seconds[_told(8)]), "rows/s"),
            Figure("requests an epoch, 8 subpartitions, both sides", eight.count(), ""),
            Figure("of which Spark's checkpoints", eight.count(kind="Spark's checkpoints"), ""),
        ],
        tables=[
            Table(
                "Seconds",
                ("way", "median", "least", "most", "tries"),
                [(name, *summary(each)) for name, each in seconds.items()],
            ),
            Table(
                "Requests an epoch, both sides together",
                ("way", *KINDS, "other", "as writes", "as reads", "dollars for a million epochs"),
                [_row(name, each) for name, each in last.items()],
            ),
        ],
        samples=seconds,
    )


def _row(name: str, measured: Measured) -> tuple[object, ...]:
    writes, reads = measured.count("write"), measured.count("read")
    dollars = 1000 * (writes * PER_THOUSAND_WRITES + reads * PER_THOUSAND_READS)
    kinds = [f"{measured.count(kind=kind):.1f}" for kind in (*KINDS, "other")]
    return name, *kinds, f"{writes:.1f}", f"{reads:.1f}", f"{dollars:.0f}"


def _told(subpartitions: int) -> str:
    return f"channel, {subpartitions} subpartition" + ("s" if subpartitions > 1 else "")


def _kind(request: S3Request) -> tuple[str, str]:
    where = request.key or request.query.get("prefix", "")
    about = next((kind for kind, part in KINDS.items() if re.search(part, f"/{where}/")), "other")
    if request.method == "DELETE" or "delete" in request.query:
        return about, "free"
    is_list = request.method == "GET" and not request.key
    return about, "write" if request.method in ("PUT", "POST") or is_list else "read"


@contextmanager
def _bench(folder: Path) -> Iterator[ChannelBench]:
    from pyspark.sql import SparkSession

    folder.mkdir(parents=True)
    _write_files(folder / "in")
    server = local_server(folder / "s3")
    environ = {
        **CREDENTIALS,
        **class_path_variables(),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with server, patch.dict(os.environ, environ), S3Proxy(server) as proxy:
        server.create_bucket(BUCKET)
        conf = store_conf(StoreSpec(f"s3://{BUCKET}", proxy.endpoint_url, REGION), os.environ)
        drivers: dict[str, StreamingDriverProcess] = {}
        builder = SparkSession.builder.master("local[2]")
        settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "1"}
        for key, value in {**QUIET_CONF, **settings, **conf}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            for name in ("rows", "speeds"):
                drivers[name] = StreamingDriverProcess(folder / name, [REPOSITORY], environment=environ, conf=conf)
            yield ChannelBench(folder, proxy, spark, drivers)
        finally:
            for driver in drivers.values():
                driver.kill()
            spark.stop()


def _write_files(folder: Path) -> None:
    folder.mkdir()
    for number in range(FILES):
        lines = (
            f"{number * LINES + candidate},ua,{500 + candidate % 997}.0,{60 + candidate % 97}.0\n"
            for candidate in range(LINES)
        )
        (folder / f"{number:05d}.csv").write_text("".join(lines))
