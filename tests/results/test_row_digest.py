"""The digest of rows: whatever their order and files, and for every type that a result may have."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.results import row_digest
from airflow_recovery.results.row_digest import RowDigest, UnknownType

DAY = date(2013, 1, 2)
AT = datetime(2013, 1, 2, 3, 4, 5, 678901)
ENTRY = pa.struct([("a", pa.int8()), ("b", pa.string())])

VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [0, 1, -128],
    pa.int32(): [0, 7, -(2**31)],
    pa.int64(): [0, 2**62, -1],
    pa.uint64(): [0, 2**64 - 1],
    pa.float16(): [np.float16(1.5), np.float16(-2)],
    pa.float32(): [0.5, float("inf")],
    pa.float64(): [1.5, 1.5 + 2**-52, float("-inf")],
    pa.decimal128(10, 2): [Decimal("1.10"), Decimal("-1.10"), Decimal("0.00")],
    pa.decimal256(50, 2): [Decimal("1.10"), Decimal("-1.10")],
    pa.decimal64(10, 2): [Decimal("1.10"), Decimal("-1.10")],
    pa.string(): ["", "a", "ab", "é"],
    pa.large_string(): ["", "a"],
    pa.binary(): [b"", b"a", b"\0"],
    pa.binary(2): [b"ab", b"\0\0"],
    pa.date32(): [DAY, date(1, 1, 1)],
    pa.time64("us"): [time(1, 2), time(0)],
    pa.timestamp("us"): [AT, datetime(1969, 12, 31)],
    pa.timestamp("us", "UTC"): [AT.replace(tzinfo=timezone.utc)],
    pa.duration("us"): [timedelta(1), timedelta(0)],
    pa.month_day_nano_interval(): [pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([0, 0, 0])],
    ENTRY: [{"a": 1, "b": "x"}, {"a": 0, "b": ""}, {"a": None, "b": None}, {"a": 1, "b": None}],
    pa.list_(pa.int32()): [[], [0], [0, 0], [None], [1, 2], [2, 1]],
    pa.list_(pa.int32(), 2): [[1, 2], [2, 1], [0, None]],
    pa.list_(pa.list_(pa.string())): [[], [[]], [["a"], []], [[], ["a"]], [None]],
    pa.list_(ENTRY): [[{"a": 1, "b": "x"}, None], [None, {"a": 1, "b": "x"}]],
    pa.map_(pa.string(), pa.int64()): [[], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]],
    pa.dictionary(pa.int32(), pa.string()): ["", "a"],
    pa.list_(pa.null()): [[], [None], [None, None]],
}
"""For each type values that differ from one another; null differs from all of them."""


def digest(table: pa.Table, size: int = 3) -> str:
    added = RowDigest()
    added.add_schema(table.schema, {})
    for batch in table.to_batches(max_chunksize=size):
        added.add(batch, {})
    return added.text


def column(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.array(values, kind)})


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_values_that_differ_have_other_digests_and_null_is_none_of_them(kind: pa.DataType) -> None:
    values = [*VALUES[kind], None]
    digests = [digest(column([value], kind)) for value in values]
    assert len(set(digests)) == len(values)
    # However they lie: as a part of a longer array, beside others, and in another order.
    assert [digest(column(values, kind).slice(at, 1)) for at in range(len(values))] == digests
    assert digest(column(values, kind), 2) == digest(column(values[::-1], kind), 5)


ROWS = st.lists(st.tuples(*(st.none() | st.sampled_from(values) for values in VALUES.values())), max_size=12)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table({f"c{at}": pa.array([row[at] for row in rows], kind) for at, kind in enumerate(VALUES)})


@pytest.mark.slow
@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 5))
def test_neither_order_nor_batches_count(rows, random, size, other_size) -> None:
    shuffled = rows[:]
    random.shuffle(shuffled)
    assert digest(table_of(rows), size) == digest(table_of(shuffled), other_size)


def test_the_order_of_columns_counts() -> None:
    """Who reads them by their position would take one for another."""
    table = pa.table({"net": [1], "gross": [2]})
    assert digest(table) != digest(table.select(["gross", "net"]))


@pytest.mark.control
def test_control_sorted_by_name_the_order_of_columns_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_digest, "_ordered", sorted)
    table = pa.table({"net": [1], "gross": [2]})
    assert digest(table) == digest(table.select(["gross", "net"]))


def footed(*fields: dict[str, Any], pandas: dict[str, Any] | None = None) -> pa.Table:
    """A table with the footer that Spark, or pandas, writes into Parquet."""
    metadata = {row_digest.FOOTER: json.dumps({"type": "struct", "fields": fields})} if fields else {}
    if pandas is not None:
        metadata[b"pandas"] = json.dumps(pandas)
    return pa.table({"c": pa.array([1], pa.int32())}).replace_schema_metadata(metadata)


def field(kind: Any = "integer", **others: Any) -> dict[str, Any]:
    return {"name": "c", "type": kind, "nullable": True, "metadata": {}, **others}


LIST = {"type": "array", "elementType": "string", "containsNull": True}
CATEGORY = {"name": "c", "pandas_type": "categorical", "numpy_type": "int8"}
NUMBER = {"name": "c", "pandas_type": "int32", "numpy_type": "int32"}
RANGE = {"kind": "range", "start": 0, "stop": 1, "step": 1}
APART = {
    "no footer": footed(),
    "an interval of months": footed(field("interval year to month")),
    "an interval of years": footed(field("interval year")),
    "a text of three letters": footed(field("string", metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"})),
    "a text of four letters": footed(field("string", metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(4)"})),
    "a collation within a list": footed(field(LIST, metadata={"__COLLATIONS": {"c.element": "icu.UNICODE_CI"}})),
    "a user type": footed(field({"type": "udt", "class": "VectorUDT", "sqlType": "integer"})),
    "attributes of a model": footed(field(metadata={"ml_attr": {"vals": ["a", "b"]}})),
    "a member with metadata": footed(field({"type": "struct", "fields": [field(metadata={"x": 1})]})),
    "a column of pandas": footed(pandas={"index_columns": [RANGE], "columns": [NUMBER]}),
    "an index": footed(pandas={"index_columns": ["c"], "columns": [NUMBER]}),
    "a category": footed(pandas={"index_columns": [], "columns": [CATEGORY]}),
}
ALIKE = {
    "plain types say nothing": footed(field()),
    "may not be null": footed(field(nullable=False)),
    "items may not be null": footed(field({**LIST, "containsNull": False})),
    "a comment": footed(field(metadata={"comment": "net of tax"})),
    "plain types within others": footed(field({"type": "struct", "fields": [field(LIST)]})),
    "a decimal": footed(field("decimal(10,2)")),
}


def test_fault_344_what_a_footer_tells_spark_and_pandas_counts() -> None:
    digests = {digest(table): name for name, table in APART.items()}
    assert sorted(digests.values()) == sorted(APART)


def test_fault_344_what_no_consumer_sees_in_a_footer_does_not_count() -> None:
    assert {name for name, table in ALIKE.items() if digest(table) != digest(footed())} == set()
    one, other = (footed(pandas={"index_columns": [{**RANGE, "stop": n}], "columns": [NUMBER]}) for n in (1, 2))
    assert digest(one) == digest(other)


def test_a_footer_of_a_form_that_is_not_known_counts_as_it_is() -> None:
    tables = [footed().replace_schema_metadata({row_digest.FOOTER: text}) for text in ("{", "[]", '{"fields": [1]}')]
    assert len({digest(table) for table in (footed(), *tables)}) == 4


def test_fault_344_the_order_of_folders_counts() -> None:
    """Spark appends the columns that are folders in the order of the folders."""
    assert in_folders("year", "day") != in_folders("day", "year")


def in_folders(*names: str) -> str:
    added = RowDigest()
    added.add(pa.record_batch({"c": [1]}), dict.fromkeys(names, "1"))
    return added.text


@pytest.mark.control
def test_fault_344_control_without_the_footer_and_the_order_of_folders_they_are_not_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_digest, "_footer", lambda metadata: [])
    assert len({digest(table) for table in APART.values()}) == 1
    monkeypatch.setattr(row_digest, "_ordered", sorted)
    assert in_folders("year", "day") == in_folders("day", "year")


@given(ROWS.filter(bool), st.data())
def test_a_row_that_is_there_once_more_or_is_gone_counts(rows, data) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    known = digest(table_of(rows))
    assert len({known, digest(table_of([*rows, rows[at]])), digest(table_of(rows[:at] + rows[at + 1 :]))}) == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6), st.data())
def test_equal_digests_mean_equal_rows(rows, data) -> None:
    others = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6) | st.permutations(rows))
    tables = [
        pa.table({"a": pa.array([a for a, _ in some], pa.int64()), "b": pa.array([b for _, b in some], pa.int64())})
        for some in (rows, others)
    ]
    assert (digest(tables[0]) == digest(tables[1])) == (sorted(rows) == sorted(others))


def test_values_that_change_places_between_rows_or_columns_count() -> None:
    one = pa.table({"a": [1, 2], "b": [3, 4]})
    assert digest(one) != digest(pa.table({"a": [1, 2], "b": [4, 3]}))
    assert digest(one) != digest(pa.table({"a": [3, 4], "b": [1, 2]}))
    assert digest(pa.table({"a": ["x", None]})) != digest(pa.table({"a": [None, "y"]}))


def test_more_than_64_columns_may_be_null() -> None:
    rows = [{f"c{at}": None if at == empty else 0 for at in range(70)} for empty in (1, 65, 99)]
    schema = pa.schema([(f"c{at}", pa.int64()) for at in range(70)])
    assert len({digest(pa.Table.from_pylist([row], schema)) for row in rows}) == 3


def test_what_spark_holds_to_be_equal_is_equal() -> None:
    quiet, other = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert math.isnan(other)
    assert digest(column([0.0, quiet], pa.float64())) == digest(column([-0.0, other], pa.float64()))
    maps = pa.map_(pa.string(), pa.int64())
    assert digest(column([[("a", 1), ("b", 2)]], maps)) == digest(column([[("b", 2), ("a", 1)]], maps))


def test_a_moment_is_the_same_in_every_zone_and_no_time_without_one() -> None:
    utc = pa.array([AT], pa.timestamp("us", "UTC"))
    shown = utc.cast(pa.timestamp("us", "Europe/Berlin"))
    assert digest(pa.table({"c": utc})) == digest(pa.table({"c": shown}))
    assert digest(pa.table({"c": utc})) != digest(column([AT], pa.timestamp("us")))


def test_how_arrow_holds_a_value_does_not_count() -> None:
    texts = ["a", None, "b", "a"]
    forms = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    tables = [column(texts, form) for form in forms]
    tables.append(pa.table({"c": pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4], pa.array(texts))}))
    assert len({digest(table) for table in tables}) == 1


@pytest.mark.parametrize(
    "other",
    [
        pa.table({"c": pa.array([1], pa.int32())}),
        pa.table({"d": pa.array([1], pa.int64())}),
        pa.table({"c": pa.array([1], pa.int64()), "d": pa.array([None], pa.int64())}),
        pa.table({"c": pa.array([Decimal(1)], pa.decimal128(10, 0))}),
        pa.table({"c": pa.array([1.0])}),
        pa.table({"c": pa.array(["1"])}),
    ],
    ids=lambda table: str(table.schema).replace("\n", ", "),
)
def test_another_schema_is_another_digest_with_rows_and_without(other: pa.Table) -> None:
    one = pa.table({"c": pa.array([1], pa.int64())})
    assert digest(one) != digest(other)
    assert digest(one.slice(1)) != digest(other.slice(1))
    # Nor is a row of one file taken for one of another file, whose schema differs.
    assert digest(one).rpartition("-")[2] != digest(other).rpartition("-")[2]


def test_folders_are_columns_and_null_is_not_the_empty_text() -> None:
    batch = pa.record_batch({"c": [1]})
    texts = set()
    for constants in ({}, {"day": "1"}, {"day": "2"}, {"day": None}, {"day": ""}, {"night": "1"}):
        added = RowDigest()
        added.add(batch, constants)
        texts.add(added.text)
    assert len(texts) == 6


def test_rows_without_columns_are_counted() -> None:
    none = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    one, two = RowDigest(), RowDigest()
    one.add(none, {})
    two.add(none, {})
    two.add(none, {})
    assert one.text != two.text


def test_a_name_that_stands_twice_and_a_type_that_is_not_known_are_named() -> None:
    with pytest.raises(UnknownType, match="column 'c' is there twice"):
        RowDigest().add(pa.record_batch({"c": [1]}), {"c": "1"})
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(UnknownType, match=r"values of type sparse_union<.*have no digest"):
        RowDigest().add(pa.record_batch({"c": union}), {})


def test_the_form_is_the_one_that_journals_hold() -> None:
    """Another result here would make every reader run again after an update: give `KIND` another number then."""
    table = pa.table({"i": [1, None], "s": ["x", None], "f": [0.5, None], "l": [[1, 2], None]})
    assert digest(table) == "rows3-8fd28c59da26-2-69991858593139a50bf6c8717d73ca45"


def test_the_hash_of_one_word_is_xxh64s() -> None:
    # XXH64 of eight bytes, but for the length that it adds at first: the number of words is fixed by the schema here.
    ((hashed,), _) = row_digest._hashed(1, [], [np.array([8], np.uint64)])
    mask, (one, two, three, four, five) = (1 << 64) - 1, row_digest._PRIMES
    mixed = 8 * two & mask
    mixed = (mixed << 31 | mixed >> 33) * one & mask
    state = five ^ mixed
    state = ((state << 27 | state >> 37) * one + four) & mask
    state = (state ^ state >> 33) * two & mask
    state = (state ^ state >> 29) * three & mask
    assert int(hashed) == state ^ state >> 32
