"""Cached results on real Spark Connect servers: kept, read, evicted, replaced, dropped, and lost with their server."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from runtime_specs import IDENTITY, journal_of, outcome_of, region_spec, vertex, write_numbers

from airflow_recovery.driver import RegionSpec, cached, connect_session
from airflow_recovery.driver.cached import KEEPER, CacheServer, cache_result
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.connect import run_over_connect
from airflow_recovery.driver.connect_session import open_session
from airflow_recovery.driver.exit_report import read_failure
from airflow_recovery.driver.failure_class import FailureClass, classify
from airflow_recovery.errors import CacheUnreachable, PartitionMissing
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.cached_location import CachedLocation
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import Claim, ExternalObject, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.cached import VIEW_PREFIX
from airflow_recovery.results.sweep import Sweeper
from airflow_recovery.results.swept_run import SweepOptions
from airflow_recovery.store import open_store
from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.spark_cluster import ConnectServer, connect_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

JOB = "regionjobs.kept:keeping"
USER = "airflow"
ROWS_A_FILE = 15_000
FILES = 4
log = logging.getLogger("tests.runtime.cached")


@pytest.fixture(scope="module", autouse=True)
def connect_mode() -> Iterator[None]:
    """This process talks to Connect servers; a classic session of other tests must find it as it was."""
    yield
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    """With a UI that can be asked, and with room for one of our cached results and little more."""
    conf = {"spark.ui.enabled": "true", "spark.ui.port": str(free_port()), "spark.memory.fraction": "0.02"}
    with connect_server(conf={**conf, "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}) as running:
        yield running


@pytest.fixture
def spark(server: ConnectServer) -> Iterator[SparkSession]:
    with session(server.url) as found:
        yield found


@contextmanager
def session(url: str) -> Iterator[SparkSession]:
    found = open_session(url, session_id=str(uuid.uuid4()), user_id=USER)
    try:
        yield found
    finally:
        found.stop()


def name() -> str:
    return f"{VIEW_PREFIX}{uuid.uuid4().hex}"


def write_files(folder: Path, *, first: int = 0) -> list[str]:
    """Rows that fill some megabytes of memory in all. The paths."""
    folder.mkdir(exist_ok=True)
    for at in range(FILES):
        ids = range(first + at * ROWS_A_FILE, first + (at + 1) * ROWS_A_FILE)
        (folder / f"{at}.csv").write_text("".join(f"{candidate},{candidate:0>60}\n" for candidate in ids))
    return sorted(str(path) for path in folder.glob("*.csv"))


def read_files(spark: SparkSession, paths: list[str]) -> DataFrame:
    return spark.read.schema("id long, text string").csv(paths)


def keep(spark: SparkSession, frame: DataFrame, level: str = "DISK_ONLY", **options: Any) -> PartitionManifest:
    given = {"result": "r", "level": level, "server": "here:1", "view": name(), **options}
    return cache_result(spark, frame, **given)


def press_out(spark: SparkSession) -> None:
    """Cache so much in memory that the older blocks there have to go; then let it go again."""
    view = f"pressure_{uuid.uuid4().hex}"
    spark.range(0, 500_000, 1, 8).selectExpr("id", "sha1(cast(id AS string)) AS text").createGlobalTempView(view)
    spark.sql(f"CACHE TABLE global_temp.{view} OPTIONS ('storageLevel' 'MEMORY_ONLY')").collect()
    spark.catalog.dropGlobalTempView(view)


def total(frame: DataFrame) -> Any:
    return frame.selectExpr("sum(id) AS total").collect()[0].total


# kept and read


def test_it_outlives_its_session_and_is_read_by_another(server: ConnectServer, tmp_path: Path) -> None:
    paths = write_files(tmp_path / "in")
    with session(server.url) as maker:
        found = keep(maker, read_files(maker, paths), is_digested=True)
        again = keep(maker, read_files(maker, paths).orderBy("text"), is_digested=True)
    location = CachedLocation.parse(found.location)
    assert (found.rows, found.objects, location.server) == (FILES * ROWS_A_FILE, (), "here:1")
    assert found.digest == again.digest
    with session(server.url) as reader:
        assert location.application_id == reader.conf.get("spark.app.id")
        frame = KEEPER.read(reader, found)
        assert frame.schema.json() == found.schema
        assert not frame.storageLevel.useMemory
        for path in paths:
            Path(path).unlink()
        assert total(frame) == sum(range(FILES * ROWS_A_FILE))
    assert CacheServer(server.url).ask(found) is None


def test_an_empty_result_is_kept_too(server: ConnectServer, spark: SparkSession) -> None:
    found = keep(spark, spark.range(10).where("id < 0"), "MEMORY_ONLY")
    assert found.rows == 0
    assert CacheServer(server.url).ask(found) is None
    assert KEEPER.read(spark, found).collect() == []


def test_a_view_that_exists_is_not_replaced(spark: SparkSession) -> None:
    found = keep(spark, spark.range(3))
    with pytest.raises(Exception, match="TEMP_TABLE_OR_VIEW_ALREADY_EXISTS"):
        keep(spark, spark.range(5), view=CachedLocation.parse(found.location).view)
    assert total(KEEPER.read(spark, found)) == 3


# equal plans


def two_attempts(server: ConnectServer, folder: Path) -> tuple[int, int]:
    """What a second attempt keeps over files that were overwritten since the first, and what both should."""
    with session(server.url) as first:
        keep(first, read_files(first, write_files(folder)).selectExpr("sum(id) AS id"))
    with session(server.url) as second:
        found = keep(second, read_files(second, write_files(folder, first=7)).selectExpr("sum(id) AS id"))
        return total(KEEPER.read(second, found)), sum(range(7, 7 + FILES * ROWS_A_FILE))


def test_a_later_attempt_over_changed_files_is_not_given_what_is_kept_for_an_earlier(
    server: ConnectServer, tmp_path: Path
) -> None:
    kept, wanted = two_attempts(server, tmp_path / "in")
    assert kept == wanted


def test_control_spark_takes_plans_for_equal_that_read_the_same_paths(
    server: ConnectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "only_mine", lambda frame, view: frame)
    kept, wanted = two_attempts(server, tmp_path / "in")
    assert kept == sum(range(FILES * ROWS_A_FILE)) != wanted


# eviction


def test_eviction_from_memory_is_seen_or_made_good_or_fails(
    server: ConnectServer, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import PySparkException

    found = keep(spark, read_files(spark, write_files(tmp_path / "in")), "MEMORY_ONLY")
    assert CacheServer(server.url).ask(found) is None

    # Where the UI can be asked, it is a loss.
    press_out(spark)
    said = CacheServer(server.url).ask(found)
    assert said is not None
    assert "partitions were evicted" in said

    # Where it can't, the evicted rows are made again of the same files, silently,
    monkeypatch.setattr("airflow_recovery.driver.cached_blocks.PORTS_TRIED", 0)
    assert CacheServer(server.url).ask(found) is None
    assert total(KEEPER.read(spark, found)) == sum(range(FILES * ROWS_A_FILE))

    # or that fails, where such a file is gone: then nobody can read it, and it is a loss for all.
    press_out(spark)
    for path in (tmp_path / "in").glob("*.csv"):
        path.unlink()
    with pytest.raises(PySparkException, match="FILE_NOT_EXIST") as failed:
        total(KEEPER.read(spark, found))
    assert CacheServer(server.url).ask(found) is None
    with pytest.raises(PartitionMissing, match="the cached input 'r' is lost"):
        KEEPER.after_failure(failed.value, spark, [found], log)
    said = CacheServer(server.url).ask(found)
    assert said is not None
    assert "it was dropped" in said


def test_memory_pressure_takes_nothing_away_from_what_is_kept_on_disk(
    server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    found = keep(spark, read_files(spark, write_files(tmp_path / "in")))
    press_out(spark)
    for path in (tmp_path / "in").glob("*.csv"):
        path.unlink()
    assert CacheServer(server.url).ask(found) is None
    assert total(KEEPER.read(spark, found)) == sum(range(FILES * ROWS_A_FILE))


def test_a_failure_of_the_readers_own_drops_nothing(server: ConnectServer, spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    found = keep(spark, spark.range(3))
    with pytest.raises(PySparkException) as failed:
        KEEPER.read(spark, found).selectExpr("raise_error('mine')").collect()
    KEEPER.after_failure(failed.value, spark, [found], log)
    assert CacheServer(server.url).ask(found) is None


def test_control_of_what_is_not_deterministic_readers_would_see_different_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    noise = F.udf(lambda text: str(uuid.uuid4()), "string").asNondeterministic()
    frame = read_files(spark, write_files(tmp_path / "in")).select("id", noise("text").alias("text"))
    found = keep(spark, frame, "MEMORY_ONLY")

    def texts() -> Any:
        return KEEPER.read(spark, found).selectExpr("bit_xor(xxhash64(text)) AS all").collect()

    before = texts()
    assert texts() == before
    press_out(spark)
    assert texts() != before


# somebody else on the server


def test_a_view_that_somebody_replaces_is_lost_and_another_of_ours_is_not(
    server: ConnectServer, spark: SparkSession
) -> None:
    mine, other = keep(spark, spark.range(3)), keep(spark, spark.range(5))
    spark.range(100).createOrReplaceGlobalTempView(CachedLocation.parse(other.location).view)
    lost = CacheServer(server.url).ask(other)
    assert lost is not None
    assert "uncached" in lost
    with pytest.raises(PartitionMissing, match="can't be read"):
        KEEPER.read(spark, other)
    assert CacheServer(server.url).ask(mine) is None
    assert total(KEEPER.read(spark, mine)) == 3


def test_control_unless_it_is_asked_whether_it_is_cached_the_strangers_rows_are_read(
    server: ConnectServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = keep(spark, spark.range(3))
    spark.range(100).createOrReplaceGlobalTempView(CachedLocation.parse(found.location).view)
    monkeypatch.setattr(cached, "_is_cached", lambda spark, view: True)
    monkeypatch.setattr(cached, "evicted", lambda spark, location: None)
    assert CacheServer(server.url).ask(found) is None
    assert total(KEEPER.read(spark, found)) == sum(range(100))


def test_names_and_drop(server: ConnectServer, spark: SparkSession) -> None:
    keeper = CacheServer(server.url)
    mine, other = (CachedLocation.parse(keep(spark, spark.range(3)).location).view for _ in range(2))
    spark.range(1).createGlobalTempView(f"a_{mine}")
    assert {mine, other} <= keeper.names()
    assert f"a_{mine}" not in keeper.names()
    keeper.drop([mine, "airflow_recovery_gone"])
    assert mine not in keeper.names()
    assert other in keeper.names()


# regions


def spec_of(folder: Path, *vertices: str, **options: Any) -> RegionSpec:
    kept_as = {"kept": "CACHED", "brief": "CACHED_MEMORY_ONLY"}
    planned = (
        replace(
            vertex(candidate, is_result=candidate != "raw"),
            kept_as=kept_as.get(candidate),
            is_digested=candidate == "kept",
        )
        for candidate in vertices
    )
    # A session of the server is named after the run, the region and the attempt: no two tests may have one.
    identity = replace(IDENTITY, run_key=folder.name)
    return replace(region_spec(folder, *planned, region=vertices[-1], **options), job=JOB, identity=identity)


def run(server: ConnectServer, spec: RegionSpec) -> PartitionManifest:
    run_over_connect(server.url, spec, archive=build_archive(JOB), log=log, user_id=USER)
    outcome = outcome_of(spec)
    assert outcome is not None
    return outcome.outputs[0]


def rows(manifest: PartitionManifest) -> list[dict[str, Any]]:
    import pyarrow.parquet as parquet

    return [row for uri in manifest.uris() for row in parquet.read_table(uri.removeprefix("file://")).to_pylist()]


def test_a_region_keeps_its_result_and_another_reads_it(server: ConnectServer, tmp_path: Path) -> None:
    externals = write_numbers(tmp_path / "in")
    kept = run(server, spec_of(tmp_path, "raw", "kept", externals=externals))
    assert (kept.rows, len(kept.objects), kept.digest is None) == (20, 0, False)
    assert kept.location.startswith(f"spark-connect://127.0.0.1:{server.port}/local-")
    assert rows(run(server, spec_of(tmp_path, "total", inputs=(kept,)))) == [{"total": sum(n * n for n in range(20))}]


def test_subtasks_of_a_cached_result_are_read_together(server: ConnectServer, tmp_path: Path) -> None:
    first, second = write_numbers(tmp_path / "in")
    parts = []
    for at, external in enumerate((first, second)):
        spec = spec_of(tmp_path, "raw", "brief", externals=(external,))
        trace = replace(spec.trace, region=f"brief[{at}]")
        parts.append(run(server, replace(spec, trace=trace, tag=f"{spec.tag}-{at}")))
    assert rows(run(server, spec_of(tmp_path, "count", inputs=(*parts, parts[0])))) == [{"count": 10}]


def test_a_region_that_misses_a_cached_input_says_so(server: ConnectServer, tmp_path: Path) -> None:
    kept = run(server, spec_of(tmp_path, "raw", "kept", externals=write_numbers(tmp_path / "in")))
    CacheServer(server.url).drop([CachedLocation.parse(kept.location).view])
    reader = spec_of(tmp_path, "total", inputs=(kept,))
    with pytest.raises(PartitionMissing, match="it was dropped"):
        run(server, reader)
    failure = read_failure(reader)
    assert failure is not None
    assert classify(failure) is FailureClass.PARTITION_MISSING


def test_gc_drops_what_a_crashed_run_left_on_the_server_and_nothing_else(
    server: ConnectServer, spark: SparkSession, tmp_path: Path
) -> None:
    """The first attempt is superseded; the second is what a consumer that has not run yet will read."""
    externals, keeper = write_numbers(tmp_path / "in"), CacheServer(server.url)
    specs = [spec_of(tmp_path, "raw", "kept", externals=externals, attempt=number) for number in (1, 2)]
    journal = journal_of(specs[0])
    plan = PlanRecord(
        JOB,
        (
            RegionPlan("kept", ("raw", "kept"), ("kept",), (), final=False, fingerprint="f1"),
            RegionPlan("total", ("total",), ("total",), ("kept",), final=True, fingerprint="f1"),
        ),
    )
    journal.put_plan(plan)
    views = []
    for spec in specs:
        claim = Claim("kept", spec.attempt, spec.trace.writer, plan_hash(plan), (), "run", 1, "ti", spec.tag, "now")
        journal.claim(claim)
        views.append(CachedLocation.parse(run(server, spec).location).view)
    stranger = CachedLocation.parse(keep(spark, spark.range(3)).location).view
    results = open_store(specs[0].results.uri)
    report = Sweeper(journal.store, results, SweepOptions(Retention.keep(), grace_s=0), keeper).sweep()
    assert {entry.what.rpartition(" / ")[2]: entry.action.value for entry in report.entries} == {
        "kept@1 (1 cached)": "deleted",
        "kept@2 (1 cached)": "kept",
    }
    assert {*views, stranger} & keeper.names() == {views[1], stranger}


# another server


def test_a_restarted_server_has_lost_what_it_kept_and_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    externals: tuple[ExternalObject, ...] = write_numbers(tmp_path / "in")
    monkeypatch.setattr(connect_session, "CONNECT_RETRIES", 1)  # nobody comes back while it asks
    port = free_port()
    with connect_server(port=port) as server:
        first = run(server, spec_of(tmp_path, "raw", "kept", externals=externals))
        assert CacheServer(server.url).ask(first) is None
        os.kill(server.pid, 9)

    # Between the two nobody answers: that is not "missing".
    with pytest.raises(CacheUnreachable, match=rf"Spark Connect server 127.0.0.1:{port} to say what it keeps"):
        CacheServer(f"{server.url}/;token=hushhush").ask(first)

    with connect_server(port=port) as server:
        said = CacheServer(server.url).ask(first)
        assert said is not None
        assert "it was restarted, or is another one" in said
        reader = spec_of(tmp_path, "total", inputs=(first,))
        with pytest.raises(PartitionMissing, match="was restarted"):
            run(server, reader)
        second = run(server, spec_of(tmp_path, "raw", "kept", externals=externals, attempt=2))
        assert second.digest == first.digest
        after = run(server, spec_of(tmp_path, "total", inputs=(second,), attempt=2))
        assert rows(after) == [{"total": sum(n * n for n in range(20))}]

        # The control: a view of that very name, and nobody asks which server it is.
        location = CachedLocation.parse(first.location)
        with session(server.url) as stranger:
            keep(stranger, stranger.range(100), view=location.view)
            monkeypatch.setattr(cached, "application_id", lambda spark: location.application_id)
            assert CacheServer(server.url).ask(first) is None
            assert total(KEEPER.read(stranger, first)) == sum(range(100))
