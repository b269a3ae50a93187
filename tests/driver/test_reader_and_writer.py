"""One result, written once and read back by its manifest, on a real local session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_recovery.driver import reader, writer
from airflow_recovery.driver.failure import describe, is_missing_input, is_user_error
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.writer import check_one_write, write_result
from airflow_recovery.errors import ManifestInvalid
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

WRITE = "0a1b2c3d-0000-1111-2222-0123456789ab"
OTHER = "ffffffff-0000-1111-2222-0123456789ab"


def written(spark: SparkSession, folder: Path, frame: DataFrame) -> PartitionManifest:
    return write_result(spark, frame, result="r", location=f"file://{folder}/r", store=open_store(f"file://{folder}"))


def manifest_of(*paths: str, rows: int = 1) -> PartitionManifest:
    return PartitionManifest("r", "file:///data/r", tuple(ResultObject(path, 1, "e") for path in paths), rows, "{}")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.collect())


def test_manifest_has_the_files_the_rows_and_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    found = written(spark, tmp_path, spark.range(0, 100, 1, 3).selectExpr("id", "id % 7 as k"))

    on_disk = {path.name: path.stat().st_size for path in (tmp_path / "r").glob("part-*")}
    assert {file.path: file.size for file in found.objects} == on_disk
    assert len(on_disk) == 3
    assert found.rows == 100
    assert found.managed
    assert read_manifest(spark, found).schema.json() == spark.range(1).selectExpr("id", "id k").schema.json().replace(
        '"nullable":false', '"nullable":true'
    )
    assert ids(read_manifest(spark, found)) == list(range(100))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["plain~x", "with space", "100%25", "ünïcødé", "k=v", "br[ac]k{et}s", "sta*r?", "com,ma", "a+b&c#d;e"]
)
def test_any_base_folder(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    found = written(spark, folder, spark.range(0, 10, 1, 2))

    assert ids(read_manifest(spark, found)) == list(range(10))
    (folder / "r" / f"part-00007-{OTHER}-c000.snappy.parquet").write_bytes(b"PAR1")
    assert ids(read_manifest(spark, found)) == list(range(10))  # now by naming each file


@pytest.mark.slow
def test_fault_53_truncated_file_of_a_speculative_task_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    found = written(spark, tmp_path, spark.range(0, 50, 1, 2))
    whole = (tmp_path / "r" / found.objects[0].path).read_bytes()
    stray = tmp_path / "r" / f"part-00000-{OTHER}-c000.snappy.parquet"
    stray.write_bytes(whole[: len(whole) // 2])

    assert ids(read_manifest(spark, found)) == list(range(50))

    # Negative control: whoever reads the prefix meets the stray file.
    with pytest.raises(Exception, match=r"(?s)FAILED_READ_FILE|not a Parquet file"):
        spark.read.schema("id long").parquet(f"file://{tmp_path}/r").collect()


@pytest.mark.slow
def test_fault_53_whole_stray_file_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    found = written(spark, tmp_path, spark.range(0, 50, 1, 2))
    stray = tmp_path / "r" / f"part-00000-{OTHER}-c000.snappy.parquet"
    stray.write_bytes((tmp_path / "r" / found.objects[0].path).read_bytes())

    assert ids(read_manifest(spark, found)) == list(range(50))

    # Negative control: the prefix holds rows twice.
    assert spark.read.schema("id long").parquet(f"file://{tmp_path}/r").count() == 75


def test_stray_file_that_comes_after_planning_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    found = written(spark, tmp_path, spark.range(0, 50, 1, 2))
    planned = read_manifest(spark, found)
    stray = tmp_path / "r" / f"part-00000-{OTHER}-c000.snappy.parquet"
    stray.write_bytes((tmp_path / "r" / found.objects[0].path).read_bytes())

    assert ids(planned) == list(range(50))


@pytest.mark.slow
def test_fault_48_success_marker_decides_nothing(spark: SparkSession, tmp_path: Path) -> None:
    found = written(spark, tmp_path, spark.range(0, 50, 1, 2))
    marker = tmp_path / "r" / "_SUCCESS"
    assert marker.exists()
    marker.unlink()  # absent, while the manifest is complete
    assert ids(read_manifest(spark, found)) == list(range(50))

    marker.touch()  # present, while a part file is missing
    (tmp_path / "r" / found.objects[0].path).unlink()
    with pytest.raises(Exception, match="PATH_NOT_FOUND"):
        read_manifest(spark, found).collect()

    # Negative control: reading the prefix trusts what it finds.
    assert spark.read.schema("id long").parquet(f"file://{tmp_path}/r").count() == 25


@pytest.mark.slow
def test_fault_50_empty_results_are_results(spark: SparkSession, tmp_path: Path) -> None:
    for number, frame in enumerate(
        (spark.range(10).where("id < 0"), spark.createDataFrame([], "id long, name string"))
    ):
        found = written(spark, tmp_path / str(number), frame)
        assert found.rows == 0
        back = read_manifest(spark, found)
        assert back.columns == frame.columns
        assert back.count() == 0


def test_fault_50_manifest_without_files_is_read_by_its_schema(spark: SparkSession) -> None:
    nothing = PartitionManifest("r", "file:///nowhere/r", (), 0, spark.range(1).schema.json())
    back = read_manifest(spark, nothing)
    assert (back.dtypes, back.count()) == ([("id", "bigint")], 0)

    with pytest.raises(ManifestInvalid, match="expected files or a schema"):
        read_manifest(spark, PartitionManifest("r", "file:///nowhere/r", ()))


def test_manifest_without_a_schema_takes_the_files_own(spark: SparkSession, tmp_path: Path) -> None:
    found = written(spark, tmp_path, spark.range(0, 20, 1, 2))
    (tmp_path / "r" / "part-stray.parquet").write_bytes(b"no footer")
    unknown = PartitionManifest(found.result, found.location, found.objects, None, None)
    assert ids(read_manifest(spark, unknown)) == list(range(20))


@pytest.mark.parametrize("is_planned", [False, True])
def test_fault_46_object_deleted_between_check_and_read(spark: SparkSession, tmp_path: Path, is_planned: bool) -> None:
    found = written(spark, tmp_path, spark.range(0, 50, 1, 2))
    planned = read_manifest(spark, found) if is_planned else None
    (tmp_path / "r" / found.objects[1].path).unlink()

    with pytest.raises(Exception) as caught:  # noqa: PT011
        (planned or read_manifest(spark, found)).collect()
    failure = describe(caught.value)
    assert is_missing_input(failure), failure
    assert not is_user_error(failure), failure


def test_fault_46_session_that_ignores_missing_files_is_overruled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        found = written(spark, tmp_path, spark.range(0, 50, 1, 2))
        planned = read_manifest(spark, found)
        # Negative control: without our option on the read, rows vanish in silence.
        monkeypatch.setattr(reader, "_reader", lambda session, schema: session.read.schema(schema))
        unprotected = read_manifest(spark, found)
        (tmp_path / "r" / found.objects[1].path).unlink()

        with pytest.raises(Exception, match="FILE_NOT_EXIST"):
            planned.collect()
        assert unprotected.count() == 25
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_location_that_exists_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    written(spark, tmp_path, spark.range(3))
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        written(spark, tmp_path, spark.range(3))


@pytest.fixture
def unobserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Connect server answers that was too busy to wait for what it has observed."""
    monkeypatch.setattr("pyspark.sql.Observation.get", property(lambda observation: {}))


@pytest.mark.slow
def test_what_the_server_does_not_say_is_counted_in_the_files(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    frame = spark.range(0, 100, 1, 3).selectExpr("id", "cast(id as decimal(9, 2)) as d", "map('k', id) as m")
    store = open_store(f"file://{tmp_path}")
    observed = write_result(spark, frame, result="r", location=f"file://{tmp_path}/a", store=store, is_digested=True)
    request.getfixturevalue("unobserved")
    counted = write_result(spark, frame, result="r", location=f"file://{tmp_path}/b", store=store, is_digested=True)
    assert (counted.rows, counted.digest) == (observed.rows, observed.digest)
    assert counted.rows == 100


@pytest.mark.usefixtures("unobserved")
def test_what_the_server_does_not_say_and_the_files_cannot_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task that was tried twice files of both tries may be there; and no file is no proof of no rows."""
    spark.conf.set("spark.sql.files.maxRecordsPerFile", 10)
    try:
        with pytest.raises(ManifestInvalid, match="expected Spark to say how many rows it wrote"):
            written(spark, tmp_path / "several", spark.range(0, 25, 1, 1))
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    monkeypatch.setattr(writer, "listed_objects", lambda *given: ())
    with pytest.raises(ManifestInvalid, match=r"nothing said, and 0 files"):
        written(spark, tmp_path / "none", spark.range(0, 25, 1, 1))


@pytest.mark.slow
def test_several_files_a_task_are_counted(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "10")
    try:
        found = written(spark, tmp_path / "a", spark.range(0, 50, 1, 1))
        assert (len(found.objects), found.rows) == (5, 50)

        # A dead try of the same task left one file more.
        listed = writer.listed_objects

        def listed_with_leftover(store: object, location: str) -> tuple[ResultObject, ...]:
            folder = Path(location.removeprefix("file://"))
            first = min(folder.glob("part-*"))
            (folder / first.name.replace("-c000", "-c009")).write_bytes(first.read_bytes())
            return listed(store, location)  # type: ignore[arg-type]

        monkeypatch.setattr(writer, "listed_objects", listed_with_leftover)
        with pytest.raises(ManifestInvalid, match="expected the 50 rows that were observed, found 60"):
            written(spark, tmp_path / "b", spark.range(0, 50, 1, 1))

        # Negative control: uncounted, the leftover would be part of the result.
        monkeypatch.setattr(writer, "has_several_files_a_task", lambda objects: False)
        wrong = written(spark, tmp_path / "c", spark.range(0, 50, 1, 1))
        assert read_manifest(spark, wrong).count() == 60
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")


def test_files_of_two_writes_are_no_manifest() -> None:
    one = f"part-00000-{WRITE}-c000.snappy.parquet"
    check_one_write(manifest_of(one, f"part-00001-{WRITE}.c000.snappy.parquet"))
    check_one_write(manifest_of(rows=0))
    with pytest.raises(ManifestInvalid, match="found those of 2"):
        check_one_write(manifest_of(one, f"part-00001-{OTHER}-c000.snappy.parquet"))
    with pytest.raises(ManifestInvalid, match="part files"):
        check_one_write(manifest_of(one, "notes.parquet"))
    with pytest.raises(ManifestInvalid, match="found none"):
        check_one_write(manifest_of(rows=3))
