"""A digest of rows that somebody else has written, whatever their order and files (docs/protocol.md#row-digests).

Each row gets a hash of 128 bits; the digest is the sum of these, beside the number of rows and the schema. A sum sees
duplicates, which an exclusive or does not, and depends neither on the order of rows nor on how they lie in files. A row
is hashed as XXH64 does with a text of whole 64-bit words, under two seeds; every value becomes words first, so that
what differs differs. The order of columns counts, for a reader may take them by their position. Partition columns come
last, as in Spark, in the order of the folders. Metadata in a file's footer counts if it changes the columns that Spark
or pandas reads: intervals, ``char`` and ``varchar`` lengths, collations, user-defined types, a pandas index.

What Spark holds to be equal is equal: -0.0 and 0.0, any two NaN, a map in whatever order. Times with a zone are
moments: in which zone they are shown does not count. The members of a struct and the items of a list count by their
order. Not compared are whether a column may be null, and its comment. docs/protocol.md#row-digests has the table.

Not comparable with `airflow_recovery.driver.digest`, which Spark computes while it writes: each kind of digest begins
with a word of its own.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from airflow_recovery.model.manifest import ORDERED_DIGEST
from airflow_recovery.model.spark_types import CALENDARS, FOOTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Flags = NDArray[np.bool_]

KIND = "rows3"
"""What a digest of this form begins with. Another form of it gets another number."""

_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
"""XXH64's."""
_SEEDS = (0, 0x5265636F76657279)
_TEXT_BYTES = 16
NOT_SHOWN = b"airflow_recovery.types"
"""In the metadata of a schema: the types of its file that are no types of Arrow, as the file has them."""
_ORC_TYPE = b"spark.sql.catalyst.type"
"""In the metadata of a field of ORC: the type of Spark, if ORC has none of its own."""
_TIME_ZONE = b"org.apache.spark.timeZone"
"""In a footer with Spark's LEGACY calendar: the zone in which its moments were written."""
_OF_A_TABLE = "delta."
"""How the metadata of a column begins with which Delta finds and checks its values, such as random names."""
_PLAIN = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "float", "double", "string", "binary"),
        *("date", "timestamp", "timestamp_ntz", "void", "null"),
    }
)
_NOT_COMPARED = frozenset({"nullable", "containsNull", "valueContainsNull", "comment"})


class UnknownType(Exception):
    """A column of a type that has no digest, or whose name stands twice."""


class RowDigest:
    """Adds up the rows of one result, batch by batch. pyarrow and numpy come with Airflow's Spark provider.

    ``in_order``: the hash of a row has its place, too, so that only the same rows in the same order, in files of the
    same names, have the same digest.
    """

    def __init__(self, *, in_order: bool = False) -> None:
        self.rows = 0
        self._in_order = in_order
        self._file = 0
        self._row = 0
        self._sums = [0, 0]
        self._schemas: set[str] = set()

    def begin_file(self, name: str) -> None:
        """The rows that are added from now on are in this file, from its beginning on."""
        self._file, self._row = int.from_bytes(_hash(name.encode())[:8], "little"), 0

    def add_schema(self, schema: Any, constants: Mapping[str, str | None]) -> None:
        """Of a file that may have no rows."""
        self._schemas.add(_schema_text(schema, constants))

    def add(self, batch: Any, constants: Mapping[str, str | None]) -> None:
        """The rows of a `pyarrow.RecordBatch`. ``constants``: columns that are names of folders, with their values.

        Raises `UnknownType`.
        """
        import numpy as np
        import pyarrow as pa  # type: ignore[import-untyped]

        text = _schema_text(batch.schema, constants)
        self._schemas.add(text)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns |= {name: pa.repeat(pa.scalar(value, pa.string()), batch.num_rows) for name, value in constants.items()}
        schema = np.full(batch.num_rows, int.from_bytes(_hash(text.encode())[:8], "little"), np.uint64)
        words = [schema]
        if self._in_order:
            words.append(np.full(batch.num_rows, self._file, np.uint64))
            words.append(np.arange(self._row, self._row + batch.num_rows).astype(np.uint64))
            self._row += batch.num_rows
        hashes = _hashed(batch.num_rows, [columns[name] for name in sorted(columns)], words)
        self.rows += batch.num_rows
        self._sums = [
            (known + int(added.sum(dtype=np.uint64))) % (1 << 64)
            for known, added in zip(self._sums, hashes, strict=True)
        ]

    @property
    def text(self) -> str:
        """``rows3-<schemas>-<rows>-<sums>``. Two results have equal rows where these are equal."""
        schemas = hashlib.sha256(json.dumps(sorted(self._schemas)).encode()).hexdigest()[:12]
        kind = ORDERED_DIGEST if self._in_order else KIND
        return f"{kind}-{schemas}-{self.rows:x}-{self._sums[0]:016x}{self._sums[1]:016x}"


def _schema_text(schema: Any, constants: Mapping[str, str | None]) -> str:
    names = [*schema.names, *constants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UnknownType(f"column {twice[0]!r} is there twice")
    kinds = {field.name: _field_kind(field) for field in schema} | dict.fromkeys(constants, "folder")
    columns = [(name, kinds[name]) for name in (*_ordered(schema.names), *_ordered(tuple(constants)))]
    # In earlier versions columns, or folders, were sorted: the first word keeps their ordered digests apart from these.
    return json.dumps(["folders in order", *columns, *_footer(schema.metadata or {})])


def _footer(metadata: Mapping[bytes, bytes]) -> list[Any]:
    """What Spark and pandas have written about the columns that their types in Arrow do not show."""
    names = (NOT_SHOWN, *CALENDARS, *([_TIME_ZONE] if any(name in metadata for name in CALENDARS) else ()))
    told: list[Any] = [[name.decode(), metadata[name].decode(errors="replace")] for name in names if name in metadata]
    spark, pandas = (metadata.get(name, b"{}").decode(errors="replace") for name in (FOOTER, b"pandas"))
    try:
        columns = json.loads(spark).get("fields", ())
        told += [["spark", field["name"], _nameless(field)] for field in columns if not _is_plain(field)]
        index = json.loads(pandas).get("index_columns", ())
        told += [["index", name] for name in index if isinstance(name, str)]
        kinds = json.loads(pandas).get("columns", ())
        told += [["pandas", each["name"], each["pandas_type"], each["numpy_type"]] for each in kinds]
    except (ValueError, KeyError, TypeError, AttributeError):
        told += [spark, pandas]  # of a form that is not known: as it is
    return told


def _nameless(kind: Any) -> Any:
    """A type of Spark's JSON without what does not count."""
    if isinstance(kind, list):
        return [_nameless(item) for item in kind]
    if isinstance(kind, dict):
        return {name: _nameless(item) for name, item in sorted(kind.items()) if _counts(name)}
    return kind


def _counts(name: str) -> bool:
    """Whether a part of a type in Spark's JSON, or of the metadata of a column, is compared."""
    return name not in _NOT_COMPARED and not name.startswith(_OF_A_TABLE)


def _is_plain(kind: Any) -> bool:
    """Whether Arrow's type says all of it."""
    if isinstance(kind, str):
        return kind in _PLAIN or kind.startswith("decimal(")
    if any(map(_counts, kind.get("metadata", ()))) or kind.get("type") == "udt":
        return False
    inner = (kind.get(name) for name in ("type", "elementType", "keyType", "valueType"))
    parts = [part for part in inner if part is not None and part not in ("struct", "array", "map")]
    return all(map(_is_plain, [*parts, *kind.get("fields", ())]))


def _ordered(names: Sequence[str]) -> Sequence[str]:
    """The columns in the order that counts: that of the file."""
    return names


def _field_kind(field: Any) -> str:
    """The name of a field's type. In ORC an interval is a number, and each time of Spark is one without a zone."""
    given = (field.metadata or {}).get(_ORC_TYPE, b"").decode(errors="replace")
    return f"{_kind(field.type)} as {given}" if given else _kind(field.type)


def _kind(arrow_type: Any) -> str:
    """A type's name, the same for all forms in which Arrow may hold its values."""
    import pyarrow.types as types  # type: ignore[import-untyped]

    if isinstance(arrow_type, _extension()):
        return f"{arrow_type.extension_name} in {_kind(arrow_type.storage_type)}"
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return _kind(arrow_type.value_type)
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return "string"
    if _is_binary(arrow_type):
        return "binary"
    if types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if types.is_timestamp(arrow_type):
        return f"timestamp({arrow_type.unit}, {'moment' if arrow_type.tz else 'no zone'})"
    if types.is_map(arrow_type):
        return f"map<{_field_kind(arrow_type.key_field)}, {_field_kind(arrow_type.item_field)}>"
    if types.is_struct(arrow_type):
        return f"struct{json.dumps([[field.name, _field_kind(field)] for field in arrow_type])}"
    if _is_list(arrow_type):
        return f"list<{_field_kind(arrow_type.value_field)}>"
    return str(arrow_type)


def _hashed(rows: int, columns: Sequence[Any], words: Sequence[Words] = ()) -> list[Words]:
    """For each row two hashes, of ``words`` and of the values in ``columns``."""
    import numpy as np

    one, two, three, four, five = (np.uint64(prime) for prime in _PRIMES)

    def add(word: Words) -> None:
        mixed = word * two
        mixed = ((mixed << np.uint64(31)) | (mixed >> np.uint64(33))) * one
        for at, state in enumerate(states):
            state ^= mixed
            states[at] = ((state << np.uint64(27)) | (state >> np.uint64(37))) * one + four

    with np.errstate(over="ignore"):
        states = [np.full(rows, np.uint64(seed) + five, np.uint64) for seed in _SEEDS]
        flags: list[Flags | None] = []
        for word in words:
            add(word)
        for column in columns:
            for word in _words(column, flags):
                add(word)
        for word in _packed(rows, flags):
            add(word)
        for state in states:
            state ^= state >> np.uint64(33)
            state *= two
            state ^= state >> np.uint64(29)
            state *= three
            state ^= state >> np.uint64(32)
    return states


def _packed(rows: int, flags: Sequence[Flags | None]) -> list[Words]:
    """64 flags a word; `None` is never set."""
    import numpy as np

    words = []
    for start in range(0, len(flags), 64):
        word = np.zeros(rows, np.uint64)
        for bit, flag in enumerate(flags[start : start + 64]):
            if flag is not None:
                word |= flag.astype(np.uint64) << np.uint64(bit)
        words.append(word)
    return words


def _words(array: Any, flags: list[Flags | None]) -> list[Words]:
    """The values of a column as words, the same number for each value; whether they are null goes to ``flags``.

    Raises `UnknownType`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.types as types

    kind = array.type
    if isinstance(kind, _extension()):
        return _words(array.storage, flags)
    if types.is_dictionary(kind):
        return _words(array.dictionary_decode(), flags)
    if types.is_run_end_encoded(kind):
        return _words(pc.run_end_decode(array), flags)
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    flags.append(nulls)
    if types.is_null(kind):
        return []
    if types.is_struct(kind):
        return [word for member in array.flatten() for word in _words(member, flags)]
    if types.is_map(kind) or _is_list(kind):
        return _item_words(array, is_ordered=not types.is_map(kind))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or _is_binary(kind):
        return _text_words(array.cast(pa.large_binary()), nulls)
    if types.is_decimal(kind) or kind == pa.month_day_nano_interval():
        return _wide_words(array, nulls)
    return [_number_word(array)]


def _number_word(array: Any) -> Words:
    """Numbers, booleans and times, with 0 for null."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind = array.type
    if types.is_floating(kind):
        numbers = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        floats: Words = numbers.view(np.uint64)
        return floats
    if types.is_boolean(kind):
        array = array.cast(pa.uint8())
    elif types.is_date32(kind) or types.is_time32(kind):
        array = array.cast(pa.int32())
    elif types.is_temporal(kind):
        array = array.cast(pa.int64())
    elif not types.is_integer(kind):
        raise UnknownType(f"values of type {kind} have no digest")
    integers: Words = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return integers


def _text_words(array: Any, nulls: Flags | None) -> list[Words]:
    """Two words for each text, of which each that differs is hashed once."""
    import numpy as np
    import pyarrow.compute as pc

    encoded = array.dictionary_encode()
    texts = encoded.dictionary.to_pylist() or [b""]
    hashes = np.frombuffer(b"".join(_hash(text) for text in texts), "<u8").reshape(-1, 2)
    at = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return _without_nulls([hashes[at, 0], hashes[at, 1]], nulls)


def _wide_words(array: Any, nulls: Flags | None) -> list[Words]:
    """Values of more than 64 bits, as Arrow holds them; of a narrow decimal as if it were wide."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_decimal(array.type) and array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    count = array.type.bit_width // 64
    data = array.buffers()[1]
    words = np.frombuffer(data if data is not None else b"", "<u8").reshape(-1, count)
    words = words[array.offset : array.offset + len(array)]
    return _without_nulls([words[:, at] for at in range(count)], nulls)


def _item_words(array: Any, *, is_ordered: bool) -> list[Words]:
    """How many items there are, and the sums of their hashes; of a list, each item's hash has its place in it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_ordered:
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    items = array.flatten()
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    places = [(np.arange(len(items)) - np.repeat(starts, lengths)).view(np.uint64)] if is_ordered else []
    totals = [
        np.concatenate([np.zeros(1, np.uint64), np.cumsum(state)]) for state in _hashed(len(items), [items], places)
    ]
    return [lengths.view(np.uint64), *(total[ends] - total[starts] for total in totals)]


def _without_nulls(words: list[Words], nulls: Flags | None) -> list[Words]:
    import numpy as np

    return words if nulls is None else [np.where(nulls, np.uint64(0), word) for word in words]


def _is_binary(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _extension() -> Any:
    import pyarrow as pa

    return pa.BaseExtensionType


def _hash(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_TEXT_BYTES).digest()
