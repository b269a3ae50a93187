"""What each error of a target's library means: refused for good, to be mended first, a conflict, or no answer.

The tables are generated from what is installed: Delta's table features, pyiceberg's classes, PostgreSQL's SQLSTATEs.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pydantic
import pyiceberg.exceptions
import pytest
import requests
import sqlalchemy.exc
from psycopg2 import errorcodes
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from staging import Resources, stage, token

from airflow_recovery.errors import ConfigurationError, RecoveryError, SinkRefused, SinkUnavailable, SinkUnreadable
from airflow_recovery.sinks import Committable, DeltaTable, IcebergTable, PostgresTable
from airflow_recovery.sinks import delta as module
from airflow_recovery.sinks.answers import Answer, of_delta, of_iceberg
from airflow_recovery.store.local import LocalStore

# Delta

FEATURES = """
    appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping identityColumns
    deletionVectors rowTracking timestampNtz domainMetadata v2Checkpoint icebergCompatV1 icebergCompatV2
    icebergCompatV3 icebergWriterCompatV1 clustering vacuumProtocolCheck inCommitTimestamp typeWidening
    typeWidening-preview variantType variantType-preview variantShredding variantShredding-preview catalogManaged
    catalogOwned-preview coordinatedCommits-preview allowColumnDefaults materializePartitionColumns collations
    collations-preview checkpointProtection madeUpByNobody
""".split()  # noqa: SIM905
"""The table features of Delta's protocol and of Databricks, and one that does not exist."""
OF_READERS = """
    columnMapping deletionVectors timestampNtz v2Checkpoint vacuumProtocolCheck typeWidening typeWidening-preview
    variantType variantType-preview variantShredding variantShredding-preview catalogManaged catalogOwned-preview
""".split()  # noqa: SIM905


class Lake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = LocalStore(str(folder / "results"))
        self.log = folder / "table" / "_delta_log"
        self.resources = Resources()

    def make(self, writers: list[str] | None, reader: int = 1, writer: int = 7) -> None:
        """An empty table, written by hand as Spark would have made it."""
        self.log.mkdir(parents=True)
        readers = [name for name in writers or () if name in OF_READERS]
        protocol: dict[str, Any] = {"minReaderVersion": 3 if readers else reader, "minWriterVersion": writer}
        if readers:
            protocol["readerFeatures"] = readers
        if writers is not None:
            protocol["writerFeatures"] = writers
        columns = [{"name": "carrier", "type": "string", "nullable": True, "metadata": {}}]
        metadata = {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": columns}),
            "partitionColumns": [],
            "configuration": {},
        }
        self.file(0).write_text("\n".join(map(json.dumps, ({"protocol": protocol}, {"metaData": metadata}))))

    def file(self, version: int) -> Path:
        return self.log / f"{version:020}.json"

    def committer(self, mode: str = "append") -> Any:
        return DeltaTable(uri=str(self.log.parent), mode=mode).open(self.resources)

    def committable(self, key: str = "1") -> Committable:
        return Committable(token(1, key), stage(self.store, key, {"carrier": ["AA"]}))

    @property
    def files(self) -> int:
        return len(list(self.log.parent.rglob("*.parquet")))


def before_and_at_the_commit(lake: Lake) -> list[str]:
    """What `others`, before anything runs, and then a commit say; "" if nothing is wrong."""

    def said(step: Callable[[], object]) -> str:
        try:
            step()
        except RecoveryError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    into = lake.committer()
    return [said(lambda: into.others(token())), said(lambda: into.commit(lake.committable()))]


def test_fault_330_each_table_feature_is_refused_by_name_before_anything_is_written_or_committed(
    tmp_path: Path,
) -> None:
    committed = []
    for name in FEATURES:
        lake = Lake(tmp_path / name)
        lake.make([name, "appendOnly"])
        before, at_commit = before_and_at_the_commit(lake)
        if not before:
            assert (at_commit, lake.files) == ("", 1), name
            committed.append(name)
            continue
        assert before.startswith(("SinkRefused", "SinkUnreadable")), before
        assert "catalogManaged" in before if name.startswith("catalog") else name in before
        assert "DROP FEATURE" in before
        assert at_commit.startswith(("SinkRefused", "SinkUnreadable")), at_commit
    assert {"rowTracking", "identityColumns", "clustering", "inCommitTimestamp", "icebergCompatV2"} & {
        *committed
    } == set()
    assert {"appendOnly", "columnMapping", "deletionVectors", "checkConstraints"} <= {*committed}


@pytest.mark.parametrize(
    ("reader", "writer", "said"), [(1, 2, ""), (2, 5, ""), (2, 6, "IdentityColumns"), (9, 2, "reader version 9")]
)
def test_fault_330_protocols_without_table_features(tmp_path: Path, reader: int, writer: int, said: str) -> None:
    lake = Lake(tmp_path)
    lake.make(None, reader, writer)
    for answer in before_and_at_the_commit(lake):
        assert (said in answer) if said else not answer
        assert not said or answer.startswith(("SinkRefused", "SinkUnreadable"))


@pytest.mark.control
def test_fault_330_control_taken_for_a_conflict_it_is_read_five_times_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.make(["rowTracking"])

    def before(error: Exception) -> tuple[Answer, str]:
        is_commit = isinstance(error, deltalake.exceptions.CommitFailedError)
        return (Answer.CONFLICT if is_commit else Answer.UNKNOWN), str(error)

    tries, write = [], module._DeltaCommitter._write

    def counting(*given: Any) -> Exception | None:
        tries.append(given)
        return write(*given)

    monkeypatch.setattr(module, "of_delta", before)
    monkeypatch.setattr(module._DeltaCommitter, "_write", counting)
    with pytest.raises(SinkUnavailable, match="RowTracking"):
        lake.committer().commit(lake.committable())
    assert len(tries) == module.ROUNDS


def text_in(version: int, text: bytes) -> Callable[[Lake], object]:
    return lambda lake: lake.file(version).write_bytes(text)


def without(kind: str) -> Callable[[Lake], object]:
    def change(lake: Lake) -> None:
        lines = lake.file(0).read_text().splitlines()
        lake.file(0).write_text("\n".join(line for line in lines if kind not in line))

    return change


DAMAGES: dict[str, Callable[[Lake], object]] = {
    "a version is missing": lambda lake: lake.file(1).unlink(),
    "the first version is missing": lambda lake: lake.file(0).unlink(),
    "a web page": text_in(1, b"<html>no</html>"),
    "bytes": text_in(1, b"\xff\xfe\x00"),
    "cut short": lambda lake: lake.file(1).write_bytes(lake.file(1).read_bytes()[:-40]),
    "the newest is cut short": lambda lake: lake.file(2).write_bytes(lake.file(2).read_bytes()[:-40]),
    "no protocol": without("protocol"),
    "no metadata": without("metaData"),
    "no such type": lambda lake: lake.file(0).write_text(lake.file(0).read_text().replace("string", "strong")),
    "a checkpoint is missing": lambda lake: (lake.log / "_last_checkpoint").write_text('{"version":9,"size":3}'),
    "a checkpoint is no file of Parquet": lambda lake: (
        (lake.log / "_last_checkpoint").write_text('{"version":1,"size":3}'),
        (lake.log / f"{1:020}.checkpoint.parquet").write_bytes(b"nope"),
    ),
    "a version after a gap": lambda lake: lake.file(5).write_bytes(lake.file(2).read_bytes()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_fault_331_a_damaged_log_is_not_tried_again(tmp_path: Path, damage: str) -> None:
    lake = Lake(tmp_path)
    lake.make(None, 1, 2)
    for key in ("1", "2"):
        lake.committer().commit(lake.committable(key))
    DAMAGES[damage](lake)
    given = lake.committable("3")
    for ask in (lambda: lake.committer().probe(given.token), lambda: lake.committer().commit(given)):
        with pytest.raises(SinkUnreadable, match=r"log is damaged.*Bring it back"):
            ask()


@pytest.fixture
def answering() -> Iterator[tuple[str, list[Any]]]:
    """A server that answers every request with one error of S3."""
    answer: list[Any] = [403, "AccessDenied"]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"<Error><Code>{answer[1]}</Code><Message>said so</Message></Error>".encode()
            self.send_response(answer[0])
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answer
    server.shutdown()
    server.server_close()
    thread.join()


FROM_S3 = {
    (403, "AccessDenied"): SinkUnreadable,
    (403, "InvalidAccessKeyId"): SinkUnreadable,
    (403, "SignatureDoesNotMatch"): SinkUnreadable,
    (403, "RequestTimeTooSkewed"): SinkUnreadable,
    (404, "NoSuchBucket"): SinkUnreadable,
    (301, "PermanentRedirect"): SinkUnavailable,
    (400, "ExpiredToken"): SinkUnavailable,
    (400, "KMS.DisabledException"): SinkUnavailable,
    (503, "SlowDown"): SinkUnavailable,
    (500, "InternalError"): SinkUnavailable,
}


def test_fault_331_what_s3_says_through_delta_rs(tmp_path: Path, answering: tuple[str, list[Any]]) -> None:
    address, answer = answering
    options = {"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "a"}
    options |= {"AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1", "max_retries": "0", "retry_timeout": "1s"}
    lake = Lake(tmp_path)
    lake.resources.storage_options = lambda location: options
    found = {}
    for given in FROM_S3:
        answer[:] = given
        with pytest.raises((SinkUnavailable, SinkUnreadable)) as error:
            DeltaTable(uri="s3://b/t").open(lake.resources).probe(token())
        found[given] = type(error.value)
    assert found == FROM_S3


def test_a_broken_transfer_inside_an_error_of_the_log_is_no_damage() -> None:
    text = "Kernel error: Arrow error: External: Generic S3 error: error sending request for url"
    assert of_delta(deltalake.exceptions.DeltaError(text))[0] is Answer.UNKNOWN


# Iceberg

OF_PYICEBERG = {
    Answer.CONFLICT: "CommitFailedException",
    Answer.REFUSED: "BadRequestError NoSuchIcebergTableError NoSuchNamespaceError NoSuchTableError ResolveError",
    Answer.UNREADABLE: """
        ForbiddenError NoSuchPropertyException NotInstalledError OAuthError UnauthorizedError ValidationError""",
    Answer.UNKNOWN: """
        AuthorizationExpiredError CommitStateUnknownException ConditionalCheckFailedException DynamoDbError
        GenericDynamoDbError NamespaceAlreadyExistsError NamespaceNotEmptyError NoSuchIdentifierError
        NoSuchPlanTaskError NoSuchViewError RESTError ServerError ServiceUnavailableError SignError
        TableAlreadyExistsError TooManyRequestsError ValidationException ViewAlreadyExistsError
        WaitingForLockException""",
}


def test_fault_332_every_error_of_pyiceberg_has_an_answer() -> None:
    classes = [one for _, one in inspect.getmembers(pyiceberg.exceptions, inspect.isclass)]
    found: dict[Answer, set[str]] = {answer: set() for answer in Answer}
    for one in classes:
        assert issubclass(one, Exception)
        found[of_iceberg(one("why"))[0]].add(one.__name__)
    assert found == {answer: set(names.split()) for answer, names in OF_PYICEBERG.items()}


class PageError(pydantic.BaseModel):
    n: int


def of_pydantic() -> Exception:
    with pytest.raises(pydantic.ValidationError) as error:
        PageError.model_validate_json("<html>")
    return error.value


OTHERS: list[tuple[Exception, Answer]] = [
    (requests.exceptions.JSONDecodeError("no JSON", "<html>", 0), Answer.UNKNOWN),
    (ValueError("Did not receive a response"), Answer.UNKNOWN),
    (of_pydantic(), Answer.UNKNOWN),
    (requests.exceptions.ConnectionError("reset"), Answer.UNKNOWN),
    (requests.exceptions.ReadTimeout("late"), Answer.UNKNOWN),
    (requests.exceptions.MissingSchema("no scheme"), Answer.REFUSED),
    (ValueError("Mismatch in fields"), Answer.REFUSED),
    (TypeError("Unsupported type"), Answer.REFUSED),
    (NotImplementedError("Writing V3 is not yet supported"), Answer.REFUSED),
    (ModuleNotFoundError("No module named 'thrift'"), Answer.UNREADABLE),
    (FileNotFoundError("Cannot open file, does not exist"), Answer.UNREADABLE),
    (PermissionError("Cannot open file, access denied"), Answer.UNREADABLE),
    (OSError("When reading: AWS Error ACCESS_DENIED during HeadObject"), Answer.UNREADABLE),
    (OSError("When reading: AWS Error NETWORK_CONNECTION during HeadObject"), Answer.UNKNOWN),
    (sqlalchemy.exc.OperationalError("s", {}, Exception("database is locked")), Answer.UNKNOWN),
    (sqlalchemy.exc.OperationalError("s", {}, Exception("no such table: iceberg_tables")), Answer.UNREADABLE),
    (sqlalchemy.exc.ProgrammingError("s", {}, Exception("permission denied for table")), Answer.UNREADABLE),
    (sqlalchemy.exc.NoSuchModuleError("sqlalchemy.dialects:nothing"), Answer.UNREADABLE),
]


@pytest.mark.parametrize(("error", "answer"), OTHERS, ids=lambda one: type(one).__name__)
def test_fault_332_what_comes_from_below_pyiceberg(error: Exception, answer: Answer) -> None:
    assert of_iceberg(error)[0] is answer


class Icebergs:
    """A table in an SQL catalog, and what a deployment lends to its sink."""

    def __init__(self, folder: Path, columns: Any, **properties: str) -> None:
        self.folder = folder
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
        self.store = LocalStore(str(folder / "results"))
        self.catalog = load_catalog("lake", **self.properties)
        self.catalog.create_namespace("db")
        self.catalog.create_table("db.t", columns, properties=properties)

    def catalog_properties(self, name: str) -> dict[str, str]:
        return self.properties

    def open_location(self, location: str) -> Any:
        return self.store

    def committer(self) -> Any:
        return IcebergTable(uri="iceberg://lake/db.t").open(self)  # type: ignore[arg-type]

    def committable(self, rows: pa.Table) -> Committable:
        return Committable(token(), stage(self.store, "1", rows))


ROWS = pa.table({"n": pa.array([1, 2], "i8")})


def test_fault_332_a_reply_that_can_not_be_read_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a proxy: the commit is done, and the page that comes back is no JSON."""
    lake = Icebergs(tmp_path, ROWS.schema)
    whole = Table._do_commit

    def commit(table: Table, *given: Any, **named: Any) -> None:
        whole(table, *given, **named)
        raise requests.exceptions.JSONDecodeError("Expecting value", "<html>", 0)

    monkeypatch.setattr(Table, "_do_commit", commit)
    with pytest.raises(SinkUnavailable, match="the next try finds by the token"):
        lake.committer().commit(lake.committable(ROWS))
    assert "applied before" in lake.committer().commit(lake.committable(ROWS))


def test_fault_332_a_required_column_names_the_cure(tmp_path: Path) -> None:
    lake = Icebergs(tmp_path, Schema(NestedField(1, "n", LongType(), required=True)))
    with pytest.raises(SinkRefused, match=r"coalesce.*DROP NOT NULL"):
        lake.committer().commit(lake.committable(ROWS))
    kept = ROWS.cast(pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    assert "snapshot" in lake.committer().commit(lake.committable(kept))


def test_fault_332_what_pyiceberg_can_not_do_or_find_is_not_tried_again(tmp_path: Path) -> None:
    lake = Icebergs(tmp_path, ROWS.schema)
    lake.committer().commit(lake.committable(ROWS))
    [metadata] = [Path(lake.catalog.load_table("db.t").metadata_location.removeprefix("file://"))]
    whole = metadata.read_text()
    for text, said in {
        whole.replace('"format-version":2', '"format-version":9'): "metadata is damaged",
        whole.replace('"current-schema-id":0', '"current-schema-id":7'): "metadata is damaged",
    }.items():
        assert text != whole
        metadata.write_text(text)
        with pytest.raises(SinkUnreadable, match=said):
            lake.committer().probe(token())
    metadata.unlink()
    with pytest.raises(SinkUnreadable, match=r"metadata is damaged: FileNotFoundError.*Bring it back"):
        lake.committer().probe(token())
    lake.properties["type"] = "nothing"
    with pytest.raises(SinkUnreadable):
        lake.committer().probe(token())


@pytest.mark.control
def test_fault_332_control_a_value_error_taken_for_a_refusal_says_that_nothing_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.sinks.answers._is_reply", lambda error: False)
    lake, whole = Icebergs(tmp_path, ROWS.schema), Table._do_commit

    def commit(table: Table, *given: Any, **named: Any) -> None:
        whole(table, *given, **named)
        raise requests.exceptions.JSONDecodeError("Expecting value", "<html>", 0)

    monkeypatch.setattr(Table, "_do_commit", commit)
    with pytest.raises(SinkRefused, match="Nothing was committed"):
        lake.committer().commit(lake.committable(ROWS))
    assert lake.catalog.load_table("db.t").scan().to_arrow().num_rows == 2


# PostgreSQL

FINAL = """
    09 0A 0L 0P 10 20 21 22 23 27 28 2B 2D 2F 34 38 39 3D 3F 42 44 54 P0 55000 55P02 55P04 XX001 XX002
""".split()  # noqa: SIM905
AGAIN = """
    01 02 03 08 0B 0F 0Z 24 25 26 3B 40 53 55006 55P03 57 58 72 F0 HV XX000
""".split()  # noqa: SIM905


@pytest.mark.slow
def test_fault_333_every_class_of_sqlstates_has_an_answer(warehouse: Any) -> None:
    """One state of each class, and each state of a class that has both, as a trigger raises it."""
    states = [value for name, value in vars(errorcodes).items() if isinstance(value, str) and len(value) == 5]
    classes = {value for name, value in vars(errorcodes).items() if name.startswith("CLASS_")} - {"00"}
    assert classes == {given[:2] for given in (*FINAL, *AGAIN)}
    both = {"55", "XX"}
    chosen = {min(state for state in states if state.startswith(one)) for one in classes - both}
    chosen |= {state for state in states if state[:2] in both}
    assert {state for state in chosen if not state.startswith((*FINAL, *AGAIN))} == set()
    warehouse.ask(
        f"CREATE TABLE {warehouse.schema}.chosen (state text); INSERT INTO {warehouse.schema}.chosen VALUES ('P0001');"
        f"CREATE FUNCTION {warehouse.schema}.raises() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE given text; BEGIN "
        f"SELECT state INTO given FROM {warehouse.schema}.chosen; RAISE EXCEPTION 'no more' USING ERRCODE = given; "
        f"END $$; CREATE TRIGGER raises BEFORE INSERT ON {warehouse.table} FOR EACH ROW "
        f"EXECUTE FUNCTION {warehouse.schema}.raises()"
    )
    given, into = warehouse.committable(), PostgresTable(conn_id="w", table=warehouse.table).open(warehouse.resources)
    for state in sorted(chosen):
        warehouse.ask(f"UPDATE {warehouse.schema}.chosen SET state = %s", state)
        kind = SinkRefused if state.startswith(tuple(FINAL)) else SinkUnavailable
        with pytest.raises(kind, match=f"SQLSTATE {state}"):
            into.commit(given)
    assert warehouse.rows() == []


def test_fault_333_what_libpq_says_without_a_sqlstate(warehouse: Any) -> None:
    def answer(**changed: str | int) -> type[Exception]:
        resources = Resources({**warehouse.address, **changed})
        with pytest.raises((SinkRefused, SinkUnavailable)) as error:
            PostgresTable(conn_id="w", table=warehouse.table).open(resources).probe(token())
        return type(error.value)

    assert answer(port=1) is SinkUnavailable
    assert answer(host="no.such.host.invalid") is SinkUnavailable
    assert answer(dbname="nothing_here") is SinkRefused
    assert answer(user="nobody_here") is SinkRefused


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, sink in {
        "deltalake": DeltaTable(uri="/tmp/t"),
        "pyiceberg": IcebergTable(uri="iceberg://lake/db.t"),
        "psycopg2": PostgresTable(conn_id="c", table="t"),
    }.items():
        monkeypatch.setitem(__import__("sys").modules, name, None)
        with pytest.raises(ConfigurationError, match="install airflow-recovery"):
            sink.open(Resources())
