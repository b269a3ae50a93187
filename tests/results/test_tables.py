"""Which snapshot of a real table counts: tables that pyiceberg and delta-rs have written and changed.

Catalogs are pyiceberg's own on SQLite and PostgreSQL, and, in the drill, Iceberg's own behind REST.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from expected_errors import fails_with
from iceberg_rest import IcebergRest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from airflow_recovery.errors import StoreUnavailable
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.results import tables as tables_module
from airflow_recovery.results.table_line import attempt_in
from airflow_recovery.results.tables import DELTA_TOKEN, ICEBERG_TOKEN, Tables, check_names, tag_of, token_of
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server

ROWS = pa.table({"n": pa.array([1, 2], "i8")})
JOURNAL = "memory://journal"
KEY = RegionKey("d", "r", "g", "make")
MINE, OTHER = token_of(KEY, 1, "w"), token_of(KEY, 2, "w")
URI = "iceberg://lake/db.flights"


class Lake:
    """A catalog with the table ``db.flights``, as others than we see it, and what we ask it through."""

    def __init__(self, **properties: str) -> None:
        self.properties = {"type": "sql", **properties}
        self.catalog = load_catalog("lake", **self.properties)
        self.catalog.create_namespace("db")
        self.catalog.create_table("db.flights", ROWS.schema)
        self.tables = Tables(lambda name: self.properties if name == "lake" else {}, lambda uri: {}, open_store)

    @property
    def table(self) -> Table:
        return self.catalog.load_table("db.flights")

    def commit(self, token: str | None = None, branch: str = "main") -> str:
        given = {} if token is None else {ICEBERG_TOKEN: token}
        self.table.append(ROWS, snapshot_properties=given, branch=branch)
        found = self.table.metadata.snapshot_by_name(branch)
        assert found is not None
        return str(found.snapshot_id)

    def made(self, token: str = MINE, uri: str = URI) -> PartitionManifest:
        found = self.tables.committed("make.out", uri, token)
        assert found is not None
        return found

    def lost(self, manifest: PartitionManifest) -> str | None:
        lost = self.tables.why_lost(manifest)
        return None if lost is None else lost.text


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with IcebergRest(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres", pytest.param("rest", marks=pytest.mark.drill)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    if request.param == "postgres":
        address = request.getfixturevalue("postgres")
        uri = "postgresql+psycopg2://{user}:{password}@{host}:{port}/{dbname}".format(**address)
    properties = {"uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}
    if request.param == "rest":
        properties = request.getfixturevalue("rest").properties
    catalog = Lake(**properties)
    yield catalog
    catalog.catalog.drop_table("db.flights")
    catalog.catalog.drop_namespace("db")


# --- what is written as a location ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        (URI, TableLocation("lake", "db.flights")),
        ("iceberg://lake/a.b.t?branch=main", TableLocation("lake", "a.b.t")),
        ("iceberg://lake/a.t?branch=audit&as_of=nightly", TableLocation("lake", "a.t", "audit", "nightly")),
        ("delta+s3://lake/t?as_of=5", TableLocation("", "s3://lake/t", "", "5")),
        ("delta+/lake/t/", TableLocation("", "/lake/t")),
    ],
)
def test_a_location_is_read(uri: str, found: TableLocation) -> None:
    assert TableLocation.parse(uri) == found
    assert TableLocation.parse(found.uri).uri == found.uri


@pytest.mark.parametrize(
    "uri", ["iceberg://lake/t", "iceberg://db.t", "iceberg://l/d.t?snapshot=1", "iceberg://l/d.t?as_of=", "delta+",
            "delta+s3://b/t?as_of=nightly", "delta+s3://b/t?branch=x", "s3://b/t"],
)  # fmt: skip
def test_what_is_no_location_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"expected .* found"):
        TableLocation.parse(uri)


# --- Iceberg ----------------------------------------------------------------------------------------------------------


def test_an_attempts_snapshot_is_found_by_its_token_alone(lake: Lake) -> None:
    lake.commit()
    mine = lake.commit(MINE)
    lake.commit(OTHER)
    [registered] = lake.made().objects
    assert (registered.path, registered.etag) == (mine, str(lake.table.metadata.table_uuid))
    assert registered.size > 0
    assert lake.tables.committed("make.out", URI, token_of(KEY, 1, "another journal")) is None
    assert lake.tables.committed("make.out", "iceberg://lake/db.nothing", MINE) is None


def test_of_several_commits_of_one_attempt_the_newest_is_the_result(lake: Lake) -> None:
    lake.commit(MINE)
    lake.table.overwrite(ROWS, snapshot_properties={ICEBERG_TOKEN: MINE})  # pyiceberg deletes, then appends
    assert lake.made().objects[0].path == str(lake.table.metadata.current_snapshot_id)


def test_fault_173_a_zombie_that_commits_late_changes_nothing_of_what_was_registered(lake: Lake) -> None:
    lake.commit(OTHER)
    registered = lake.made(OTHER)
    lake.commit(MINE)
    assert lake.lost(registered) is None
    assert lake.made(OTHER) == registered


def test_a_snapshot_below_newer_ones_is_there(lake: Lake) -> None:
    lake.commit(MINE)
    registered = lake.made()
    lake.commit()
    assert lake.lost(registered) is None


def test_fault_171_a_snapshot_that_has_expired_is_lost_by_that_word(lake: Lake) -> None:
    lake.commit(MINE)
    registered = lake.made()
    lake.commit()
    lake.table.maintenance.expire_snapshots().by_id(int(registered.objects[0].path)).commit()
    assert "has expired" in str(lake.lost(registered))


def test_fault_170_174_what_was_rolled_back_or_forced_elsewhere_is_lost_by_that_word(lake: Lake) -> None:
    before = lake.commit()
    lake.commit(MINE)
    registered = lake.made()
    lake.table.manage_snapshots().rollback_to_snapshot(int(before)).commit()
    assert "was rolled back: branch 'main' is at its ancestor" in str(lake.lost(registered))
    lake.commit()  # on top of what was rolled back to: it is not its ancestor any more
    lost = lake.tables.why_lost(registered)
    assert lost is not None
    assert "force-moved" in lost.text
    assert lost.is_moved


def test_fault_171_our_own_tag_saves_from_expiry_and_what_was_expired_above_it_is_no_rollback(lake: Lake) -> None:
    lake.commit()
    lake.commit(MINE)
    registered = lake.made()
    assert lake.tables.keep(registered, tag_of(JOURNAL, KEY, 1))
    for _ in range(2):
        lake.commit()
    lake.table.maintenance.expire_snapshots().by_id(int(lake.table.snapshots()[-2].snapshot_id)).commit()
    assert lake.lost(registered) is None, "what lies between has expired"
    with pytest.raises(ValueError, match="protected"):
        lake.table.maintenance.expire_snapshots().by_id(int(registered.objects[0].path)).commit()


def test_rolled_back_under_our_tag_is_lost_and_under_a_users_tag_it_is_there(lake: Lake) -> None:
    before = lake.commit()
    lake.commit(MINE)
    registered = lake.made()
    lake.tables.keep(registered, tag_of(JOURNAL, KEY, 1))
    lake.table.manage_snapshots().rollback_to_snapshot(int(before)).commit()
    assert "rolled back" in str(lake.lost(registered))
    lake.table.manage_snapshots().create_tag(int(registered.objects[0].path), "nightly").commit()
    assert lake.lost(registered) is None


def test_a_table_that_was_dropped_or_made_anew_is_lost(lake: Lake) -> None:
    lake.commit(MINE)
    registered = lake.made()
    lake.catalog.drop_table("db.flights")
    assert "is gone" in str(lake.lost(registered))
    lake.catalog.create_table("db.flights", ROWS.schema)
    assert "was dropped and made anew" in str(lake.lost(registered))


def test_a_branch_of_its_own_is_followed_and_missed(lake: Lake) -> None:
    first = lake.commit()
    lake.table.manage_snapshots().create_branch(int(first), "audit").commit()
    lake.commit(MINE, "audit")
    assert lake.tables.committed("make.out", URI, MINE) is None, "it is not on main"
    registered = lake.made(uri=f"{URI}?branch=audit")
    assert lake.lost(registered) is None
    lake.table.manage_snapshots().remove_branch("audit").commit()
    assert "branch 'audit' is gone" in str(lake.lost(registered))


def test_release_takes_our_tag_and_no_snapshot_no_branch_and_no_tag_of_a_user(lake: Lake) -> None:
    lake.commit(MINE)
    registered = lake.made()
    lake.tables.keep(registered, tag_of(JOURNAL, KEY, 1))
    lake.table.manage_snapshots().create_tag(int(registered.objects[0].path), "nightly").commit()
    before = [one.snapshot_id for one in lake.table.snapshots()]
    for name in ("nightly", "main", tag_of(JOURNAL, KEY, 2)):
        assert not lake.tables.let_go(URI, name)
    assert lake.tables.let_go(URI, tag_of(JOURNAL, KEY, 1))
    assert not lake.tables.let_go(URI, tag_of(JOURNAL, KEY, 1)), "a second time there is nothing to take"
    assert set(lake.table.metadata.refs) == {"main", "nightly"}
    assert [one.snapshot_id for one in lake.table.snapshots()] == before
    assert lake.table.scan().to_arrow().num_rows == len(ROWS)


def test_a_tag_is_set_over_a_commit_that_came_between(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.commit(MINE)
    registered = lake.made()
    opened: list[Any] = []
    whole = Tables.open

    def slow(tables: Tables, uri: str) -> Any:
        opened.append(whole(tables, uri))
        if len(opened) == 1:
            lake.commit()
        return opened[-1]

    monkeypatch.setattr(Tables, "open", slow)
    assert lake.tables.keep(registered, tag_of(JOURNAL, KEY, 1))
    assert tag_of(JOURNAL, KEY, 1) in lake.table.metadata.refs


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_an_input_is_the_newest_snapshot_or_the_one_that_is_named(lake: Lake) -> None:
    first = lake.commit()
    lake.table.manage_snapshots().create_tag(int(first), "nightly").commit()
    seen = lake.tables.external(URI, "rows")
    second = lake.commit()
    newer = lake.tables.external(URI, "rows")
    assert (seen.etag.rpartition("@")[2], newer.etag.rpartition("@")[2]) == (first, second)
    assert seen.uri == newer.uri == URI
    for as_of in (first, "nightly"):
        assert lake.tables.external(f"{URI}?as_of={as_of}", "rows") == seen


def test_an_input_that_is_not_there_says_what_is_missing(lake: Lake) -> None:
    with fails_with("snapshot-missing", found="any: nothing was committed"):
        lake.tables.external(URI, "rows")
    lake.commit()
    for as_of in ("123", "nightly"):
        with fails_with("snapshot-missing"):
            lake.tables.external(f"{URI}?as_of={as_of}", "rows")
    with fails_with("table-missing"):
        lake.tables.external("iceberg://lake/db.none", "rows")


def test_a_catalog_that_is_not_configured_and_one_that_is_down_are_told_apart(tmp_path: Path) -> None:
    tables = Tables(lambda name: {} if name == "none" else {"uri": "http://127.0.0.1:9/"}, lambda uri: {}, open_store)
    with fails_with("catalog-unknown", catalog="none"):
        tables.open("iceberg://none/db.t")
    with fails_with("table-no-answer"):
        tables.open("iceberg://down/db.t")


def test_one_table_under_two_names_is_refused() -> None:
    same = [("iceberg://a/db.t", "1"), ("iceberg://a/db.t?branch=x", "1"), ("delta+/x", "2"), ("delta+/y", "2")]
    check_names(same, RunState())
    with fails_with("table-of-two-names"):
        check_names([*same, ("iceberg://b/db.t", "1")], RunState())


# --- Delta ------------------------------------------------------------------------------------------------------------


class DeltaFolder:
    """A Delta table, as others than we see it."""

    def __init__(self, uri: str, options: dict[str, str], open_location: Callable[[str], Any]) -> None:
        self.uri = uri
        self.options = options
        self.tables = Tables(lambda name: {}, lambda location: options, open_location)

    @property
    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.uri, storage_options=self.options or None)

    def commit(self, token: str | None = None, mode: Any = "overwrite", key: str = DELTA_TOKEN) -> int:
        properties = deltalake.CommitProperties(custom_metadata={} if token is None else {key: token})
        deltalake.write_deltalake(
            self.uri, ROWS, mode=mode, commit_properties=properties, storage_options=self.options or None
        )
        return self.table.version()

    def made(self, token: str = MINE) -> PartitionManifest:
        found = self.tables.committed("make.out", f"delta+{self.uri}", token)
        assert found is not None
        return found

    def lost(self, manifest: PartitionManifest) -> str | None:
        lost = self.tables.why_lost(manifest)
        return None if lost is None else lost.text


def delta_options(server: S3Server) -> dict[str, str]:
    variables = server.environment() | {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": server.endpoint_url}
    return {name: value for name, value in variables.items() if name.startswith("AWS_")}


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaFolder:
    if request.param == "folder":
        return DeltaFolder(f"{tmp_path}/t", {}, open_store)
    server: S3Server = request.getfixturevalue("one_s3_server")
    server.create_bucket("tables")
    store = S3Store(f"s3://tables/{tmp_path.name}", endpoint_url=server.endpoint_url, session=server.session())
    return DeltaFolder(f"{store.base_uri}/t", delta_options(server), store.sibling)


def test_a_version_is_found_by_its_token(folder: DeltaFolder) -> None:
    folder.commit()
    mine = folder.commit(MINE)
    folder.commit(f"of a user {OTHER}", key="userMetadata")
    assert folder.made().objects[0].path == str(mine)
    assert folder.made(OTHER).objects[0].path == str(mine + 1)
    assert folder.tables.committed("make.out", f"delta+{folder.uri}", token_of(KEY, 3, "w")) is None
    assert folder.lost(folder.made()) is None


def test_a_version_that_was_restored_over_is_rolled_back(folder: DeltaFolder) -> None:
    folder.commit()
    mine = folder.commit(MINE)
    registered = folder.made()
    folder.commit()
    folder.table.restore(mine)
    assert folder.lost(registered) is None, "what was restored has it"
    folder.table.restore(0)
    assert "was rolled back: version 4 restored an older one" in str(folder.lost(registered))


def test_a_version_whose_files_were_vacuumed_has_expired(folder: DeltaFolder) -> None:
    folder.commit(MINE)
    registered = folder.made()
    folder.commit()
    assert folder.lost(registered) is None
    folder.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert "has expired: " in str(folder.lost(registered))
    assert "was vacuumed, one of 1 of its files" in str(folder.lost(registered))


def test_files_in_folders_of_odd_values_are_there_until_they_are_vacuumed(folder: DeltaFolder) -> None:
    """The log has their names encoded, once more than they are."""
    values = ["a b", "a/b", "50%", "%2F", "\u00fc", "a=b", "q'q", "", None]
    odd = pa.table({"p": values, "n": pa.array(range(len(values)), "i8")})
    properties = deltalake.CommitProperties(custom_metadata={DELTA_TOKEN: MINE})
    deltalake.write_deltalake(
        folder.uri, odd, partition_by=["p"], commit_properties=properties, storage_options=folder.options or None
    )
    registered = folder.made()
    deltalake.write_deltalake(folder.uri, odd.slice(1), mode="overwrite", storage_options=folder.options or None)
    assert folder.lost(registered) is None
    folder.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert f"was vacuumed, one of {len(values)} of its files" in str(folder.lost(registered))


@pytest.mark.parametrize("name", ["a b", "what?x", "c#", "50%", "\u00fc"])
def test_a_table_of_delta_is_looked_for_in_the_folder_that_is_named(tmp_path: Path, name: str) -> None:
    folder = DeltaFolder(f"{tmp_path}/{name}", {}, open_store)
    folder.commit()
    for uri in (folder.uri, f"file://{folder.uri}"):
        assert folder.tables.delta_loader(uri)(None).version() == 0


def test_a_version_that_only_appended_needs_files_that_are_there(folder: DeltaFolder) -> None:
    folder.commit(MINE, "append")
    registered = folder.made()
    folder.commit(mode="append")
    folder.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert folder.lost(registered) is None


def test_a_version_whose_log_was_cleaned_up_has_expired(tmp_path: Path) -> None:
    folder = DeltaFolder(f"{tmp_path}/t", {}, open_store)
    folder.commit(MINE, "append")
    registered = folder.made()
    folder.commit(mode="append")
    folder.table.create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").unlink()
    assert "has expired: the table's log does not have it any more" in str(folder.lost(registered))


def test_a_log_that_has_the_version_and_can_not_be_read_says_nothing_about_it(tmp_path: Path) -> None:
    folder = DeltaFolder(f"{tmp_path}/t", {}, open_store)
    folder.commit(MINE, "append")
    registered = folder.made()
    folder.commit(mode="append")
    folder.table.create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(StoreUnavailable):
        folder.tables.why_lost(registered)


def test_a_delta_table_that_falls_silent_once_it_is_open_gives_no_answer(
    folder: DeltaFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.commit(MINE)
    registered = folder.made()
    folder.commit()

    def silent(*given: object) -> None:
        raise OSError("Generic S3 error: connection reset")  # as delta-rs says it

    monkeypatch.setattr(deltalake.DeltaTable, "history", silent)
    for ask in (lambda: folder.tables.why_lost(registered), folder.made):
        with fails_with("table-no-answer"):
            ask()


def test_a_delta_table_that_is_gone_or_shorter_or_another_is_lost(tmp_path: Path) -> None:
    folder = DeltaFolder(f"{tmp_path}/t", {}, open_store)
    folder.commit()
    folder.commit(MINE)
    registered = folder.made()
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    assert "was rolled back: its newest version is 0" in str(folder.lost(registered))
    (tmp_path / "t").rename(tmp_path / "away")
    assert "is gone" in str(folder.lost(registered))
    folder.commit()
    assert "was dropped and made anew" in str(folder.lost(registered))


def test_a_delta_table_has_no_tags_and_an_input_is_a_version(folder: DeltaFolder) -> None:
    folder.commit(MINE)
    folder.commit()
    assert not folder.tables.keep(folder.made(), tag_of(JOURNAL, KEY, 1))
    assert not folder.tables.let_go(f"delta+{folder.uri}", tag_of(JOURNAL, KEY, 1))
    newest = folder.tables.external(f"delta+{folder.uri}", "rows")
    older = folder.tables.external(f"delta+{folder.uri}?as_of=0", "rows")
    assert (newest.etag.rpartition("@")[2], older.etag.rpartition("@")[2]) == ("1", "0")
    with fails_with("snapshot-missing"):
        folder.tables.external(f"delta+{folder.uri}?as_of=7", "rows")


class CommittedMeanwhile:
    """The first look at the log of a table comes after a commit of somebody else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], object]) -> None:
        history, waiting = deltalake.DeltaTable.history, [commit]

        def late(table: deltalake.DeltaTable, limit: int | None = None) -> Any:
            if waiting:
                waiting.pop()()
            return history(table, limit)

        monkeypatch.setattr(deltalake.DeltaTable, "history", late)


def test_fault_233_a_commit_between_the_table_and_its_log_takes_no_other_ones_number(
    folder: DeltaFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.commit()
    mine = folder.commit(MINE)
    CommittedMeanwhile(monkeypatch, folder.commit)
    assert folder.made().objects[0].path == str(mine)


def test_fault_233_nor_does_it_hide_a_restore(folder: DeltaFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.commit()
    folder.commit(MINE)
    mine = folder.made()
    folder.commit()
    folder.table.restore(0)
    CommittedMeanwhile(monkeypatch, lambda: (folder.commit(), folder.commit()))
    assert "restored an older one" in (folder.lost(mine) or "")


@pytest.mark.control
def test_fault_233_control_counted_from_the_version_that_was_loaded_it_does(
    folder: DeltaFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.commit()
    mine = folder.commit(MINE)
    CommittedMeanwhile(monkeypatch, folder.commit)
    monkeypatch.setattr(tables_module._Delta, "_history", lambda table, limit: table._table.history(limit))
    assert folder.made().objects[0].path != str(mine)


# --- a table that its region writes as well ---------------------------------------------------------------------------


def test_the_line_leaves_out_what_a_restore_has_undone(folder: DeltaFolder) -> None:
    for token in (None, MINE, None):
        folder.commit(token)
    folder.table.restore(1)
    own = folder.tables.before_own(f"delta+{folder.uri}", "rows", KEY)[1]
    assert (own.base, own.others, own.line.undone) == ("0", (), {"2"})
    folder.table.restore(0)
    external, own = folder.tables.before_own(f"delta+{folder.uri}", "rows", KEY)
    assert (own.base, own.own, external.etag.rpartition("@")[2]) == ("4", (), "4")
    assert not own.line.may_have_forgotten("1")


def test_a_restore_to_a_time_is_a_commit_of_others(folder: DeltaFolder) -> None:
    folder.commit()
    folder.commit(MINE)
    moment = datetime.fromtimestamp(folder.table.history(1)[0]["timestamp"] / 1000, timezone.utc)
    while datetime.now(timezone.utc).replace(microsecond=0) <= moment:
        pass  # a store tells the time of an object in whole seconds
    folder.commit()
    folder.table.restore(moment)
    own = folder.tables.before_own(f"delta+{folder.uri}", "rows", KEY)[1]
    assert (own.base, own.others) == ("0", ("3", "2"))


def test_of_an_iceberg_table_the_same(lake: Lake) -> None:
    before, mine, other = lake.commit(), lake.commit(MINE), lake.commit()
    own = lake.tables.before_own(URI, "rows", KEY)[1]
    assert (own.base, own.others, [commit.version for commit in own.own]) == (before, (other,), [mine])
    lake.table.manage_snapshots().rollback_to_snapshot(int(before)).commit()
    own = lake.tables.before_own(URI, "rows", KEY)[1]
    assert (own.base, own.own, own.line.undone) == (before, (), {mine, other})


def test_commits_of_other_regions_dates_and_dags_are_those_of_others() -> None:
    for path in ("d/r/g/make2", "d/r2/g/make", "d2/r/g/make", "d/r/g2/make"):
        assert attempt_in([f"{path}@1@w"], KEY) is None
    assert attempt_in(["nightly", token_of(KEY, 7, "w")], KEY) == 7
    assert attempt_in(["make@3 of d / r"], KEY) == 3
    assert attempt_in(["make@3 of d / r2"], KEY) is None
