"""Reads the columns that a record or a channel's log has, without running code that the text names.

Spark's own reader imports the module that a user-defined type names. Older ones also call what they find there, or load
the type from a pickle in the text. A user who may write records, or logs of channels, would run code in a driver.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import RecordInvalid

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_OF_SPARK = ("pyspark.ml.linalg", "pyspark.mllib.linalg")
"""Spark's modules with user-defined types."""


def read_schema(text: str) -> StructType:
    """Return the columns that ``text`` describes, which is Spark's JSON of them.

    Raises `RecordInvalid` for a user-defined type that neither Spark has nor code that this process has imported.
    """
    from pyspark.sql.types import StructType

    document = json.loads(text)
    for kind in _user_types(document):
        _check_known(str(kind.get("pyClass")))
    return StructType.fromJson(document)


def _user_types(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("type") == "udt":
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _user_types(each)


def _check_known(name: str) -> None:
    from pyspark.sql.types import UserDefinedType

    module, _, attribute = name.rpartition(".")
    if module in _OF_SPARK:
        import_module(module)
    found = getattr(sys.modules.get(module), attribute, None)
    if not (isinstance(found, type) and issubclass(found, UserDefinedType)):
        raise RecordInvalid(
            f"Expected columns of Spark's types, or of user-defined types that are imported here, found {name!r}: a "
            "record must not choose the code that runs. If the type is yours, import it at the top of the job's module."
        )
