"""Delta tables by delta-rs, in a folder and on S3 servers: the token is a transaction of the commit itself."""

from __future__ import annotations

import shutil
import threading
import traceback
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from expected_errors import fails_with
from staging import Resources, stage, token

from airflow_recovery.errors import SinkRefused, SinkUnavailable
from airflow_recovery.sinks import CommitMode, Committable, Committer, DeltaTable, Probe, Rows
from airflow_recovery.sinks import delta as module
from airflow_recovery.sinks.answers import Answer
from airflow_recovery.sinks.staged import StagedRows
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S

CARRIERS = ["AA", "UA", None, ""]


class Lake:
    """A place for tables, and prepared results."""

    def __init__(self, uri: str, store: Any, resources: Resources) -> None:
        self.uri = f"{uri}/table"
        self.store = store
        self.resources = resources

    def committer(self, mode: str = "append") -> Committer:
        return DeltaTable(uri=self.uri, mode=mode).open(self.resources)

    def committable(self, attempt: int = 1, carriers: list[str | None] | None = None, key: str = "1") -> Committable:
        rows = {"carrier": CARRIERS if carriers is None else carriers}
        return Committable(token(attempt, key), stage(self.store, f"{key}/{attempt}", rows))

    def rows(self) -> list[str]:
        table = deltalake.DeltaTable(self.uri, storage_options=self.resources.storage_options(self.uri))
        return sorted(map(str, table.to_pyarrow_table()["carrier"].to_pylist()))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), LocalStore(str(tmp_path / "results")), Resources())


@pytest.mark.parametrize(("name", "begins"), [("what?x", "what"), ("c#", "c"), ("50% off", "50"), ("a b", "a")])
def test_rows_are_committed_to_the_folder_that_is_named_and_to_no_other(tmp_path: Path, name: str, begins: str) -> None:
    """To delta-rs a URL's path ends before a question mark: that is the folder of another table."""
    other = tmp_path / "lake" / begins
    deltalake.write_deltalake(str(other), pa.table({"carrier": ["B6"]}))
    lake = Lake("", LocalStore(str(tmp_path / "results")), Resources())
    lake.uri = f"file://{tmp_path}/lake/{name}"
    lake.committer("replace").commit(lake.committable())
    lake.uri = f"{tmp_path}/lake/{name}"
    assert lake.rows() == GIVEN
    lake.uri = str(other)
    assert lake.rows() == ["B6"]


def test_a_folder_that_delta_rs_takes_for_another_one_is_refused() -> None:
    with fails_with("delta-folder-misread"):
        DeltaTable(uri="s3://lake/50%25")


GIVEN = sorted(map(str, CARRIERS))


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_token_is_applied_once_and_the_table_is_made_if_need_be(lake, mode):
    into = lake.committer(mode)
    assert into.probe(token(1, "1")) is Probe.NOT_APPLIED
    assert "version 0" in into.commit(lake.committable())
    assert "applied before" in into.commit(lake.committable())
    assert lake.rows() == GIVEN
    assert into.probe(token(1, "1")) is Probe.APPLIED


def test_append_refuses_a_second_attempt_and_takes_another_run(lake):
    into = lake.committer()
    into.commit(lake.committable())
    with fails_with("target-holds-other", found="attempt 1"):
        into.commit(lake.committable(2))
    into.commit(lake.committable(key="2"))
    assert lake.rows() == sorted(GIVEN * 2)


def test_replace_goes_over_the_first_and_refuses_a_lower_attempt(lake):
    into = lake.committer("replace")
    into.commit(lake.committable())
    into.commit(lake.committable(2, ["B6", "B6"]))
    with fails_with("target-holds-other", found="attempt 2"):
        into.commit(lake.committable(1))
    assert lake.rows() == ["B6", "B6"]


def race(lake: Lake, monkeypatch: pytest.MonkeyPatch, given: list[Committable]) -> list[str]:
    """Each has read the table before one of them writes."""
    both, said = threading.Barrier(2), []
    read, waited = module._DeltaCommitter._table, set()

    def together(self, of):
        found = read(self, of)
        if threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            both.wait(HANG_S)
        return found

    monkeypatch.setattr(module._DeltaCommitter, "_table", together)
    threads = [threading.Thread(target=lambda each=each: said.append(lake.committer().commit(each))) for each in given]
    for thread in threads:
        thread.start()
    for candidate in threads:
        candidate.join()
    return said


@pytest.mark.parametrize("is_new", [True, False])
def test_case_14_of_two_processes_with_one_token_one_applies_it(lake, monkeypatch, is_new):
    if not is_new:
        lake.committer().commit(lake.committable(key="0"))
    given = lake.committable()
    said = race(lake, monkeypatch, [given, given])
    assert sorted("applied before" in each for each in said) == [False, True]
    assert lake.rows() == sorted(GIVEN * (1 if is_new else 2))


def test_two_runs_at_once_are_both_there(lake, monkeypatch):
    lake.committer().commit(lake.committable(key="0"))
    race(lake, monkeypatch, [lake.committable(key="1"), lake.committable(key="2")])
    assert lake.rows() == sorted(GIVEN * 3)


def test_control_without_the_transaction_both_would_be_there(lake, monkeypatch):
    lake.committer().commit(lake.committable(key="0"))
    properties = deltalake.CommitProperties
    monkeypatch.setattr(deltalake, "CommitProperties", lambda app_transactions, **given: properties(**given))
    given = lake.committable()
    race(lake, monkeypatch, [given, given])
    assert lake.rows() == sorted(GIVEN * 3)


def test_a_place_that_can_not_be_written_is_no_answer(lake, tmp_path):
    (tmp_path / "lake").write_text("a file")
    with fails_with("target-no-answer"):
        lake.committer().commit(lake.committable())


@pytest.mark.s3
def test_on_s3(s3_server: S3Server):
    class OnS3(Resources):
        def storage_options(self, location: str) -> dict[str, str]:
            credentials = s3_server.session().get_credentials()
            assert credentials is not None
            return {
                "AWS_ACCESS_KEY_ID": str(credentials.access_key),
                "AWS_SECRET_ACCESS_KEY": str(credentials.secret_key),
                "AWS_ENDPOINT_URL": s3_server.endpoint_url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
            }

        def open_location(self, location: str) -> S3Store:
            return S3Store(location, endpoint_url=s3_server.endpoint_url, session=s3_server.session())

    bucket = f"lake-{threading.get_native_id()}"
    s3_server.create_bucket(bucket)
    resources = OnS3()
    lake = Lake(f"s3://{bucket}", resources.open_location(f"s3://{bucket}/results"), resources)
    into = lake.committer("replace")
    into.commit(lake.committable())
    assert "applied before" in into.commit(lake.committable())
    into.commit(lake.committable(2, ["B6", "B6"]))
    with pytest.raises(SinkRefused):
        into.commit(lake.committable(1))
    assert lake.rows() == ["B6", "B6"]


# refused for good


class Counted:
    """How often all prepared rows were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        read = StagedRows.batches

        def counting(staged):
            self.times += 1
            return read(staged)

        monkeypatch.setattr(StagedRows, "batches", counting)


@pytest.fixture
def strict(lake: Lake) -> Lake:
    """It takes no rows of carrier XX."""
    deltalake.write_deltalake(lake.uri, pa.table({"carrier": ["AA"]}))
    deltalake.DeltaTable(lake.uri).alter.add_constraint({"no_xx": "carrier <> 'XX'"})
    return lake


def unfit(lake: Lake) -> list[tuple[str, Committable]]:
    of = {
        "1 rows failed validation check": {"carrier": ["XX"]},
        "column delay .double.: the table has no such column": {"carrier": ["AA"], "delay": [1.0]},
    }
    return [
        (said, Committable(token(1, str(at)), stage(lake.store, f"unfit/{at}", rows)))
        for at, (said, rows) in enumerate(of.items(), start=1)
    ]


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_fault_98_rows_that_the_table_refuses_are_read_once_and_not_shown(strict, monkeypatch, mode):
    for said, given in unfit(strict):
        counted = Counted(monkeypatch)
        with pytest.raises(SinkRefused, match=said) as error:
            strict.committer(mode).commit(given)
        assert counted.times <= 1
        assert "XX" not in "".join(traceback.format_exception(error.value))
    assert strict.rows() == ["AA"]


def test_a_value_of_another_type_is_refused_and_not_shown(tmp_path):
    lake = Lake(str(tmp_path / "lake"), LocalStore(str(tmp_path / "results")), Resources())
    lake.committer().commit(Committable(token(1, "0"), stage(lake.store, "0", {"n": [1]})))
    given = Committable(token(), stage(lake.store, "1", {"n": ["XX"]}))
    with fails_with("columns-not-held") as error:
        lake.committer().commit(given)
    assert "XX" not in "".join(traceback.format_exception(error.value))


def test_control_taken_for_a_commit_that_met_another_they_are_read_five_times(strict, monkeypatch):
    monkeypatch.setattr(module, "of_delta", lambda error: (Answer.CONFLICT, str(error)))
    ((_, given), _), counted = unfit(strict), Counted(monkeypatch)
    with pytest.raises(SinkUnavailable) as error:
        strict.committer().commit(given)
    assert counted.times == module.ROUNDS
    assert "XX" in str(error.value)


def test_a_prepared_file_that_was_altered_is_named_as_such(lake):
    lake.committer().commit(lake.committable(key="0"))
    given = lake.committable()
    lake.store.put("1/1/part-1.parquet", b"other")
    with fails_with("staged-file-altered"):
        lake.committer().commit(given)
    assert lake.rows() == GIVEN


# what the table holds of a commit later on


def now(lake: Lake) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(lake.uri)


def appended(lake: Lake, *carriers: str, mode: Any = "append") -> None:
    deltalake.write_deltalake(lake.uri, pa.table({"carrier": list(carriers)}), mode=mode)


def compacted_with_others(lake: Lake) -> None:
    appended(lake, "XX")
    now(lake).optimize.compact()


DONE_TO_IT: dict[str, tuple[Any, Rows, Rows]] = {
    "nothing": (lambda lake: None, Rows.THERE, Rows.THERE),
    "rows on top": (lambda lake: appended(lake, "XX"), Rows.THERE, Rows.THERE),
    "all deleted": (lambda lake: now(lake).delete(), Rows.REMOVED, Rows.REMOVED),
    "one deleted": (lambda lake: now(lake).delete("carrier = 'AA'"), Rows.PARTLY, Rows.PARTLY),
    "one edited": (
        lambda lake: now(lake).update({"carrier": "'B6'"}, predicate="carrier = 'AA'"),
        Rows.THERE,
        Rows.THERE,
    ),
    "overwritten": (lambda lake: appended(lake, "XX", mode="overwrite"), Rows.OVERWRITTEN, Rows.PARTLY),
    "restored before it": (lambda lake: now(lake).restore(0), Rows.OVERWRITTEN, Rows.REMOVED),
    "deleted, and another run": (
        lambda lake: (now(lake).delete(), lake.committer().commit(lake.committable(carriers=["XX"], key="2"))),
        Rows.OVERWRITTEN,
        Rows.REMOVED,
    ),
    "read, and written anew": (
        lambda lake: deltalake.write_deltalake(lake.uri, now(lake).to_pyarrow_table(), mode="overwrite"),
        Rows.OVERWRITTEN,
        Rows.PARTLY,
    ),
    "a part of it replaced": (
        lambda lake: deltalake.write_deltalake(
            lake.uri, pa.table({"carrier": ["AA"]}), mode="overwrite", predicate="carrier = 'AA'"
        ),
        Rows.OVERWRITTEN,
        Rows.PARTLY,
    ),
    "compacted": (lambda lake: now(lake).optimize.compact(), Rows.THERE, Rows.THERE),
    "compacted with others": (compacted_with_others, Rows.THERE, Rows.THERE),
    "compacted, then deleted": (
        lambda lake: (now(lake).optimize.compact(), now(lake).delete()),
        Rows.REMOVED,
        Rows.REMOVED,
    ),
    "deleted and restored": (
        lambda lake: (now(lake).delete(), now(lake).restore(now(lake).version() - 1)),
        Rows.THERE,
        Rows.THERE,
    ),
    "vacuumed": (
        lambda lake: now(lake).vacuum(0, dry_run=False, enforce_retention_duration=False),
        Rows.THERE,
        Rows.THERE,
    ),
    "dropped": (lambda lake: shutil.rmtree(lake.uri), Rows.REMOVED, Rows.REMOVED),
    "dropped and made again": (
        lambda lake: (shutil.rmtree(lake.uri), appended(lake, "XX")),
        Rows.OVERWRITTEN,
        Rows.PARTLY,
    ),
}


def after_rows_of_others(lake: Lake, mode: str) -> tuple[Any, Committable, str]:
    """Version 0 has rows of somebody else; then the sink commits."""
    appended(lake, "WN", "DL")
    into: Any = lake.committer(mode)
    given = lake.committable()
    return into, given, into.commit(given)


@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("done", DONE_TO_IT)
def test_fault_210_211_what_was_done_to_a_table_is_found(lake, done, mode):
    into, given, name = after_rows_of_others(lake, mode)
    assert name.endswith(": version 1")
    act, of_replace, of_append = DONE_TO_IT[done]
    with pytest.MonkeyPatch.context() as patch:
        # Another run beside one that replaces all rows: only a version before has let it commit.
        patch.setattr(module, "check_owners", lambda *given: None)
        act(lake)
    for commit_id in (name, "dag / 1"):  # the second is what it is called by whoever has found the token
        found = into.rows(given, commit_id)
        assert found.rows is (of_replace if mode == "replace" else of_append), found
    if found.may_be_committed_again(CommitMode(mode)):
        others = (
            [] if mode == "replace" or done.startswith("dropped") else [row for row in lake.rows() if row in "WNDLXX"]
        )
        again = into.commit_again(given, name)
        assert lake.rows() == sorted([*GIVEN, *others])
        assert into.rows(given, again).rows is Rows.THERE
        assert "applied before" in into.commit_again(given, again)
    elif found.rows is not Rows.THERE and not done.startswith("dropped"):
        before = lake.rows()
        with fails_with("rows-cannot-be-committed-again"):
            into.commit_again(given, name)
        assert lake.rows() == before


def test_fault_210_control_where_files_alone_are_looked_for_a_compaction_looks_like_a_removal(lake, monkeypatch):
    into, given, name = after_rows_of_others(lake, "append")
    now(lake).optimize.compact()
    assert into.rows(given, name).rows is Rows.THERE
    monkeypatch.setattr(module, "_deleted", lambda info, has_changed: None)
    assert into.rows(given, name).rows is Rows.PARTLY


def test_fault_212_a_log_that_was_cleaned_up_gives_no_answer_unless_the_table_is_empty(lake):
    into, given, name = after_rows_of_others(lake, "append")
    appended(lake, "XX")
    now(lake).create_checkpoint()
    for version in (0, 1):
        Path(f"{lake.uri}/_delta_log/{version:020}.json").unlink()
    with pytest.raises(SinkUnavailable):
        into.rows(given, name)
    now(lake).delete()
    assert into.rows(given, name).rows is Rows.REMOVED


def test_fault_212_rows_that_were_deleted_from_a_file_that_holds_others_too_are_nobodys(lake):
    into, given, name = after_rows_of_others(lake, "append")
    now(lake).optimize.compact()
    now(lake).delete("carrier = 'WN'")
    with fails_with("rows-removed-from-files"):
        into.rows(given, name)


def test_fault_210_of_two_that_commit_again_at_once_the_rows_are_there_once(lake, monkeypatch):
    into, given, name = after_rows_of_others(lake, "append")
    now(lake).delete()
    both = threading.Barrier(2)
    read, waited = module._DeltaCommitter._table, set()

    def together(self, of):
        found = read(self, of)
        if threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            both.wait(HANG_S)
        return found

    monkeypatch.setattr(module._DeltaCommitter, "_table", together)
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.append(into.commit_again(given, name))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for candidate in threads:
        candidate.join()
    assert sorted("applied before" in each for each in said) == [False, True]
    assert lake.rows() == GIVEN


def test_a_token_whose_rows_were_removed_is_taken_out_and_no_other(lake):
    into, given, name = after_rows_of_others(lake, "append")
    into.commit(lake.committable(key="2"))
    with fails_with("rows-cannot-be-committed-again"):
        into.take_out(given, name)
    now(lake).restore(0)
    into.take_out(given, name)
    assert into.held(given.token) is None
    assert into.held(token(1, "2")) is not None
    into.commit(lake.committable(2))
    assert lake.rows() == sorted([*GIVEN, "WN", "DL"])


@pytest.mark.parametrize("are_gone", [True, False])
def test_fault_213_the_advice_takes_out_a_token_whether_its_rows_are_gone_or_not_and_deletes_none(lake, are_gone):
    into, given, _ = after_rows_of_others(lake, "append")
    if are_gone:
        now(lake).restore(0)
    before = lake.rows()
    with pytest.raises(SinkRefused) as refused:
        into.commit(lake.committable(2))
    statement = str(refused.value).partition("a commit without files: ")[2].partition("; and clear")[0]
    exec(  # as a person would type it
        statement.replace("DeltaTable(uri)", f"DeltaTable({lake.uri!r})"),
        {name: getattr(deltalake, name) for name in ("DeltaTable", "CommitProperties", "Transaction")},
    )
    assert into.held(given.token) is None
    assert lake.rows() == before


def test_fault_213_control_the_advice_of_before_takes_out_nothing_where_the_rows_are_gone(lake):
    into, given, _ = after_rows_of_others(lake, "append")
    now(lake).restore(0)
    properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(given.token.lineage, 0)])
    now(lake).delete("carrier = 'AA'", commit_properties=properties)
    assert into.held(given.token) is not None
