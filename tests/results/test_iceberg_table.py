"""The rows of an Iceberg table's current snapshot: what pyiceberg, as an application would, has written and changed."""

from __future__ import annotations

import io
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.results import iceberg_table, stored_files
from airflow_recovery.results.iceberg_table import IcebergTable
from airflow_recovery.results.row_digest import RowDigest
from airflow_recovery.results.stored_files import NotComparable, StoredFiles
from airflow_recovery.results.stored_rows import ReadLimits, StoredRows
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server

ROWS = pa.table(
    {"carrier": ["AA", None, "UA", "AA"], "delay": [1.5, 2.0, None, 1.5], "n": pa.array([1, 2, 3, 1], "i4")}
)
PLENTY = ReadLimits(1 << 30, 60.0)
EMPTY: tuple[list[Any] | None, ...] = (None, [])


class Output:
    """A location for tables, and their catalog, which the digest never sees."""

    def __init__(self, store: ObjectStore, **properties: str) -> None:
        self.store = store
        self.catalog = SqlCatalog("c", uri="sqlite:///:memory:", **properties)
        self.catalog.create_namespace("d")

    def location(self, name: str) -> str:
        return f"{self.store.base_uri}/{name}"

    def table(self, name: str, rows: pa.Table = ROWS, **properties: str) -> Table:
        made = self.catalog.create_table(f"d.{name}", rows.schema, self.location(name), properties=properties)
        made.append(rows)
        return made

    def manifest(self, name: str) -> PartitionManifest:
        listed = [info for info in self.store.list(f"{name}/") if not info.key.endswith("/")]
        objects = tuple(ResultObject(info.key.removeprefix(f"{name}/"), info.size, info.etag) for info in listed)
        return PartitionManifest("t.out", self.location(name), objects)

    def rows(self, name: str, limits: ReadLimits = PLENTY) -> StoredRows:
        return StoredRows(self.manifest(name), self.store, limits, dict)

    def digest(self, name: str) -> RowDigest:
        return self.rows(name).digest()

    def refusal(self, name: str, limits: ReadLimits = PLENTY) -> str:
        with pytest.raises(NotComparable) as refused:
            self.rows(name, limits).digest()
        return str(refused.value)


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(LocalStore(f"file://{tmp_path}/tables"))


def added(table: Table, name: str, body: bytes, count: int, **values: Any) -> None:
    """Add a file that pyiceberg does not write itself: of deleted rows, or of rows as other writers have them."""
    location = f"{table.location()}/data/{name}"
    with table.io.new_output(location).create() as stream:
        stream.write(body)
    counts = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    given = {**dict.fromkeys((*counts, "lower_bounds", "upper_bounds")), "content": DataFileContent.DATA}
    given |= {"file_path": location, "file_size_in_bytes": len(body), "record_count": count}
    file = DataFile.from_args(**{**given, "file_format": FileFormat.PARQUET, "partition": Record(), **values})
    file.spec_id = table.spec().spec_id
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def parquet(rows: pa.Table) -> bytes:
    body = io.BytesIO()
    pyarrow.parquet.write_table(rows, body)
    return body.getvalue()


class DeletesWriter(ManifestWriterV2):
    """Writes a manifest of files of deletes, which pyiceberg reads only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def deleted(table: Table, patch: pytest.MonkeyPatch, body: bytes, **values: Any) -> None:
    """Merge-on-read: leave the files of rows as they are, and add one that says which rows of them are gone."""

    def writer(append: Any, spec: Any) -> DeletesWriter:
        return DeletesWriter(spec, append.schema(), append.new_manifest_output(), append.snapshot_id, "null")

    with patch.context() as patched:
        patched.setattr(_SnapshotProducer, "new_manifest_writer", writer)
        name = f"deletes-{len(table.metadata.snapshots)}"
        added(table, name, body, 1, **{"content": DataFileContent.POSITION_DELETES, **values})


def positions(*places: tuple[str, int]) -> bytes:
    paths, at = zip(*places, strict=True)
    return parquet(pa.table({"file_path": pa.array(paths), "pos": pa.array(at, pa.int64())}))


def snapshot_of(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


def data_path(table: Table, at: int = 0) -> str:
    return sorted(task.file.file_path for task in table.scan().plan_files())[at]


def test_neither_files_nor_the_order_of_rows_count_and_rows_do(output: Output) -> None:
    output.table("whole")
    known = output.digest("whole")
    assert known.rows == 4
    parts = output.table("parts", ROWS.slice(3))
    for at in (1, 0, 2):
        parts.append(ROWS.slice(at, 1))
    assert output.digest("parts").text == known.text
    others = {"less": ROWS.slice(1), "twice": pa.concat_tables([ROWS, ROWS.slice(3)]), "other": ROWS.take([0, 1, 2, 2])}
    for name, rows in others.items():
        output.table(name, rows)
    assert len({known.text, *(output.digest(name).text for name in others)}) == 4


def test_the_current_snapshot_counts_whatever_was_there_before(output: Output) -> None:
    table = output.table("t")
    known = output.digest("t").text
    first = snapshot_of(table)
    table.append(ROWS)
    assert output.digest("t").rows == 8
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert output.digest("t").text == known
    table.delete("carrier = 'AA'")
    assert output.digest("t").rows == 2
    table.overwrite(ROWS.take([3, 2, 1, 0]))
    assert output.digest("t").text == known  # the files of all snapshots are still there
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert table.snapshot_by_id(first.snapshot_id) is None
    assert output.digest("t").text == known


def test_a_table_without_a_snapshot_has_columns_and_no_rows(output: Output) -> None:
    output.catalog.create_table("d.t", ROWS.schema, output.location("t"))
    nothing = output.digest("t")
    assert nothing.rows == 0
    output.catalog.create_table("d.u", ROWS.select(["n"]).schema, output.location("u"))
    assert output.digest("u").text != nothing.text


def test_columns_are_those_of_today(output: Output) -> None:
    table = output.table("t")
    with table.update_schema() as change:
        change.add_column("note", StringType())
        change.update_column("n", LongType())
        change.rename_column("carrier", "airline")
        change.delete_column("delay")
    table.append(pa.table({"airline": ["B6"], "n": pa.array([1 << 40], "i8"), "note": ["x"]}))
    output.table(
        "same",
        pa.table(
            {
                "airline": ["AA", None, "UA", "AA", "B6"],
                "n": pa.array([1, 2, 3, 1, 1 << 40], "i8"),
                "note": pa.array([None] * 4 + ["x"]),
            }
        ),
    )
    assert output.digest("t").text == output.digest("same").text
    with table.update_schema() as change:
        change.delete_column("note")
    with table.update_schema() as change:
        change.add_column("note", StringType())  # of the same name, and another column
    assert output.digest("t").text != output.digest("same").text


def test_a_list_that_is_null_is_no_empty_list(output: Output) -> None:
    member = pa.struct([("a", pa.int64())])
    for name, kind in {"l": pa.list_(member), "m": pa.map_(pa.string(), member)}.items():
        digests = set()
        for value in EMPTY:
            table = output.catalog.create_table(
                f"d.{name}{value is None}", pa.schema([("v", kind)]), output.location(f"{name}{value is None}")
            )
            schema = schema_to_pyarrow(table.schema())  # with ids, as Spark writes it: pyiceberg would write it empty
            added(table, "v.parquet", parquet(pa.table([pa.array([value], schema[0].type)], schema=schema)), 1)
            digests.add(output.digest(f"{name}{value is None}").text)
        assert len(digests) == 2


def test_a_member_that_has_changed_is_named(output: Output) -> None:
    table = output.table("t", pa.table({"v": pa.array([{"a": 1}], pa.struct([("a", pa.int64())]))}))
    assert output.digest("t").rows == 1
    with table.update_schema() as change:
        change.add_column(("v", "b"), LongType())
    assert "column v has other members in " in output.refusal("t")
    with table.update_schema() as change:
        change.delete_column(("v", "b"))
        change.rename_column("v", "w")
    assert output.digest("t").rows == 1


def test_control_members_that_are_not_compared_hide_that_a_column_was_lost(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = output.table("t", pa.table({"v": pa.array([{"a": 1, "b": 2}], pa.struct([("a", "i8"), ("b", "i8")]))}))
    known = output.digest("t").text
    with table.update_schema() as change:
        change.delete_column(("v", "a"))
    with table.update_schema() as change:
        change.add_column(("v", "a"), LongType())  # of the same name, and null in all rows
        change.move_first(("v", "a"))
    assert table.scan().to_arrow()["v"].to_pylist() == [{"a": None, "b": 2}]
    assert "column v has other members in " in output.refusal("t")
    monkeypatch.setattr(iceberg_table, "_members", lambda _: {})
    assert output.digest("t").text == known


@pytest.mark.parametrize("batch_rows", [65_536, 2])
def test_deleted_rows_are_gone_though_their_files_are_not(
    output: Output, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    monkeypatch.setattr(stored_files, "BATCH_ROWS", batch_rows)
    table = output.table("t", ROWS.slice(0, 3))
    table.append(ROWS.slice(3))
    several, other = (
        task.file.file_path for task in sorted(table.scan().plan_files(), key=lambda t: -t.file.record_count)
    )
    deleted(table, monkeypatch, positions((several, 2), (several, 0), (several, 2), (other, 77)))
    output.table("same", ROWS.slice(1, 1))
    output.catalog.load_table("d.same").append(ROWS.slice(3))
    assert output.digest("t").text == output.digest("same").text
    assert table.scan().to_arrow().num_rows == 2
    deleted(table, monkeypatch, positions((several, 1)))
    assert output.digest("t").rows == 1
    table.append(ROWS.slice(0, 3))  # the same rows, in another file
    assert output.digest("t").rows == 4


def test_control_without_its_deletes_a_table_has_the_rows_of_before(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = output.table("t")
    known = output.digest("t").text
    deleted(table, monkeypatch, positions((data_path(table), 1)))
    assert output.digest("t").text != known
    monkeypatch.setattr(IcebergTable, "_deleted_in", lambda *_: np.array([], np.int64))
    assert output.digest("t").text == known


def test_deletes_that_are_not_read_are_named(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = output.table("vectors")
    known = output.digest("vectors").text
    values = {"file_format": FileFormat.PUFFIN, "referenced_data_file": data_path(vectors)}
    deleted(vectors, monkeypatch, b"PFA1", **values, content_offset=4, content_size_in_bytes=1)
    assert "deletes-1 is a file of puffin, which is not read" in output.refusal("vectors")
    equal = output.table("equal")
    deleted(equal, monkeypatch, parquet(ROWS), content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        output.digest("equal")
    # Control: where they are passed over, nobody notices that rows are gone.
    monkeypatch.setattr(IcebergTable, "_deleted_in", lambda *_: np.array([], np.int64))
    assert output.digest("vectors").text == known


def test_a_column_that_is_only_a_folder_has_its_value(output: Output) -> None:
    table = output.table("t", pa.table({"n": pa.array([1], "i8"), "day": pa.array([1], "i4")}))
    with table.update_spec() as change:
        change.add_field("day", IdentityTransform())
    ids = {b"PARQUET:field_id": b"1"}
    rows = pa.table([pa.array([7], "i8")], schema=pa.schema([pa.field("n", pa.int64(), metadata=ids)]))
    added(table, "moved.parquet", parquet(rows), 1, partition=Record(5))
    output.table("same", pa.table({"n": pa.array([1, 7], "i8"), "day": pa.array([1, 5], "i4")}))
    assert output.digest("t").text == output.digest("same").text


def test_files_of_orc_are_read_where_they_have_ids(output: Output) -> None:
    table = output.table("t", pa.table({"n": pa.array([1], "i8")}))
    for ids in ({}, {b"iceberg.id": b"1"}):
        body = io.BytesIO()
        schema = pa.schema([pa.field("n", pa.int64(), metadata=ids)])
        pyarrow.orc.write_table(pa.table([pa.array([7], "i8")], schema=schema), body)
        added(table, f"{len(ids)}.orc", body.getvalue(), 1, file_format=FileFormat.ORC)
    with pytest.raises(ValueError, match="does not have field-ids"):
        output.digest("t")


def test_which_metadata_are_current_is_followed_through_their_logs(output: Output) -> None:
    properties = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "false"}
    table = output.table("t", **properties)
    for _ in range(4):
        table.append(ROWS)
    assert len(table.metadata.metadata_log) == 2
    assert sum(file.path.endswith(".metadata.json") for file in output.manifest("t").objects) == 6
    assert output.digest("t").rows == 20


def test_two_metadata_of_which_none_led_to_the_other_are_named(output: Output, tmp_path: Path) -> None:
    table = output.table("t")
    newest = Path(table.metadata_location.removeprefix("file://"))
    shutil.copy(newest, newest.with_name("00001-killed.metadata.json"))
    said = output.refusal("t")
    assert said.startswith("metadata/00001-")
    assert said.endswith("which of them is current only the catalog knows")
    # A table that was dropped, and made again at the same location, begins with number 0 again.
    output.table("again")
    for _ in range(2):
        output.catalog.load_table("d.again").append(ROWS)
    output.catalog.drop_table("d.again")
    output.table("again", ROWS.slice(1))
    assert "which of them is current only the catalog knows" in output.refusal("again")


def test_control_the_metadata_with_the_highest_number_are_those_of_a_table_that_was_dropped(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = output.table("t")
    table.append(ROWS)
    before = output.digest("t").text
    output.catalog.drop_table("d.t")
    output.table("t", ROWS.slice(1))
    assert "which of them is current only the catalog knows" in output.refusal("t")

    def newest(table: IcebergTable) -> Any:
        paths = (file.path for file in table._files.manifest.objects if file.path.endswith(".metadata.json"))
        return table._read_metadata(max(paths))

    monkeypatch.setattr(IcebergTable, "_current_metadata", newest)
    assert output.digest("t").text == before


@pytest.mark.parametrize("names", [("v1", "v2"), ("v1.gz", "v2.gz")])
def test_a_table_without_a_catalog_is_its_last_version(output: Output, names: tuple[str, str]) -> None:
    import gzip
    import json

    table = output.table("t")
    known = output.digest("t").text
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    old, new = sorted(folder.glob("*.metadata.json"))
    document = json.loads(new.read_text())
    document["metadata-log"][0]["metadata-file"] = f"{table.location()}/metadata/{names[0]}.metadata.json"
    for path, text, name in ((old, old.read_text(), names[0]), (new, json.dumps(document), names[1])):
        path.unlink()
        body = text.encode()
        (folder / f"{name}.metadata.json").write_bytes(gzip.compress(body) if ".gz" in name else body)
    (folder / "version-hint.text").write_text("1")
    assert output.digest("t").text == known


def test_what_is_not_at_the_root_of_the_output_or_below_it_is_named(output: Output) -> None:
    output.table("warehouse/t")
    assert output.refusal("warehouse").endswith("only a table of Iceberg at the root of the output is read")
    table = output.table("here")
    elsewhere = output.table("elsewhere")
    table.add_files([data_path(elsewhere)])
    assert "of the table was not written to " in output.refusal("here")


def test_a_file_that_was_exchanged_since_it_was_registered_is_named(output: Output) -> None:
    table = output.table("t")
    rows = output.rows("t")
    Path(data_path(table).removeprefix("file://")).write_bytes(parquet(ROWS.slice(1)))
    with pytest.raises(NotComparable, match="was altered meanwhile"):
        rows.digest()


def test_control_a_file_that_is_not_compared_with_what_was_registered_gives_its_rows_to_the_attempt(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = output.table("t")
    rows, known = output.rows("t"), output.digest("t")
    fewer = output.table("fewer", ROWS.slice(1))
    shutil.copy(data_path(fewer).removeprefix("file://"), data_path(table).removeprefix("file://"))
    opened = StoredFiles.open

    def open_whatever_is_there(files: StoredFiles, written: ResultObject) -> Any:
        info = output.store.get(f"t/{written.path}").info
        return opened(files, ResultObject(written.path, info.size, info.etag))

    monkeypatch.setattr(StoredFiles, "open", open_whatever_is_there)
    assert (known.rows, rows.digest().rows) == (4, 3)


def test_more_bytes_or_time_than_allowed_and_rows_in_order_are_named(output: Output) -> None:
    output.table("t")
    size = output.rows("t").size
    assert output.refusal("t", ReadLimits(size - 1, 60.0)).endswith(f"are more than verify_max_bytes={size - 1}")
    assert output.rows("t", ReadLimits(size, 60.0)).digest().rows == 4
    assert "it takes longer than verify_timeout=-1 s" in output.refusal("t", ReadLimits(size, -1.0))
    assert "a table of Iceberg have no order" in output.refusal("t", replace(PLENTY, in_order=True))


def test_a_library_that_is_missing_is_named(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    output.table("t")
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    assert output.refusal("t") == "pyiceberg is not installed: install airflow-recovery[iceberg]"


def on_s3(server: S3Server, store: ObjectStore) -> Output:
    keys = {name.removeprefix("AWS_"): value for name, value in server.environment().items()}
    return Output(
        store,
        **{
            "s3.endpoint": server.endpoint_url,
            "s3.access-key-id": keys["ACCESS_KEY_ID"],
            "s3.secret-access-key": keys["SECRET_ACCESS_KEY"],
            "s3.region": keys["REGION"],
        },
    )


def test_on_s3_it_is_read_part_by_part(
    output: Output,
    s3_server: S3Server,
    s3_store: S3Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = pa.table({"a": list(range(100_000)), "b": [float(at) for at in range(100_000)]})
    output.table("t", rows)
    known = output.digest("t").text
    there = on_s3(s3_server, s3_store)
    table = there.table("t", rows, **{"write.parquet.row-group-limit": "20000"})
    longest: list[int] = []
    get_range = S3Store.get_range

    def counted(store: S3Store, key: str, start: int, length: int) -> bytes:
        longest.append(length)
        return get_range(store, key, start, length)

    monkeypatch.setattr(S3Store, "get_range", counted)
    monkeypatch.setattr(stored_files, "SMALL_BYTES", 100_000)
    assert there.digest("t").text == known
    assert len(longest) > 1
    assert max(longest) <= 2 * 1024 * 1024
    deleted(table, monkeypatch, positions((data_path(table), 99_999)))
    assert there.digest("t").rows == 99_999
