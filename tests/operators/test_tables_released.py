"""The tag that keeps a result's snapshot goes when its attempt is released, and nothing else of a table does.

make --> read          a `PythonOperator` each, by recoverable(...); a real catalog of pyiceberg's
"""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from job_tasks import GROUP, Drivers, job_dag
from test_tables_of_operators import CLEANED, SOURCE, copying, lake, new_dag, tables  # noqa: F401 - a fixture
from tries import journal_in, run_try, state_in

from airflow_recovery.attempt import release as attempt_release
from airflow_recovery.console import gc, release
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.in_airflow import AirflowDeployment
from airflow_recovery.console.main import main
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import RegionFailed
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.hooks.tables import tables_of
from airflow_recovery.model.keys import OPERATORS_GROUP, RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.operators import RecoveryPublishOperator
from airflow_recovery.results import table_tags
from airflow_recovery.results.release import Releaser
from airflow_recovery.results.tables import ICEBERG_TOKEN, tag_of

DOWN = json.dumps({"conn_type": "generic", "extra": json.dumps({"type": "rest", "uri": "http://127.0.0.1:9/"})})
RETENTION = "AIRFLOW__RECOVERY__RETENTION"
RUN_KEY = "date-2024-01-02T000000Z"
OTHER = tag_of("s3://other/journal", RegionKey("d", RUN_KEY, OPERATORS_GROUP, "make"), 1)
"""Of another deployment, with a DAG of the same name."""
ROWS, NO_COLUMNS = pa.table({"n": pa.array([1], "i8")}), '{"type":"struct","fields":[]}'
GONE = ("--purge", "--older-than", "0s", "--force")


def tasks() -> dict[str, Any]:
    with new_dag() as dag:
        make = copying("make", SOURCE)
        read = copying("read", make.result("out"), "iceberg://lake/db.report")
        read >> RecoveryPublishOperator(task_id="publish")
    return dict(dag.task_dict)


def refs() -> set[str]:
    return set(lake().load_table("db.cleaned").metadata.refs)


def ours() -> set[str]:
    return {name for name in refs() if name.startswith("recovery-")}


def snapshots() -> list[int]:
    return [one.snapshot_id for one in lake().load_table("db.cleaned").snapshots()]


def tag(*names: str) -> None:
    for name in names:
        table = lake().load_table("db.cleaned")
        table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, name).commit()


def deployment() -> AirflowDeployment:
    return AirflowDeployment(RecoverySettings.load())


def command(module: Any, *arguments: str) -> int:
    """`airflow recovery ...` with Airflow's connections."""
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    args = parser.parse_args(arguments)
    args.open_deployment = lambda args: deployment()
    code: int = module.run(args)
    return code


def sweep(*arguments: str, retention: str = "as-consumed 0s") -> int:
    return command(gc, "--grace", "0s", "--retention", retention, *arguments)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes at once, unless a test says so. Commands, which have no DAG file, may open the catalog."""
    monkeypatch.setenv(RETENTION, "7d")
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", "iceberg://lake")


def run_both() -> None:
    run_try(tasks()["make"])
    assert len(ours()) == 1, "its reader has not read it yet"
    run_try(tasks()["read"])


def test_as_consumed_the_last_reader_takes_the_tag_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RETENTION, "as-consumed")
    run_both()
    assert refs() == {"main"}
    assert len(snapshots()) == 1


class CommittingDrivers(Drivers):
    """Each vertex with a table commits to it, and keeps its snapshot with a tag, as a driver does."""

    def run(self, spec: RegionSpec, folder: Path) -> None:
        deployed, outputs = tables_of(open_stores(RecoverySettings.load())), []
        for vertex in spec.vertices:
            if not vertex.is_result:
                continue
            made = PartitionManifest(vertex.name, f"{spec.location}/{vertex.name}", (), 0, NO_COLUMNS)
            if vertex.table is not None:
                commit = TableCommit.of(spec, vertex)
                lake().load_table("db.cleaned").append(ROWS, snapshot_properties={ICEBERG_TOKEN: commit.token})
                found = deployed.committed(vertex.name, commit.table, commit.token)
                assert found is not None
                assert commit.tag is not None
                deployed.keep(found, commit.tag)
                made = replace(found, schema=NO_COLUMNS, rows=1)
            outputs.append(made)
        finish_attempt(spec, AttemptResult(tuple(outputs), 2.0, None), logging.getLogger("tests"))


def test_as_consumed_the_last_vertex_that_reads_it_takes_the_tag_away(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CommittingDrivers().install(monkeypatch)
    (recovery / "a.csv").write_text("1\n")
    monkeypatch.setenv(RETENTION, "as-consumed")
    regions = job_dag("dagjobs.tabled_lake:tabled").task_dict
    params = {"lake": str(recovery)}
    run_try(regions[f"{GROUP}.cleaned"], params=params)
    assert len(ours()) == 1, "its reader has not read it yet"
    run_try(regions[f"{GROUP}.report"], params=params)
    assert refs() == {"main"}


@pytest.mark.slow
def test_on_run_success_the_publish_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RETENTION, "on-run-success")
    run_both()
    assert ours()
    run_try(tasks()["publish"])
    assert refs() == {"main"}


@pytest.mark.slow
def test_a_publish_whose_catalog_gives_no_answer_is_good_and_says_which_tag_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(RETENTION, "on-run-success")
    run_both()
    [mine] = ours()
    whole = attempt_release.release_published

    with monkeypatch.context() as broken:

        def release_published(*given: Any) -> None:
            """It has answered until now."""
            broken.setenv("AIRFLOW_CONN_LAKE", DOWN)
            whole(*given)

        broken.setattr(attempt_release, "release_published", release_published)
        assert run_try(tasks()["publish"])["publish"] == 1
    assert f"make@1 is released; its tag {mine} at {CLEANED} is left to the next gc: {CLEANED} gave no" in caplog.text
    assert ours() == {mine}
    assert sweep(retention="7d") == 0
    assert not ours()


@pytest.mark.slow
def test_kept_it_stays_until_the_policy_lets_it_go(capsys: pytest.CaptureFixture[str]) -> None:
    run_both()
    run_try(tasks()["publish"])
    assert ours()
    assert sweep(retention="7d") == 0
    assert "make@1 (1 tagged): the run has been silent" in capsys.readouterr().out
    assert ours()
    assert sweep(retention="0s") == 0
    assert not ours()


@pytest.mark.slow
def test_gc_takes_our_tag_and_nothing_else_and_a_dry_run_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_both()
    [mine] = ours()
    tag("nightly", "recovery-of-a-person", OTHER)
    before = (refs(), snapshots())
    assert sweep("--dry-run") == 0
    assert f"deleted  d / {RUN_KEY} / (operators) / make@1 (1 tagged)" in capsys.readouterr().out
    assert (refs(), snapshots()) == before
    assert sweep() == 0
    assert refs() == before[0] - {mine}
    assert snapshots() == before[1]
    assert lake().load_table("db.cleaned").scan().to_arrow().num_rows == 2


@pytest.mark.slow
def test_an_attempt_that_is_superseded_lets_go_of_its_own_alone() -> None:
    run_try(tasks()["make"])
    [first] = ours()
    made = lake().load_table("db.cleaned")
    made.manage_snapshots().remove_tag(first).commit()
    made = lake().load_table("db.cleaned")
    snapshot = made.metadata.current_snapshot_id
    made.append(made.scan().to_arrow())
    made.maintenance.expire_snapshots().by_id(snapshot).commit()
    run_try(tasks()["make"])
    [second] = ours()
    tag(first)
    assert sweep(retention="7d") == 0
    assert ours() == {second}, "the second one counts, and has a reader to come"


@pytest.mark.slow
def test_an_attempt_that_died_with_its_tag_set_is_found_once_another_has_finished(recovery: Path) -> None:
    with new_dag():
        task = copying("make", SOURCE, say="lose the reply")
        copying("read", task.result("out"), "iceberg://lake/db.report")
    with pytest.raises(RegionFailed):
        run_try(task)
    key = RegionKey("d", RUN_KEY, OPERATORS_GROUP, "make")
    dead = tag_of(f"{recovery}/journal", key, 1)
    tag(dead)
    run_try(task)
    [second] = ours() - {dead}
    assert sweep(retention="7d") == 0
    assert ours() == {second}


@pytest.mark.slow
def test_by_hand_it_goes_and_a_dry_run_takes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_both()
    for dry, left in ((("--dry-run",), 1), ((), 0)):
        assert command(release, "d", "2024-01-02", "make", "--force", *dry) == 0
        assert len(ours()) == left
    assert "tag" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_catalog_without_an_answer_keeps_the_tag_and_the_next_gc_takes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recovery: Path
) -> None:
    run_both()
    with monkeypatch.context() as broken:
        broken.setenv("AIRFLOW_CONN_LAKE", DOWN)
        assert sweep() == ExitCode.NO_ANSWER
        assert f"tags of make at {CLEANED} were left as they are: {CLEANED} gave no answer" in capsys.readouterr().out
        for _ in range(2):
            assert sweep(*GONE) == ExitCode.NO_ANSWER
        assert "its records, until its tables have answered" in capsys.readouterr().out
    assert ours()
    assert sweep(*GONE) == 0
    assert not ours()
    journal = journal_in(recovery, OPERATORS_GROUP)
    assert [info.key for info in journal.store.list(journal.layout.attempts)] == []


@pytest.mark.slow
def test_released_by_hand_without_an_answer_it_goes_with_the_next_gc_whatever_the_policy(
    monkeypatch: pytest.MonkeyPatch, recovery: Path
) -> None:
    run_both()
    [mine] = ours()
    journal, state = journal_in(recovery, OPERATORS_GROUP), state_in(recovery, OPERATORS_GROUP, "make")
    with monkeypatch.context() as broken:
        broken.setenv("AIRFLOW_CONN_LAKE", DOWN)
        found = deployment()
        tags = table_tags.RunTags(found.tables, journal, state)
        deleted = Releaser(journal, found.results, who="x", tags=tags).release("make", state.of("make").attempts[1])
    assert deleted.tags_left.startswith(f"tag {mine} at {CLEANED} is left to the next gc: {CLEANED} gave no answer")
    assert ours()
    assert sweep(retention="7d") == 0
    assert not ours()


def test_without_airflow_the_table_is_named_and_its_tag_stays(
    capsys: pytest.CaptureFixture[str], recovery: Path
) -> None:
    run_both()
    results = deployment().results.base_uri
    given = ["--journal", f"file://{recovery}/journal", "--results", results, "--retention", "as-consumed 0s"]
    assert main(["gc", *given, "--grace", "0s"]) == ExitCode.NO_ANSWER
    said = capsys.readouterr().out
    assert f"tags of make at {CLEANED} were left as they are: Expected a way to ask for tables of 'lake'" in said
    assert ours()


@pytest.mark.slow
def test_control_without_the_hook_the_tag_stays(recovery: Path) -> None:
    run_both()
    attempt = state_in(recovery, OPERATORS_GROUP, "make").of("make").attempts[1]
    Releaser(journal_in(recovery, OPERATORS_GROUP), deployment().results, who="x").release("make", attempt)
    assert ours()


@pytest.mark.slow
def test_with_a_wrong_name_a_tag_of_a_user_stays_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    run_both()
    tag("nightly")
    monkeypatch.setattr(table_tags, "tag_of", lambda *_: "nightly")
    before = refs()
    command(release, "d", "2024-01-02", "make", "--force")
    assert refs() == before


@pytest.mark.slow
def test_control_by_the_run_alone_another_deployments_tag_would_go(monkeypatch: pytest.MonkeyPatch) -> None:
    run_both()
    tag(OTHER)
    monkeypatch.setattr(table_tags, "tag_of", lambda journal, key, number: OTHER)
    assert sweep() == 0
    assert OTHER not in refs()
