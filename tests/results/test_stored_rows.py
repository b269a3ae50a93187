"""Reading what an application has written, in each format, and what is said where that is not possible."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.results import stored_files
from airflow_recovery.results.stored_files import NotComparable
from airflow_recovery.results.stored_rows import ReadLimits, StoredRows, is_data
from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore

ROWS = pa.table({"carrier": ["AA", None, "UA", "AA"], "delay": [1.5, 2.0, None, 1.5], "n": [1, 2, 3, 1]})
PLENTY = ReadLimits(1 << 30, 60.0)
Write = Callable[[pa.Table], bytes]


def parquet(table: pa.Table, **options: Any) -> bytes:
    body = io.BytesIO()
    pyarrow.parquet.write_table(table, body, **options)
    return body.getvalue()


def orc(table: pa.Table, **options: Any) -> bytes:
    body = io.BytesIO()
    pyarrow.orc.write_table(table, body, **options)
    return body.getvalue()


def lines(table: pa.Table) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in table.to_pylist()).encode()


def csv(table: pa.Table) -> bytes:
    return "".join(f'{row["carrier"] or ""},"{row["delay"]}",{row["n"]}\n' for row in table.to_pylist()).encode()


FORMATS: dict[str, Write] = {
    "parquet": parquet,
    "orc": orc,
    "json": lines,
    "jsonl": lines,
    "csv": csv,
    "json.gz": lambda table: gzip.compress(lines(table)),
    "csv.bz2": lambda table: bz2.compress(csv(table)),
}


class Output:
    """A folder that an application has written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def rows(self, files: dict[str, bytes], limits: ReadLimits = PLENTY) -> StoredRows:
        self.count += 1
        store = LocalStore(f"{self.folder}/{self.count}")
        for name, body in files.items():
            store.put(name, body)
        return self.registered(store, limits)

    def registered(self, store: Any, limits: ReadLimits = PLENTY) -> StoredRows:
        objects = tuple(ResultObject(info.key, info.size, info.etag) for info in store.list())
        return StoredRows(PartitionManifest("t.out", store.base_uri, objects), store, limits, dict)

    def digest(self, files: dict[str, bytes]) -> str:
        return self.rows(files).digest().text

    def refusal(self, files: dict[str, bytes], limits: ReadLimits = PLENTY) -> str:
        with pytest.raises(NotComparable) as refused:
            self.rows(files, limits).digest()
        return str(refused.value)


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_neither_files_nor_the_order_of_rows_count_and_rows_do(output: Output, suffix: str) -> None:
    write = FORMATS[suffix]
    whole = {f"part-0.{suffix}": write(ROWS)}
    parts = {"a": ROWS.slice(2), "b": ROWS.slice(0, 2), "c": ROWS[:0]}
    split = {f"{name}.{suffix}": write(part) for name, part in parts.items()}
    assert output.digest(whole) == output.digest(split)
    rows = output.rows(whole).digest()
    assert rows.rows == 4
    for other in (ROWS.slice(1), pa.concat_tables([ROWS, ROWS.slice(3)]), ROWS.take([0, 1, 2, 2])):
        assert output.digest({f"part-0.{suffix}": write(other)}) != rows.text


@pytest.mark.parametrize("suffix", ["parquet", "orc", "json"])
def test_the_names_of_columns_count_and_their_order_but_in_json(output: Output, suffix: str) -> None:
    write = FORMATS[suffix]
    known = output.digest({f"p.{suffix}": write(ROWS)})
    moved = output.digest({f"p.{suffix}": write(ROWS.select(["n", "carrier", "delay"]))})
    assert (moved == known) == (suffix == "json"), "nobody reads JSON by the position of its keys"
    assert output.digest({f"p.{suffix}": write(ROWS.rename_columns(["carrier", "delay", "m"]))}) != known


def test_row_groups_stripes_codecs_and_dictionaries_do_not_count(output: Output) -> None:
    table = pa.table({"a": list(range(5000)), "b": [str(at % 7) for at in range(5000)]})
    ways = [
        {"p.parquet": parquet(table)},
        {"p.parquet": parquet(table, row_group_size=7, use_dictionary=False, compression="zstd")},
        {"p.parquet": parquet(table, store_schema=False, data_page_version="2.0")},
    ]
    assert len({output.digest(files) for files in ways}) == 1
    stripes = [orc(table), orc(table, stripe_size=16 * 1024, batch_size=16)]
    assert pyarrow.orc.ORCFile(io.BytesIO(stripes[1])).nstripes > 1
    assert len({output.digest({"p.orc": body}) for body in stripes}) == 1


def test_sparks_timestamps_are_read_whatever_their_year(output: Output) -> None:
    table = pa.table({"t": pa.array([datetime(2013, 1, 1), datetime(9999, 12, 31), None], pa.timestamp("us"))})
    known = output.digest({"p.parquet": parquet(table, use_deprecated_int96_timestamps=True)})
    other = table.set_column(0, "t", pa.array([datetime(2013, 1, 1), datetime(9999, 12, 30), None], pa.timestamp("us")))
    assert output.digest({"p.parquet": parquet(other, use_deprecated_int96_timestamps=True)}) != known


def test_markers_and_hidden_files_are_no_rows(output: Output) -> None:
    known = output.digest({"p.parquet": parquet(ROWS)})
    beside = {"_SUCCESS": b"", "_committed_17": b"{}", ".p.parquet.crc": b"x", "_temporary/0/q.parquet": b"x"}
    assert output.digest({"p.parquet": parquet(ROWS), **beside}) == known
    assert is_data("_day=1/p.parquet")


def test_folders_are_columns(output: Output) -> None:
    one, two = parquet(ROWS.slice(0, 2)), parquet(ROWS.slice(2))
    known = output.digest({"day=1/p.parquet": one, "day=2/p.parquet": two})
    assert output.digest({"day=1/a.parquet": one, "day=2/b.parquet": two}) == known
    assert output.digest({"day=2/p.parquet": one, "day=1/p.parquet": two}) != known
    assert output.digest({"p.parquet": one, "q.parquet": two}) != known
    null, text = "__HIVE_DEFAULT_PARTITION__", "a%2Fb"
    folders = [f"day={value}/p.parquet" for value in (null, text, "", "a")]
    assert len({output.digest({folder: one}) for folder in folders}) == 4
    # Spark appends the columns that are folders in the order of the folders.
    assert output.digest({f"x=1/y=2/{text}.json": b"{}"}) == output.digest({"x=1/y=2/q.json": b"{}"})
    assert output.digest({f"x=1/y=2/{text}.json": b"{}"}) != output.digest({"y=2/x=1/q.json": b"{}"})


def test_an_empty_output_has_a_digest_and_an_empty_file_has_its_columns(output: Output) -> None:
    nothing = output.rows({"_SUCCESS": b""}).digest()
    assert (nothing.rows, nothing.text) == (0, output.digest({}))
    empty = {output.digest({"p.parquet": parquet(table[:0])}) for table in (ROWS, ROWS.select(["n"]))}
    assert len({*empty, nothing.text}) == 3


def test_json_counts_by_its_values_and_not_by_how_it_is_laid_out(output: Output) -> None:
    def of(*documents: str) -> str:
        return output.digest({"p.json": "\n".join(documents).encode()})

    known = of('{"a": 1, "b": {"c": [1, 2], "d": "é"}}')
    assert of('{"b":{"d":"\\u00e9","c":[1,2]},"a":1}\n') == known
    differ = ['{"a": 1}', '{"a": "1"}', '{"a": 1.0}', '{"a": null}', "{}", '{"a": {"number": "1"}}', '{"a": [1]}', "[]"]
    differ += ['{"a": 0.12345678901234567890}', '{"a": 0.12345678901234567891}', '{"a": {"object": []}}', '{"a": {}}']
    assert len({of(document) for document in differ}) == len(differ)


def test_csv_whose_values_may_have_several_lines_is_not_compared(output: Output) -> None:
    # The same lines, and other rows: either way to write a quote within a value is seen.
    for one, two in (('a,"x\ny"\nb,"x\nz"\n', 'a,"x\nz"\nb,"x\ny"\n'), ('a,"x\\"\ny\\""\n', 'a,"x\\"\ny\\""\n')):
        assert sorted(one.split("\n")) == sorted(two.split("\n"))
        for text in (one, two):
            assert "a line has an odd number of quotes" in output.refusal({"p.csv": text.encode()})
    assert output.digest({"p.csv": b'a,"x ""y"""\n'})
    assert output.digest({"p.txt": b'5" disks\n'})


@pytest.mark.slow
def test_a_file_of_many_parts_is_read_part_by_part(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": list(range(300_000)), "b": [float(at) for at in range(300_000)]})
    for suffix in ("parquet", "orc", "json"):
        files = {f"p.{suffix}": FORMATS[suffix](table)}
        known = output.digest(files)
        longest: list[int] = []
        get_range = LocalStore.get_range

        def counted(store: LocalStore, key: str, start: int, length: int) -> bytes:
            longest.append(length)  # noqa: B023
            return get_range(store, key, start, length)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(stored_files, "SMALL_BYTES", 1000)
            patch.setattr(LocalStore, "get_range", counted)
            assert output.digest(files) == known
        assert len(longest) > 1
        assert max(longest) <= 4 * 1024 * 1024


@pytest.mark.parametrize("suffix", FORMATS)
def test_in_order_the_place_of_a_row_counts_and_how_a_file_is_encoded_does_not(output: Output, suffix: str) -> None:
    write, uuid = FORMATS[suffix], "0e3a1c9e-0b1f-4c53-9f9e-1d6a2a8b7c0"

    def of(*parts: pa.Table, job: int = 1) -> str:
        files = {f"part-{at:05}-{uuid}{job}.{suffix}": write(part) for at, part in enumerate(parts)}
        return output.rows(files, ReadLimits(1 << 30, 60.0, in_order=True)).digest().text

    known = of(ROWS.slice(0, 2), ROWS.slice(2))
    assert known.startswith("ordered1-")
    assert of(ROWS.slice(0, 2), ROWS.slice(2), job=2) == known
    assert len({known, of(ROWS.slice(2), ROWS.slice(0, 2)), of(ROWS), of(ROWS.take([1, 0, 2, 3])), of(ROWS[:3])}) == 5
    quoted = output.rows({f"p.{suffix}": b'a,"x\ny"\n'}, ReadLimits(1 << 30, 60.0, in_order=True))
    if suffix in ("csv", "json"):
        assert quoted.digest().rows == 2  # as lines: where a row ends is of no account
    if suffix == "parquet":
        bodies = [parquet(ROWS), parquet(ROWS, compression="zstd", use_dictionary=False, row_group_size=1)]
        limits = ReadLimits(1 << 30, 60.0, in_order=True)
        assert len({output.rows({"p.parquet": body}, limits).digest().text for body in bodies}) == 1


def test_a_delta_table_has_no_order(output: Output) -> None:
    limits = ReadLimits(1 << 30, 60.0, in_order=True)
    assert "a table of Delta have no order" in output.refusal({"_delta_log/0.json": b"{}"}, limits)


def test_every_store_is_read_in_parts(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    body = parquet(pa.table({"a": list(range(20_000))}), row_group_size=5000)
    info = store.put("out/p.parquet", body)
    objects = (ResultObject("p.parquet", info.size, info.etag),)
    rows = StoredRows(PartitionManifest("r", f"{store.base_uri}/out", objects), store, PLENTY, dict)
    known = rows.digest().text
    monkeypatch.setattr(stored_files, "SMALL_BYTES", 1000)
    monkeypatch.setattr(stored_files, "_BLOCK_BYTES", 4096)
    assert rows.digest().text == known


def test_a_store_that_reads_whole_objects_alone_reads_no_large_ones(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_files, "SMALL_BYTES", 10)
    whole = DelegatingStore(LocalStore(str(output.folder)))
    whole.put("p.json", b'{"a": "long"}')
    with pytest.raises(NotComparable, match=r"p\.json has 13 bytes, and its store reads whole objects alone"):
        output.registered(whole).digest()


def test_rows_of_many_bytes_are_read_few_at_a_time(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_files, "BATCH_BYTES", 64 * 1024)
    table = pa.table({"a": [bytes([at]) * 16 * 1024 for at in range(64)]})
    with io.BytesIO(parquet(table, use_dictionary=False, compression="none")) as file:
        batches = list(stored_files._parquet(file))[1:]
    assert max(batch.num_rows for batch in batches) <= 4
    monkeypatch.setattr(stored_files, "BATCH_BYTES", 20)
    assert "a line has more than 20 bytes" in output.refusal({"p.txt": b"x" * 21})


def test_a_delta_table_is_its_newest_version(output: Output) -> None:
    folder = output.folder / "delta"
    deltalake.write_deltalake(str(folder), ROWS, partition_by=["n"])
    known = output.registered(LocalStore(str(folder))).digest().text
    deltalake.write_deltalake(str(folder), ROWS.slice(1), mode="overwrite")
    less = output.registered(LocalStore(str(folder))).digest()
    assert less.rows == 3  # files of the first version are still in the folder
    for at in (3, 1, 0, 2):
        deltalake.write_deltalake(str(folder), ROWS.slice(at, 1), mode="overwrite" if at == 3 else "append")
    again = output.registered(LocalStore(str(folder))).digest()
    assert (again.text, again.rows) == (known, 4)


def test_a_delta_table_is_the_one_in_the_named_folder(output: Output) -> None:
    """In a URL, ``%20`` would be a space, and a question mark the end of the path."""
    deltalake.write_deltalake(str(output.folder / "a b"), ROWS)
    deltalake.write_deltalake(str(output.folder / "a"), ROWS)
    deltalake.write_deltalake(str(output.folder / "a?b"), ROWS.slice(1))
    assert output.registered(LocalStore(str(output.folder / "a?b"))).digest().rows == 3
    encoded = LocalStore(str(output.folder / "a%20b"))
    encoded.put("_delta_log/0.json", b"{}")
    with pytest.raises(NotComparable, match="delta-rs would take another folder"):
        output.registered(encoded).digest()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"p.avro": b"Obj"}, "p.avro is of no format that is known by its name"),
        ({"part-00000": b"text"}, "part-00000 is of no format"),
        ({"p.parquet.crypt": b"x"}, "is of no format"),
        ({"p.parquet": parquet(pa.table({"_hoodie_record_key": ["1"]}))}, "a table of Hudi is not known"),
    ],
)
def test_what_can_not_be_read_is_named(output: Output, files: dict[str, bytes], said: str) -> None:
    assert said in output.refusal(files)


def test_more_bytes_or_more_time_than_allowed_is_named(output: Output) -> None:
    body = parquet(ROWS)
    small, short = ReadLimits(len(body) - 1, 60.0), ReadLimits(len(body), -1.0)
    assert output.refusal({"p.parquet": body}, small).endswith(f"are more than verify_max_bytes={len(body) - 1}")
    assert output.rows({"p.parquet": body}, ReadLimits(len(body), 60.0)).digest().rows == 4
    assert "it takes longer than verify_timeout=-1 s" in output.refusal({"p.parquet": body}, short)


def test_a_library_that_is_missing_is_named(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "deltalake (delta-rs) is not installed" in output.refusal({"_delta_log/0.json": b"{}"})


def test_a_file_that_was_exchanged_since_it_was_registered_is_named(output: Output) -> None:
    rows = output.rows({"p.parquet": parquet(ROWS)})
    LocalStore(f"{output.folder}/{output.count}").put("p.parquet", parquet(ROWS.slice(1)))
    with pytest.raises(NotComparable, match=r"p\.parquet was altered meanwhile"):
        rows.digest()
