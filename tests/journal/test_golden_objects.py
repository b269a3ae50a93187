"""What we write beside the records, in golden files: `tests/journal/test_codec.py` has those of the records.

    tests/golden/beside-v1/journal/<key>, results/<key>     objects by their keys
    tests/golden/names-v1.json                              names and numbers of ours that others keep

The files are never written again. What is new, or has another form, gets another file beside them, and stays readable.
"""

from __future__ import annotations

import ast
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import MemoryStore
from test_codec import EXAMPLES as RECORDS

from airflow_recovery.driver import exit_report, server_keeper
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.errors import Failure
from airflow_recovery.job.chains import batch_label
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout, run_key, shared_identity
from airflow_recovery.journal.owner import check_owner, check_results, digest_key, own_prefix, own_results
from airflow_recovery.journal.record_cache import RecordCache
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import Claim, PlanRecord, RunIdentity
from airflow_recovery.model.split import Split
from airflow_recovery.results.cached import cached_view_name
from airflow_recovery.results.tables import DELTA_TOKEN, ICEBERG_TOKEN, tag_of, token_of
from airflow_recovery.sinks import CommitToken, delta, iceberg, postgres
from airflow_recovery.splits.log import Assign, Discovered, End, Rescaled, Return, SplitBook
from airflow_recovery.splits.log_store import SplitLogStore
from airflow_recovery.store.object_store import ObjectInfo, StoredObject
from airflow_recovery.streaming.checkpoint import Checkpoint, Place, lineage_key, prepare_checkpoint, read_lineage
from airflow_recovery.streaming.folder import CheckpointFolder
from airflow_recovery.task.outliving_job import key_of
from airflow_recovery.task.run_spark import RunSpark, ServerSlot, _body

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
BESIDE = GOLDEN / "beside-v1"
NAMES = GOLDEN / "names-v1.json"

RUN = RunIdentity("flights", "date-2026-01-01T000000Z", "group")
LAYOUT = JournalLayout(RUN)
JOURNAL_ID = "0" * 31 + "1"
PROCESS = "boot/pid:[4026531836]/4711/123"
PROVEN = ServerSlot("5a18", "worker-2", 15003, "worker-2", 4712, "Y2VydGlmaWNhdGU=", PROCESS, format=2)
SLOTS = (
    ServerSlot("5a17", "worker-1", 15002, "worker-1", 4711),
    ServerSlot(),
    replace(PROVEN, signature="769161b59938d266d1a432c5ff0eaf5a193fb4deafed0e8ac805503954ebb525"),
)
END = {"why": "it was killed", "code": 137, "output": ["last words", "of it"]}
BEATS = {
    1: Beat("tag-1", 7, "boot/pid:[4026531836]/4711/123", "app-1", progress="2 of 3 splits"),
    2: Beat("tag-2", 9, None, None, ended=True),
}
SPLITS = (Split("s3://lake/a ü.csv", 12, "e1"), Split("split:2013-01-31", 0, '"2013-01-31"'), Split("s3://b", 3, "e3"))
KEYS = tuple(split.key for split in SPLITS)
SPLIT_RECORDS = (
    Discovered(SPLITS, (), {"of": "orders", "state": 1}),
    Rescaled(2),
    Assign(0, 1, 0, KEYS[:2]),
    End(1, 1, 0),
    Discovered((), KEYS[2:], {"of": "orders", "state": 2}),
    Return(0, 1, KEYS[1:2]),
)
FAILURE = Failure("ArithmeticException", "by zero", "DIVIDE_BY_ZERO", "22012", ("a", "b"), "delays", (("class", "x"),))
CHECKPOINTS = CheckpointFolder(RUN, "table")
CHECKPOINT = Checkpoint(f"{CHECKPOINTS.attempt('1')}/checkpoint", 5, -1, 4, Place(2, (5, 0)))
SNAPSHOT = {
    LAYOUT.attempt("raw", 1, "outcome"): ("5530a335dae8f191877a655ac401e217", b'{"body":1}'),
    LAYOUT.attempt("ü", 2, "outcome"): ("4129e2a8044a57ce7635fd6023661cd6", b"2"),
}
SHARED = shared_identity("0a1b2c")
TABLE_KEY = RegionKey.of(RUN, "delays ü")


class Places:
    """The stores of a journal and of its results."""

    def __init__(self) -> None:
        self.journal = MemoryStore("s3://bucket/journal")
        self.results = MemoryStore("s3://bucket/results")

    @property
    def objects(self) -> dict[str, bytes]:
        """All objects, by the paths of their golden files."""
        stores = {"journal": self.journal, "results": self.results}
        return {f"{name}/{key}": body for name, store in stores.items() for key, body in store.objects.items()}


def golden() -> Places:
    places = Places()
    for name, store in (("journal", places.journal), ("results", places.results)):
        for path in sorted((BESIDE / name).rglob("*")):
            if path.is_file():
                store.put(path.relative_to(BESIDE / name).as_posix(), path.read_bytes())
    return places


def written(monkeypatch: pytest.MonkeyPatch) -> Places:
    """As the writers of this version write them."""
    places = Places()
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(JOURNAL_ID))
    own_prefix(places.journal, "berlin")
    own_results(places.journal, places.results)
    digest_key(places.journal)
    for attempt, beat in BEATS.items():
        places.journal.put(LAYOUT.heartbeat("delays", attempt), beat.to_bytes())
    cache = RecordCache(places.journal, LAYOUT.snapshot, writes=True, worth=1)
    read = {key: StoredObject(ObjectInfo(key, len(body), etag), body) for key, (etag, body) in SNAPSHOT.items()}
    cache.bodies({key: etag for key, (etag, _) in SNAPSHOT.items()}, None, lambda keys: read)
    cache.wait()
    for number, slot in enumerate(SLOTS, 1):
        places.journal.put(f"{LAYOUT.servers}{number:08d}", _body(slot))
    keeper: Any = object.__new__(server_keeper.Keeper)
    keeper._process, keeper._order = (
        SimpleNamespace(returncode=END["code"]),
        SimpleNamespace(store=None, prefix=LAYOUT.servers),
    )
    keeper._output = lambda: END["output"]
    monkeypatch.setattr(server_keeper, "open_spec_store", lambda spec: places.journal)
    keeper._tell_end(1, END["why"])
    log = SplitLogStore(places.journal, RUN, "raw", writer="w1", snapshot_every=len(SPLIT_RECORDS))
    for record in SPLIT_RECORDS:
        log.append(lambda book, record=record: record)  # type: ignore[misc]
    monkeypatch.setattr(exit_report, "open_spec_store", lambda spec: places.results)
    spec: Any = SimpleNamespace(
        receipt=None, results=None, location=f"{places.results.base_uri}/{LAYOUT.data_of_number('delays', 1)}"
    )
    exit_report.write_failure(spec, FAILURE)
    prepare_checkpoint(
        places.results, CHECKPOINTS, "1", earlier=(), completed=4, may_begin=True, begins=CHECKPOINT.begins
    )
    shared = Journal(places.journal, SHARED, writer="w1")
    claim = RECORDS["claim-shared"]
    assert isinstance(claim, Claim)
    shared.claim(claim)
    plan = RECORDS["plan-retained"]
    assert isinstance(plan, PlanRecord)
    shared.put_plan(plan)
    return places


def test_this_version_writes_the_golden_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch).objects == golden().objects


def test_fault_39_whose_journal_and_results_they_are_is_read_for_ever() -> None:
    places = golden()
    before = places.objects
    check_owner(places.journal, "berlin")
    own_prefix(places.journal, "berlin")
    check_results(places.journal, places.results)
    own_results(places.journal, places.results)
    assert digest_key(places.journal) == JOURNAL_ID
    assert places.objects == before


def test_fault_39_heartbeats_are_read_for_ever() -> None:
    store = golden().journal
    assert {n: Beat.from_bytes(store.get(LAYOUT.heartbeat("delays", n)).body) for n in BEATS} == BEATS


def test_fault_39_the_snapshot_of_outcomes_is_read_for_ever() -> None:
    store = golden().journal
    [listed] = store.list(LAYOUT.snapshot)
    cache = RecordCache(store, LAYOUT.snapshot, worth=1)
    etags = {key: etag for key, (etag, _) in SNAPSHOT.items()}
    assert cache.bodies(etags, listed, lambda missing: {}) == {key: body for key, (_, body) in SNAPSHOT.items()}


def test_fault_39_the_log_of_a_runs_own_spark_is_read_for_ever() -> None:
    store = golden().journal
    spark = RunSpark(SimpleNamespace(journal=store), RUN, secret="", log=None)  # type: ignore[arg-type]
    server, none = spark._at(1), spark._at(2)
    assert server is not None
    assert (server.address.host, server.address.port, none) == ("worker-1", 15002, None)
    assert server.address.token == "53b975ca0f21bfb4d7b036425df13d29c9932190b1347a808a91ea875502c8ba"
    assert not server.address.certificate  # nobody speaks to it: it can't prove what it is
    assert spark._end_of(1) == END
    proven = spark._at(3)
    assert proven is not None
    assert (proven.address.target, proven.address.certificate) == ("worker-2:15003", b"certificate")
    assert proven.process == PROCESS


def test_fault_39_the_log_of_splits_is_read_for_ever_with_its_snapshot_and_without() -> None:
    store = golden().journal
    expected = SplitBook()
    for record in SPLIT_RECORDS:
        expected.add(record)
    book = SplitLogStore(store, RUN, "raw", writer="w2").read()
    assert book.to_json() == expected.to_json()
    [snapshot] = [key for key in store.objects if "/snapshot-" in key]
    store.delete([snapshot])
    assert SplitLogStore(store, RUN, "raw", writer="w2").read().to_json() == expected.to_json()


def test_fault_39_what_a_driver_said_of_its_failure_is_read_for_ever() -> None:
    assert exit_report.read_failure_at(golden().results, LAYOUT.data_of_number("delays", 1)) == FAILURE


def test_fault_39_how_a_checkpoint_was_forked_is_read_for_ever() -> None:
    assert read_lineage(golden().results, lineage_key(CHECKPOINTS, "1")) == CHECKPOINT


def test_fault_39_the_journal_of_a_shared_result_is_read_for_ever() -> None:
    shared = Journal(golden().journal, SHARED, writer="w2")
    assert shared.read_claim("airports", 1) == RECORDS["claim-shared"]
    assert list(shared.read_plans().values()) == [RECORDS["plan-retained"]]
    assert shared.open_claims() == (RECORDS["claim-shared"],)


# names

TOKEN = CommitToken("flights", RUN.run_key, "group", "delays ü", 3, "w1")
OUR_NAMES: dict[str, Any] = {
    "a name as a segment of a path": [encode(name) for name in ("a/b", "_x", "ü", "a" * 251)],
    "the key of a run": [
        run_key(logical_date="2026-01-01T00:00:00+00:00", partition_key=None, run_id="r"),
        run_key(logical_date=None, partition_key="eu", run_id="r"),
        run_key(logical_date=None, partition_key=None, run_id="manual__1"),
    ],
    "the content keys of splits": list(KEYS),
    "a view of a cached result": cached_view_name("s3://bucket/journal", RUN, "delays", 3, "delays"),
    "the token in a table that an operator writes": token_of(TABLE_KEY, 3, "w1"),
    "its property in Iceberg, and in Delta": [ICEBERG_TOKEN, DELTA_TOKEN],
    "the tag of an Iceberg snapshot": tag_of("s3://bucket/journal", TABLE_KEY, 3),
    "the lineage of a sink's token": TOKEN.lineage,
    "its application in Delta, the writer's, and the version of that": [
        TOKEN.lineage,
        delta._writers(TOKEN),
        delta._mark(TOKEN.attempt, "w1"),
    ],
    "its properties in Iceberg": [iceberg._LINEAGE, iceberg._ATTEMPT, iceberg._WRITER],
    "its table in PostgreSQL": postgres.TOKENS,
    "the name of a batch of subtasks, by which Airflow maps": [batch_label(["a"]), batch_label(["a", "b", "c"])],
    "the keys of a task's state in Airflow": [
        key_of(name, "tag") for name in ("spark_job_id", "spark_job_set", "spark_job_rests_on")
    ],
}
"""What Airflow, tables, databases, servers and cluster managers keep for us: found again by these names alone."""


def test_fault_39_what_others_keep_for_us_has_the_names_that_it_had() -> None:
    assert json.loads(NAMES.read_text(encoding="utf-8")) == OUR_NAMES


# nothing else is written

RUN_IN = "flights/date-2026-01-01T000000Z/group"
BESIDE_JOURNAL, BESIDE_RESULTS = "beside-v1/journal", "beside-v1/results"
WRITERS = {
    "attempt/adopted.py::_copied_xcoms": "what a task left in Airflow, copied for its new name, named by a record",
    "attempt/assignment_log.py::_put": "v1/assignment.json",
    "attempt/reconnect.py::_say_followed": "a sign that a driver is followed, overwritten: nothing rests on it",
    "doctor/stores.py::_try": "an object to try a right with, deleted at once",
    "driver/exit_report.py::write_failure_at": f"{BESIDE_RESULTS}/{RUN_IN}/delays/00000001/_failure.json",
    "driver/heartbeat.py::_give": f"{BESIDE_JOURNAL}/{RUN_IN}/h/delays/00000001",
    "driver/server_keeper.py::_tell_end": f"{BESIDE_JOURNAL}/_servers/{RUN_IN}/00000001.end",
    "journal/journal.py::_put": "v1/claim.json",
    "journal/null_journal.py::noticed": "v1/outcome.json",
    "journal/owner.py::_take": f"{BESIDE_JOURNAL}/_owner",
    "journal/record_cache.py::_write": f"{BESIDE_JOURNAL}/{RUN_IN}/snap/newest",
    "journal/recorded.py::_write_stream": "streams-v1/00000001",
    "journal/stream.py::_write": "streams-v1/00000001",
    "results/sweep_found.py::store_now_s": "an object to ask the store for its time with, deleted at once",
    "results/sweep_purge.py::_put_back": "v1/plan.json",
    "splits/log_store.py::_SplitLog": f"{BESIDE_JOURNAL}/_splits/{RUN_IN}/raw/log-00000000",
    "splits/log_store.py::_write_snapshot": f"{BESIDE_JOURNAL}/_splits/{RUN_IN}/raw/snapshot-00000005",
    "streaming/appending.py::ChannelLog": "channel-v1/00-ProducerOpened.json",
    "streaming/checkpoint.py::_mark": f"{BESIDE_RESULTS}/_channels/{RUN_IN}/_stages/table/1/lineage",
    "streaming/checkpoint.py::copy": "a file of Spark's own checkpoint, as it is",
    "streaming/producer.py::_write": "a segment of a channel: Arrow's own format, named by a record",
    "streaming/writing.py::_put": "a batch of rows: Arrow's own format, or Parquet, named by a record",
    "streaming/writing.py::empty_file": "Parquet without rows, named by a record",
    "task/drop_in.py::_keep_pushed": "a digest of what a task has pushed so far: 64 hexadecimal digits",
    "task/left_in_airflow.py::store_left": "what a task left in Airflow, named by its digest in a record",
    "task/left_in_airflow.py::store_pushed": "what a task has pushed so far, until its attempt ends",
    "task/run_spark.py::_start": f"{BESIDE_JOURNAL}/_servers/{RUN_IN}/00000001",
    "task/run_spark.py::end": f"{BESIDE_JOURNAL}/_servers/{RUN_IN}/00000002",
}
"""What in the package writes objects: a golden file of what it writes, or what else that is."""
STORES = ("store/", "testing/")
"""These are how objects are written, and not what."""


def writing(package: Path) -> set[str]:
    """What in ``package`` writes objects: files with the function, or with the class of a log."""
    found = set()
    for path in package.rglob("*.py"):
        file = path.relative_to(package).as_posix()
        if not file.startswith(STORES):
            found |= {f"{file}::{name}" for name in _writers_in(ast.parse(path.read_text(encoding="utf-8")), "")}
    return found


def _writers_in(node: ast.AST, inside: str) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        inside = node.name
    if _writes(node):
        yield inside
    for child in ast.iter_child_nodes(node):
        yield from _writers_in(child, inside)


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        return any("WriteOnceLog" in ast.unparse(base) for base in node.bases)
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Name):
        return function.id == "write_once"
    is_put = isinstance(function, ast.Attribute) and function.attr in ("put", "put_if_absent")
    return is_put and len(node.args) == 2  # a queue is put one thing


def without_golden_file(package: Path) -> list[str]:
    """What is wrong: functions that are not in the table, rows of functions that write nothing, missing files."""
    found = writing(package)
    unknown = [f"{name} writes objects: add golden files of them, and a row to WRITERS" for name in found - {*WRITERS}]
    gone = [f"{name} writes no objects any more" for name in {*WRITERS} - found]
    files = [row for row in WRITERS.values() if " " not in row]
    missing = [f"{file}: no such golden file" for file in files if not (GOLDEN / file).is_file()]
    return sorted(unknown + gone + missing)


def test_whatever_writes_objects_has_golden_files_of_them() -> None:
    assert without_golden_file(ROOT / "airflow_recovery") == []


def test_control_what_writes_an_object_that_no_golden_file_has_is_seen(tmp_path: Path) -> None:
    for number, line in enumerate(("store.put(key, b'')", "write_once(store, key, body)", "self.put_if_absent(a, b)")):
        (tmp_path / f"new_{number}.py").write_text(f"def write():\n    {line}\n")
    (tmp_path / "log.py").write_text("class Log(WriteOnceLog[int]):\n    pass\n")
    (tmp_path / "queue.py").write_text("results.put(1)\n")
    found = [line.split()[0] for line in without_golden_file(tmp_path) if "writes objects" in line]
    assert found == ["log.py::Log", "new_0.py::write", "new_1.py::write", "new_2.py::write"]
