"""The Iceberg sink on real catalogs, SQL and REST: one commit by token, whatever was lost and whoever comes late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from expected_errors import fails_with
from iceberg_rest import IcebergRest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from airflow_recovery.errors import HoldsOther, SinkRefused, SinkUnavailable
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.sinks import CommitMode, Committable, CommitToken, IcebergTable, Probe, Rows
from airflow_recovery.sinks import iceberg as module
from airflow_recovery.store.opening import open_store

ROWS = pa.table({"n": pa.array([1, 2], "i8")})


class Lake:
    """A table, and what a deployment lends to its sink."""

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        self.folder = folder
        self.properties = properties
        catalog = load_catalog("lake", **self.properties)
        catalog.create_namespace("db")
        catalog.create_table("db.t", ROWS.schema)
        self.catalog = catalog

    def catalog_properties(self, name: str) -> dict[str, str]:
        return self.properties

    def open_location(self, location: str) -> Any:
        return open_store(location)

    def committer(self, mode: str = "append") -> Any:
        return IcebergTable(uri="iceberg://lake/db.t", mode=mode).open(self)  # type: ignore[arg-type]

    def committable(self, attempt: int = 1, writer: str = "w", rows: pa.Table = ROWS) -> Committable:
        folder = self.folder / "staged" / str(attempt)
        folder.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(rows, folder / "part-0.parquet")
        [info] = open_store(f"file://{folder}").list()
        manifest = PartitionManifest("t.out", f"file://{folder}", (ResultObject(info.key, info.size, info.etag),))
        return Committable(CommitToken("d", "r", "g", "t", attempt, writer), manifest)

    def committable_of(self, run_key: str) -> Committable:
        given = self.committable()
        return Committable(replace(given.token, run_key=run_key), given.manifest)

    @property
    def rows(self) -> int:
        return int(self.catalog.load_table("db.t").scan().to_arrow().num_rows)


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.drill)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    if request.param == "sql":
        yield Lake(tmp_path, {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"})
        return
    with IcebergRest(tmp_path) as server:
        yield Lake(tmp_path, server.properties)


def lose_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit is done, and nobody is told."""
    whole = Table._do_commit

    def commit(table: Table, *given: Any, **named: Any) -> None:
        whole(table, *given, **named)
        monkeypatch.setattr(Table, "_do_commit", whole)
        raise ConnectionError("the reply was lost")

    monkeypatch.setattr(Table, "_do_commit", commit)


def test_fault_172_a_commit_whose_reply_was_lost_is_found_and_not_made_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lake.committable()
    assert lake.committer().probe(given.token) is Probe.NOT_APPLIED
    lose_the_reply(monkeypatch)
    with fails_with("target-no-answer"):
        lake.committer().commit(given)
    assert lake.committer().probe(given.token) is Probe.APPLIED
    assert "applied before" in lake.committer().commit(given)
    assert lake.rows == 2


def test_fault_172_control_without_its_token_the_same_rows_would_be_there_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.sinks.iceberg._newest_held", lambda *given: None)
    for _ in range(2):
        lake.committer().commit(lake.committable())
    assert lake.rows == 4


def test_fault_173_a_zombie_is_refused_and_a_newer_attempt_replaces(lake: Lake) -> None:
    lake.committer("replace").commit(lake.committable(1))
    lake.committer("replace").commit(lake.committable(2))
    with fails_with("target-holds-other", found="attempt 2 of process w"):
        lake.committer("replace").commit(lake.committable(1))
    with pytest.raises(HoldsOther):
        lake.committer().commit(lake.committable(3))
    assert lake.rows == 2


def test_fault_173_control_without_its_token_a_zombie_replaces_what_is_newer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.committer("replace").commit(lake.committable(2))
    monkeypatch.setattr("airflow_recovery.sinks.iceberg._newest_held", lambda *given: None)
    lake.committer("replace").commit(lake.committable(1, rows=ROWS.slice(1)))
    assert lake.rows == 1


def test_fault_173_of_two_at_the_same_time_the_second_reads_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, zombie = Table._do_commit, lake.committable(1)
    met: list[str] = []

    def commit(table: Table, *given: Any, **named: Any) -> None:
        if not met:
            met.append("the other is first")
            lake.committer("replace").commit(lake.committable(2))
        whole(table, *given, **named)

    monkeypatch.setattr(Table, "_do_commit", commit)
    with fails_with("target-holds-other", found="attempt 2 of process w"):
        lake.committer().commit(zombie)
    assert lake.rows == 2


def test_another_journals_attempt_is_not_taken_for_this_ones(lake: Lake) -> None:
    lake.committer().commit(lake.committable(1, "one"))
    assert lake.committer().probe(lake.committable(1, "two").token) is Probe.NOT_APPLIED
    with fails_with("target-holds-other", found="attempt 1 of process one"):
        lake.committer().commit(lake.committable(1, "two"))


def test_rows_of_another_shape_and_a_wrong_location_are_refused(lake: Lake) -> None:
    with fails_with("columns-not-held"):
        lake.committer().commit(lake.committable(rows=pa.table({"other": ["x"]})))
    assert lake.rows == 0
    for uri in ("s3://b/t", "iceberg://lake/t", "iceberg://lake/db.t?as_of=1", 3):
        with fails_with("iceberg-uri-unfit"):
            IcebergTable(uri=uri)  # type: ignore[arg-type]


# what the table holds of a commit later on


def now(lake: Lake) -> Table:
    return lake.catalog.load_table("db.t")


def of_others(lake: Lake) -> None:
    now(lake).append(pa.table({"n": pa.array([7], "i8")}))


def rolled_back(lake: Lake) -> None:
    table = now(lake)
    first = min(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    table.manage_snapshots().set_current_snapshot(snapshot_id=first.snapshot_id).commit()


def made_again(lake: Lake) -> None:
    lake.catalog.drop_table("db.t")
    lake.catalog.create_table("db.t", ROWS.schema)


def expire_all_but_the_newest(lake: Lake) -> None:
    for snapshot in now(lake).metadata.snapshots[:-1]:
        now(lake).maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()


DONE_TO_IT: dict[str, tuple[Any, Rows | None, Rows | None]] = {
    "nothing": (lambda lake: None, Rows.THERE, Rows.THERE),
    "rows on top": (of_others, Rows.THERE, Rows.THERE),
    "all deleted": (lambda lake: now(lake).delete(), Rows.REMOVED, Rows.REMOVED),
    "one deleted": (lambda lake: now(lake).delete("n = 1"), Rows.OVERWRITTEN, Rows.PARTLY),
    "overwritten": (
        lambda lake: now(lake).overwrite(pa.table({"n": pa.array([8], "i8")})),
        Rows.OVERWRITTEN,
        Rows.PARTLY,
    ),
    "deleted, and another run": (
        lambda lake: (now(lake).delete(), lake.committer().commit(lake.committable_of("other run"))),
        Rows.OVERWRITTEN,
        Rows.REMOVED,
    ),
    "rolled back": (rolled_back, Rows.OVERWRITTEN, Rows.REMOVED),
    "rolled back, and more": (lambda lake: (rolled_back(lake), of_others(lake)), Rows.OVERWRITTEN, Rows.PARTLY),
    "dropped and made again": (made_again, Rows.REMOVED, Rows.REMOVED),
    "made again, with rows": (lambda lake: (made_again(lake), of_others(lake)), Rows.OVERWRITTEN, Rows.PARTLY),
    "expired": (lambda lake: (of_others(lake), expire_all_but_the_newest(lake)), None, None),
}


def after_rows_of_others(lake: Lake, mode: str) -> tuple[Any, Committable, str]:
    of_others(lake)
    into, given = lake.committer(mode), lake.committable()
    return into, given, into.commit(given)


@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("done", DONE_TO_IT)
def test_fault_210_211_what_was_done_to_a_table_is_found(lake, done, mode):
    into, given, name = after_rows_of_others(lake, mode)
    act, of_replace, of_append = DONE_TO_IT[done]
    with pytest.MonkeyPatch.context() as patch:
        # Another run beside one that replaces all rows: only a version before has let it commit.
        patch.setattr(module, "check_owners", lambda *given: None)
        act(lake)
    expected = of_replace if mode == "replace" else of_append
    if expected is None:
        with pytest.raises(SinkUnavailable):
            into.rows(given, name)
        return
    found = into.rows(given, name)
    assert found.rows is expected, found
    before = lake.rows
    if found.may_be_committed_again(CommitMode(mode)):
        again = into.commit_again(given, name)
        assert lake.rows == 2 if mode == "replace" else before + 2
        assert into.rows(given, again).rows is Rows.THERE
        assert "applied before" in into.commit_again(given, again)
    elif found.rows is not Rows.THERE and into.held(given.token) is not None:
        with fails_with("rows-cannot-be-committed-again"):
            into.commit_again(given, name)
        assert lake.rows == before


def test_a_token_whose_rows_were_removed_is_taken_out(lake):
    into, given, name = after_rows_of_others(lake, "append")
    with fails_with("rows-cannot-be-committed-again"):
        into.take_out(given, name)
    now(lake).delete()
    into.take_out(given, name)
    assert into.held(given.token) is None
    into.commit(lake.committable(2))
    assert lake.rows == 2


@pytest.mark.parametrize("are_gone", [True, False])
def test_fault_213_the_advice_takes_out_a_token_whether_its_rows_are_gone_or_not_and_deletes_none(lake, are_gone):
    into, given, _ = after_rows_of_others(lake, "append")
    if are_gone:
        now(lake).delete()
    before = lake.rows
    with pytest.raises(SinkRefused) as refused:
        into.commit(lake.committable(2))
    statement = str(refused.value).partition("an empty snapshot: ")[2].partition("; and clear")[0]
    exec(statement, {"table": now(lake)})  # as a person would type it
    assert into.held(given.token) is None
    assert lake.rows == before
