"""The columns that a record or a channel's log has choose no code.

Pyspark imports the module that a type in them names. Older versions also load the type from a pickle in them.
"""

from __future__ import annotations

import ast
import base64
import json
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.ml.linalg import VectorUDT
from pyspark.sql.types import ArrayType, DecimalType, DoubleType, StructType, UserDefinedType

import airflow_recovery
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.spark_schema import read_schema
from airflow_recovery.errors import RecordInvalid
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.streaming.writing import arrow_schema

MODULE = "named_by_columns"


class Touch:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


class Celsius(UserDefinedType):
    """A type of a user's own, in a module that is imported."""

    @classmethod
    def sqlType(cls) -> DoubleType:
        return DoubleType()

    @classmethod
    def module(cls) -> str:
        return __name__


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is there once the code has run: the module that the columns name, or the pickle in them."""
    (tmp_path / f"{MODULE}.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return tmp_path / "ran"


def forged(ran: Path, shape: Callable[[dict[str, Any]], Any] = lambda kind: kind) -> str:
    serialized = base64.b64encode(pickle.dumps(Touch(ran))).decode()
    kind = {"type": "udt", "pyClass": f"{MODULE}.Nothing", "serializedClass": serialized, "sqlType": "double"}
    return schema_of(shape(kind))


def schema_of(kind: Any) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]})


SHAPES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a column": lambda kind: kind,
    "in an array": lambda kind: {"type": "array", "elementType": kind, "containsNull": True},
    "in a map": lambda kind: {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True},
    "in a struct": lambda kind: json.loads(schema_of(kind)),
}


def a_driver_reads(schema: str) -> Any:
    """The result of a producer, from the record of its finish."""
    spark: Any = None  # it is not asked
    return read_manifest(spark, PartitionManifest("clean", "file:///results/clean", (), schema=schema))


READERS = {"a driver": a_driver_reads, "a worker of a stream": arrow_schema, "read_schema": read_schema}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reader", READERS)
def test_fault_409_the_columns_of_a_record_run_no_code(ran: Path, reader: str, shape: str) -> None:
    with pytest.raises(RecordInvalid, match="must not choose the code that runs"):
        READERS[reader](forged(ran, SHAPES[shape]))
    assert not ran.exists()


@pytest.mark.control
@pytest.mark.parametrize("shape", SHAPES)
def test_fault_409_control_pyspark_runs_it(ran: Path, shape: str) -> None:
    with suppress(Exception):  # it is no type
        StructType.fromJson(json.loads(forged(ran, SHAPES[shape])))
    assert ran.exists()


@pytest.mark.parametrize("name", ["os.abort", "antigravity.x", "builtins.object", "pyspark.shell.x", "x", "", None, 7])
def test_fault_409_no_module_is_imported_and_nothing_is_called_that_the_columns_name(name: Any) -> None:
    with pytest.raises(RecordInvalid):
        read_schema(schema_of({"type": "udt", "pyClass": name, "sqlType": "double"}))


@pytest.mark.parametrize("kind", [VectorUDT(), Celsius()])
def test_types_of_spark_and_of_imported_code_are_read(kind: UserDefinedType) -> None:
    schema = StructType().add("a", kind).add("b", ArrayType(StructType().add("c", DecimalType(4, 2))))
    assert read_schema(schema.json()) == schema


def test_fault_409_no_other_code_reads_columns_by_pyspark() -> None:
    root = Path(airflow_recovery.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "fromJson" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "fromJson"
    }
    # The second reads the columns of a frame that the job itself has made.
    assert found == {"driver/spark_schema.py", "driver/iceberg_result.py"}
