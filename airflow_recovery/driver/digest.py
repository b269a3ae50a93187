"""A digest of a result's rows, taken while they are written: by it two attempts are found to be equal.

See docs/protocol.md#evaluation.

Each row gets one 64-bit hash, and the digest is the sum of these in three parts, beside the number of rows and a hash
of the schema. A sum sees duplicates, which an exclusive or does not, and depends neither on the order of rows nor on
how they lie in files. Three parts of at most 22 bits stay exact, and within a ``bigint``, up to 2^41 rows.

Spark's ``xxhash64`` alone would not do: it skips nulls, so that ``(null, 1)`` equals ``(1, null)`` and ``[1, null]``
equals ``[null, 1]``, and it refuses maps and variants. Here every value is brought into a form first in which what
differs differs (`_parts`). What Spark holds to be equal is equal: -0.0 and 0.0, any two NaN, a map in whatever
order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

_LOW_BITS = 21
_MASK = (1 << _LOW_BITS) - 1
_PARTS = ("digest_low", "digest_middle", "digest_high")


def digest_metrics(schema: StructType) -> list[Column]:
    """Aggregates to be observed on a frame of this schema; `digest_of` reads them.

    Raises Spark's ``AnalysisException``, when the frame is analysed, for a type that can't be hashed; none of the types
    that Parquet holds is such a one.
    """
    from pyspark.sql import functions as F

    hashed = row_hash(schema)
    low, middle, high = (
        hashed.bitwiseAND(F.lit(_MASK)),
        F.shiftrightunsigned(hashed, _LOW_BITS).bitwiseAND(F.lit(_MASK)),
        F.shiftrightunsigned(hashed, 2 * _LOW_BITS),
    )
    return [
        F.coalesce(F.sum(part), F.lit(0)).alias(name) for part, name in zip((low, middle, high), _PARTS, strict=True)
    ]


def digest_of(schema: StructType, rows: int, observed: Mapping[str, Any]) -> str:
    """The digest as text: ``<schema>-<rows>-<sums>``. Two attempts are equal where their digests are."""
    kind = hashlib.sha256(schema.json().encode()).hexdigest()[:12]
    return "-".join([kind, f"{rows:x}", *(f"{int(observed[name]):x}" for name in _PARTS)])


def row_hash(schema: StructType) -> Column:
    """One 64-bit hash of all columns of a row; equal rows have equal hashes. A row without columns has one too."""
    from pyspark.sql import functions as F

    parts = (part for column in schema.fields for part in _parts(F.col(_quoted(column.name)), column.dataType))
    return F.xxhash64(F.lit(1), *parts)


def _parts(value: Column, kind: DataType) -> list[Column]:
    """What ``xxhash64`` is given in place of a value of this type: different parts for different values.

    Every value stands beside the claim that it is (not) null, and what has items beside their number: so neither can be
    mistaken for its neighbour.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    is_null = value.isNull()
    if isinstance(kind, T.StructType):
        return [
            is_null,
            *(part for member in kind.fields for part in _parts(value.getField(member.name), member.dataType)),
        ]
    if isinstance(kind, T.ArrayType):
        item = kind.elementType
        return [is_null, F.size(value), F.transform(value, lambda column: F.xxhash64(*_parts(column, item)))]
    if isinstance(kind, T.MapType):
        key, item = kind.keyType, kind.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda column: F.xxhash64(*_parts(column.getField("key"), key), *_parts(column.getField("value"), item)),
        )
        # Entries have no order, nor have values that are maps again; their hashes do.
        return [is_null, F.size(value), F.array_sort(entries)]
    if kind.typeName() == "variant":
        # As JSON a date and a text may look alike.
        return [is_null, F.to_json(value), F.schema_of_variant(value)]
    if kind.typeName() in ("geometry", "geography"):
        return [is_null, F.st_asbinary(value), F.st_srid(value)]
    if isinstance(kind, T.StringType) and kind != T.StringType():
        # By its bytes, although its collation may hold different texts to be equal. Others are hashed so anyway.
        return [is_null, value.cast("binary")]
    return [is_null, value]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
