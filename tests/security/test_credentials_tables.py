"""A table's own metadata chooses neither the server that gets the credentials nor the code that reads its files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from recording_server import RecordingServer, content

from airflow_recovery.locations import TableLocation
from airflow_recovery.results import tables
from airflow_recovery.results.tables import Tables
from airflow_recovery.sinks import iceberg
from airflow_recovery.sinks.iceberg import IcebergTable
from airflow_recovery.store import iceberg_catalog

SECRET = "THESECRET"
TABLE = TableLocation.parse("iceberg://lake/db.t")
CODE = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


class Lake:
    """A catalog whose connection names the server ``own``, and a table whose metadata file ``evil`` may write."""

    def __init__(self, folder: Path, own: RecordingServer, evil: RecordingServer) -> None:
        self.folder, self.own, self.evil = folder, own, evil
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
            "s3.endpoint": own.url,
            "s3.region": "eu-west-1",
            "s3.access-key-id": SECRET,
            "s3.secret-access-key": "p",
        }

    def make(self) -> Path:
        """Make the table. Returns its metadata file."""
        catalog = load_catalog("lake", **self.properties)
        catalog.create_namespace("db")
        made = catalog.create_table("db.t", pa.schema([("a", pa.string())]))
        return Path(made.metadata_location.removeprefix("file://"))

    def forge(self, **properties: str) -> None:
        metadata = self.make()
        document = json.loads(metadata.read_text())
        document["properties"] |= {name.replace("_", "."): value for name, value in properties.items()}
        metadata.write_text(json.dumps(document))

    def load(self) -> list[Any]:
        """The table as a task loads it: as an input or a result, and as the target of a sink."""
        asked = Tables(lambda name: self.properties, lambda uri: {}, lambda uri: None)
        return [asked.iceberg(TABLE), IcebergTable(uri=TABLE.uri).open(self)._load()]  # type: ignore[arg-type]

    def catalog_properties(self, name: str) -> Mapping[str, str]:
        return self.properties


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("own", "evil", "warehouse"):
        (tmp_path / name).mkdir()
    with RecordingServer(tmp_path / "own") as own, RecordingServer(tmp_path / "evil") as evil:
        yield Lake(tmp_path, own, evil)


def unprotected(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_pyiceberg(name: str, properties: Mapping[str, str]) -> Any:
        return load_catalog(name, **properties)

    for module in (tables, iceberg):
        monkeypatch.setattr(module, "open_catalog", as_pyiceberg)


def read_a_file(lake: Lake) -> None:
    lake.forge(s3_endpoint=lake.evil.url)
    for table in lake.load():
        with suppress(Exception):  # each server answers 403
            table.io.new_input("s3://lake/data.parquet").exists()


def test_fault_406_a_tables_metadata_names_no_server_for_the_credentials(lake: Lake) -> None:
    read_a_file(lake)
    assert SECRET in lake.own.secrets
    assert lake.evil.sent == []


@pytest.mark.control
def test_fault_406_control_as_pyiceberg_does_it_the_server_in_the_metadata_is_asked(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    unprotected(monkeypatch)
    read_a_file(lake)
    assert SECRET in lake.evil.secrets
    assert lake.own.sent == []


def import_what_is_named(lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str) -> bool:
    """Whether code of that module has run."""
    (lake.folder / f"{name}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(lake.folder))
    metadata = lake.make()
    document = json.loads(metadata.read_text())
    document["properties"]["py-io-impl"] = f"{name}.Io"
    metadata.write_text(json.dumps(document))
    with suppress(Exception):
        lake.load()
    sys.modules.pop(name, None)
    return (lake.folder / f"{name}.ran").exists()


def test_fault_406_nor_code(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not import_what_is_named(lake, monkeypatch, "named_by_a_table")


@pytest.mark.control
def test_fault_406_control_as_pyiceberg_does_it_the_code_runs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    unprotected(monkeypatch)
    assert import_what_is_named(lake, monkeypatch, "named_by_another_table")


def test_fault_406_of_a_rest_catalog_its_own_answer_counts_and_the_metadata_does_not(lake: Lake) -> None:
    metadata = lake.make()
    document = json.loads(metadata.read_text())
    document["properties"] |= {"s3.endpoint": lake.evil.url, "s3.session-token": "forged", "owner": "me"}
    answer = {"metadata-location": f"file://{metadata}", "metadata": document, "config": {"s3.session-token": "lent"}}
    lake.own.answers = {
        "GET /v1/config": content(b'{"defaults": {}, "overrides": {}}', Content_Type="application/json"),
        "/tables/t ": content(json.dumps(answer).encode(), Content_Type="application/json"),
    }
    lake.properties |= {"type": "rest", "uri": lake.own.url}
    for table in lake.load():
        assert (table.io.properties["s3.endpoint"], table.io.properties["s3.session-token"]) == (lake.own.url, "lent")
        assert table.metadata.properties["owner"] == "me"
        assert table.metadata.properties["s3.endpoint"] == lake.evil.url


def test_pyiceberg_makes_no_files_client_past_the_methods_that_are_replaced(lake: Lake) -> None:
    catalog: Any = iceberg_catalog.open_catalog("lake", lake.properties)
    assert catalog._load_file_io({"s3.endpoint": lake.evil.url}, "s3://lake/x").properties == catalog.properties
