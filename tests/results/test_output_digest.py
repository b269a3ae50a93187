"""Which digest an output gets, what is read for it, and what is said where its rows are not compared."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_recovery.errors import StoreTimeout
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.results import output_digest, stored_rows
from airflow_recovery.results.output_digest import digest_output, files_digest
from airflow_recovery.results.stored_rows import ReadLimits
from airflow_recovery.store.local import LocalStore

PLENTY = ReadLimits(1 << 20, 60.0)
UUIDS = ("0e3a1c9e-0b1f-4c53-9f9e-1d6a2a8b7c01", "a7b8c9d0-1234-4abc-8def-0123456789ab")


def part(number: int, uuid: str = UUIDS[0], folder: str = "") -> str:
    return f"{folder}part-{number:05}-{uuid}-c000.json"


class Attempts:
    """What one attempt after the other has written, and the log of their registration."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self._folder = folder
        self._caplog = caplog
        self.manifests: list[PartitionManifest] = []

    def written(
        self,
        files: dict[str, str],
        limits: ReadLimits | None = PLENTY,
        *,
        etag: Callable[[str], str] = str,
        managed: bool = True,
        store_type: type[LocalStore] = LocalStore,
    ) -> str | None:
        store = store_type(f"{self._folder}/{len(self.manifests) + 1}")
        for name, text in files.items():
            store.put(name, text.encode())
        objects = tuple(ResultObject(info.key, info.size, etag(info.etag)) for info in LocalStore.list(store))
        manifest = PartitionManifest("t.out", store.base_uri, objects, managed=managed)
        self._caplog.clear()
        with self._caplog.at_level(logging.INFO):
            registered = digest_output(
                manifest,
                store,
                limits=limits,
                earlier=self.manifests[::-1],
                delta_options=dict,
                log=logging.getLogger("task"),
            )
        assert replace(registered, digest=None) == manifest
        self.manifests.append(registered)
        return registered.digest

    @property
    def said(self) -> str:
        (record,) = self._caplog.records
        return record.getMessage()


@pytest.fixture
def attempts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Attempts:
    return Attempts(tmp_path, caplog)


class Unread(LocalStore):
    """A store of which nothing is read."""

    def get(self, key: str, max_bytes: int | None = None) -> Any:
        raise AssertionError(f"{key} was read")


def test_rows_are_compared_in_whatever_files(attempts: Attempts) -> None:
    first = attempts.written({part(0): '{"a":1}\n{"a":2}\n'})
    assert attempts.said.startswith("Output t.out: digest of 2 rows, 16 bytes in ")
    assert first == attempts.written({part(0): '{"a":2}', part(1): '{"a":1}'})
    assert first != attempts.written({part(0): '{"a":2}'})


def test_equal_files_are_equal_rows_and_nothing_is_read(attempts: Attempts) -> None:
    first = attempts.written({part(0): '{"a":1}', part(1): '{"a":2}'})
    files = {part(0, UUIDS[1]): '{"a":1}', part(1, UUIDS[1]): '{"a":2}'}
    assert attempts.written(files, store_type=Unread) == first
    assert attempts.said == "Output t.out: its files are those of an earlier attempt, so its rows are, too."
    # So it is where rows are not compared any more, and with any of the earlier attempts.
    attempts.written({part(0): '{"a":3}'})
    assert attempts.written(files, None, store_type=Unread) == first


def test_files_alone_are_compared_without_reading_one(attempts: Attempts) -> None:
    first = attempts.written({part(0): "1", part(1): "2"}, None, store_type=Unread)
    assert first is not None
    assert first.startswith("files1-2-")
    assert attempts._caplog.records == []
    assert first == attempts.written({part(0, UUIDS[1]): "1", part(1, UUIDS[1]): "2"}, None, store_type=Unread)
    others = [
        {part(0): "2", part(1): "1"},  # the same rows in another order
        {part(0): "1"},
        {part(0): "1", part(1): "2", part(2): ""},
        {part(0, folder="day=1/"): "1", part(1): "2"},
        {part(0): "1", part(1): "3"},
    ]
    digests = {attempts.written(files, None, store_type=Unread) for files in others}
    assert len({first, *digests}) == 6


def test_files_and_rows_are_never_equal(attempts: Attempts) -> None:
    rows = attempts.written({part(0): '{"a":1}\n{"a":2}\n'})
    files = attempts.written({part(0): '{"a":2}\n{"a":1}\n'}, None)
    assert rows is not None
    assert files is not None
    assert (rows.partition("-")[0], files.partition("-")[0]) == ("rows3", "files1")


@pytest.mark.parametrize(
    ("files", "limits", "why"),
    [
        ({part(0): '{"a":1}'}, ReadLimits(6, 60.0), "7 bytes are more than verify_max_bytes=6"),
        ({part(0): '{"a":1}'}, ReadLimits(7, -1.0), "it takes longer than verify_timeout=-1 s"),
        ({"p.parquet": "PAR1 and no more PAR1"}, PLENTY, "Arrow[A-Za-z]*: .*"),
        ({"p.orc": "no ORC"}, PLENTY, "OSError: Not an ORC file"),
        ({"p.json": "{"}, PLENTY, "JSONDecodeError: .*"),
        ({"p.json.gz": "{"}, PLENTY, "BadGzipFile: .*"),
        ({"p.avro": "Obj"}, PLENTY, "p.avro is of no format that is known by its name"),
        ({"_delta_log/0.json": "{"}, PLENTY, "[A-Za-z]*: .*"),
    ],
)
def test_what_is_too_dear_or_damaged_is_compared_by_its_files_and_said_in_one_line(
    attempts: Attempts, files: dict[str, str], limits: ReadLimits, why: str
) -> None:
    first = attempts.written(files, limits)
    assert first == files_digest(attempts.manifests[0]) is not None
    until = "its readers run again if it makes other files."
    assert attempts.said.startswith("Output t.out: rows not compared (")
    assert attempts.said.endswith(f"); {until}")
    assert re.search(why, attempts.said)
    assert attempts.written(files, limits) == first


def test_a_store_that_gives_no_answer_fails_nothing(attempts: Attempts) -> None:
    class Silent(LocalStore):
        def get(self, key: str, max_bytes: int | None = None) -> Any:
            raise StoreTimeout("no answer\nin time")

    digest = attempts.written({part(0): "{}"}, store_type=Silent)
    assert digest is not None
    assert digest.startswith("files1-")
    assert "rows not compared (StoreTimeout: no answer in time); its readers" in attempts.said


def test_etags_that_are_no_checksums_prove_nothing(attempts: Attempts) -> None:
    def version(etag: str) -> str:
        return "0x8D4BCC2E4835CD0"

    files = {part(0): "{}"}
    assert attempts.written(files, None, etag=version) is None
    assert "no checksums of contents); its readers run again if it makes it again (as with" in attempts.said
    assert attempts.written(files, None, etag=version) is None
    assert attempts.written(files, ReadLimits(1, 60.0), etag=version) is None
    assert "verify_max_bytes=1; the store at file:///" in attempts.said
    # As S3 has them: the MD5 of one request, or of an upload's parts.
    for etag in ("D41D8CD98F00B204E9800998ECF8427E", "d41d8cd98f00b204e9800998ecf8427e-12"):
        objects = (ResultObject("a", 0, etag),)
        assert files_digest(PartitionManifest("r", "s3://b/r", objects)) is not None


def test_a_place_of_the_users_own_that_is_altered_while_it_is_read_has_no_digest_of_rows(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shared(LocalStore):
        def get(self, key: str, max_bytes: int | None = None) -> Any:
            self.put("p-newer.json", b"{}")
            return super().get(key)

    altered = attempts.written({part(0): "{}"}, managed=False, store_type=Shared)
    assert altered is not None
    assert altered.startswith("files1-")
    assert "was altered meanwhile" in attempts.said
    # Control: where nobody looks again.
    monkeypatch.setattr(output_digest, "_is_altered", lambda *given: False)
    control = attempts.written({part(0): "[]"}, managed=False, store_type=Shared)
    assert control is not None
    assert control.startswith("rows3-")


def test_an_output_without_files_has_a_digest(attempts: Attempts) -> None:
    assert attempts.written({}, None) == attempts.written({}, None)


@pytest.mark.parametrize("name", ["numpy", "pyarrow"])
def test_where_a_library_is_missing_files_are_compared(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    digest = attempts.written({part(0): "{}"})
    assert digest is not None
    assert digest.startswith("files1-")
    assert f"rows not compared (ModuleNotFoundError: import of {name} halted" in attempts.said


# what is random in a name

TENANTS = tuple(f"tenant={uuid}/" for uuid in UUIDS)
SWAPPED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "partitions": (
        {part(0, folder=TENANTS[0]): '{"a":1}', part(0, folder=TENANTS[1]): '{"a":2}'},
        {part(0, folder=TENANTS[0]): '{"a":2}', part(0, folder=TENANTS[1]): '{"a":1}'},
    ),
    "folders without a column": (
        {f"{UUIDS[0]}/part-00000.json": '{"a":1}', f"{UUIDS[1]}/part-00000.json": '{"a":2}'},
        {f"{UUIDS[0]}/part-00000.json": '{"a":2}', f"{UUIDS[1]}/part-00000.json": '{"a":1}'},
    ),
    "files that a user has named": (
        {f"{UUIDS[0]}.json": '{"a":1}', f"{UUIDS[1]}.json": '{"a":2}'},
        {f"{UUIDS[0]}.json": '{"a":2}', f"{UUIDS[1]}.json": '{"a":1}'},
    ),
    "files that begin as Spark's and go on with a tenant": (
        {f"part-00000-of-{UUIDS[0]}.json": '{"a":1}', f"part-00000-of-{UUIDS[1]}.json": '{"a":2}'},
        {f"part-00000-of-{UUIDS[0]}.json": '{"a":2}', f"part-00000-of-{UUIDS[1]}.json": '{"a":1}'},
    ),
}


@pytest.mark.parametrize("what", SWAPPED)
def test_fault_291_two_places_that_swapped_their_rows_are_other_files(attempts: Attempts, what: str) -> None:
    before, after = SWAPPED[what]
    assert attempts.written(before, None) != attempts.written(after, None)
    if what == "partitions":
        assert attempts.written(before) != attempts.written(after)


@pytest.mark.control
def test_fault_291_control_without_any_uuid_they_are_the_same(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    anywhere = re.compile(stored_rows._UUID)
    monkeypatch.setattr(output_digest, "stable_name", lambda path: anywhere.sub("*", path))
    for before, after in SWAPPED.values():
        assert attempts.written(before, None) == attempts.written(after, None)


@pytest.mark.parametrize(
    "name",
    [
        "day=2013-01-01/part-00000-{}-c000.snappy.parquet",
        "part-00000-{}.c000.json",
        "part-00003-{}_00001.c000.snappy.parquet",
        "part-r-00000-{}.gz.parquet",
        f"part-00000-{UUIDS[0]}-{{}}.c000.orc",
        "part-00000-{}",
    ],
)
def test_what_spark_names_for_each_job_is_the_same_file(name: str) -> None:
    assert stored_rows.stable_name(name.format(UUIDS[0])) == stored_rows.stable_name(name.format(UUIDS[1]))
