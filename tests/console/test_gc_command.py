"""``gc`` on the command line, over folders."""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path

import fakes
import pytest
from fakes import Killed, Process, World, world_in

from airflow_recovery.console import gc as gc_command
from airflow_recovery.console.in_airflow import AirflowDeployment
from airflow_recovery.console.main import main
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.journal.owner import own_prefix
from airflow_recovery.model.records import AttemptState, RunIdentity


@pytest.fixture
def world(tmp_path: Path) -> World:
    """P@1 was superseded by P@2, two hours ago; C@1 by C@2."""
    world = world_in(tmp_path)
    world.go_all()
    world.restart("P")
    world.until_green()
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 7200,) * 2)
    return world


def gc(tmp_path: Path, *arguments: str) -> int:
    return main(["gc", "--journal", f"file://{tmp_path}/journal", *arguments])


def test_it_says_what_it_deletes_what_it_keeps_and_why(world, tmp_path, capsys):
    assert gc(tmp_path, "--dry-run", "--json") == 0
    dry = json.loads(capsys.readouterr().out)
    assert gc(tmp_path) == 0
    said = capsys.readouterr().out
    assert "P@1 (1 objects, 7 B): superseded by attempt 2" in said
    assert said.splitlines()[-1] == "2 deleted, 2 kept; 23 B deleted"
    assert [load["action"] for load in dry["entries"]] == ["deleted", "kept", "deleted", "kept"]
    assert dry["deleted_bytes"] == 23
    assert not list(world.results.list(world.journal().layout.data_of_number("P", 1)))
    assert world.current("C") == 2


def test_purge_removes_what_was_silent_for_long_in_two_calls(world, tmp_path, capsys):
    arguments = ("--purge", "--older-than", "1h", "--grace", "0s", "--force")
    assert gc(tmp_path, *arguments) == 0
    assert "closed   dag / date" in capsys.readouterr().out
    assert gc(tmp_path, *arguments) == 0
    left = [path.name for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    assert sorted(left) == ["_journal", "_owner", "closed"]


def test_fault_82_a_journal_of_another_deployment_is_not_swept(world, tmp_path, capsys, monkeypatch):
    own_prefix(world.journal_store, "north")
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "south")
    assert gc(tmp_path) == 2
    assert "to be the journal of deployment 'south', found that of 'north'" in capsys.readouterr().err
    assert list(world.results.list(world.journal().layout.data_of_number("P", 1)))
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "north")
    assert gc(tmp_path) == 0
    assert not list(world.results.list(world.journal().layout.data_of_number("P", 1)))


def test_fault_82_control_without_a_look_at_the_owner_its_data_goes(world, tmp_path, monkeypatch):
    own_prefix(world.journal_store, "north")
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "south")
    monkeypatch.setattr("airflow_recovery.console.deployment.check_owner", lambda store, deployment: None)
    assert gc(tmp_path) == 0
    assert not list(world.results.list(world.journal().layout.data_of_number("P", 1)))


@pytest.mark.parametrize("arguments", [["--purge"], ["--older-than", "30d"], ["--grace", "soon"]])
def test_what_cannot_be_meant_is_refused(tmp_path, capsys, arguments):
    assert gc(tmp_path, *arguments) == 2
    assert "Expected" in capsys.readouterr().err


# runs at work


def test_fault_107_a_purge_of_less_than_a_day_is_refused(world, tmp_path, capsys):
    before = sorted(path for path in tmp_path.rglob("*"))
    for older_than in ("0s", "23h"):
        assert gc(tmp_path, "--purge", "--older-than", older_than) == 2
        assert f"Expected --older-than to be 1d or more, found {older_than}: " in capsys.readouterr().err
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert gc(tmp_path, "--force") == 2
    assert "Expected --force with --purge only" in capsys.readouterr().err


def test_fault_107_control_with_force_it_is_closed(world, tmp_path, capsys):
    assert gc(tmp_path, "--purge", "--older-than", "0s", "--force") == 0
    assert "closed   dag / date" in capsys.readouterr().out


@pytest.fixture
def at_work(tmp_path: Path) -> World:
    """P@1 has said nothing for two days, as in cluster mode; its driver may be at work."""
    world = world_in(tmp_path)
    process = Process()
    with pytest.raises(Killed):
        world.go("P", process=process, on_written=process.kill)
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 2 * 24 * 3600,) * 2)
    return world


PURGE = ("--purge", "--older-than", "1d", "--grace", "0s")


def test_fault_107_an_attempt_that_may_be_running_keeps_its_run(at_work, tmp_path, capsys):
    assert gc(tmp_path, *PURGE) == 0
    said = "P@1 is open, was claimed 47h ago, and Airflow does not say whether its run has ended: kept for 7d"
    assert said in capsys.readouterr().out
    assert at_work.state().of("P").open_attempt is not None
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    assert gc(tmp_path, *PURGE) == 0
    assert at_work.state().is_closed


@pytest.mark.parametrize(("state", "is_closed"), [("running", False), ("queued", False), ("failed", True)])
@pytest.mark.parametrize("age_days", [2, 30])
def test_fault_107_what_airflow_says_of_the_run_comes_first(
    at_work, tmp_path, airflows_runs, state, is_closed, age_days
):
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - age_days * 24 * 3600,) * 2)
    airflows_runs("dag", at_work.run_id, state)
    args = argparse.Namespace(
        **dict.fromkeys(("dag", "retention", "connect")), **dict.fromkeys(("dry_run", "json", "force"), False)
    )
    args.purge, args.older_than, args.grace = True, "1d", "0s"
    for force in (False, True) if not is_closed else (False,):
        args.force = force
        args.open_deployment = lambda args: AirflowDeployment(
            RecoverySettings(journal=f"{tmp_path}/journal", results=f"{tmp_path}/journal/_results")
        )
        assert gc_command.run(args) == 0
        assert at_work.state().is_closed is is_closed


def test_fault_107_a_run_that_airflow_does_not_know_is_judged_by_its_age(at_work, tmp_path, airflows_runs):
    airflows_runs("another", at_work.run_id, "failed")
    deployment = AirflowDeployment(RecoverySettings(journal=f"{tmp_path}/journal", results=f"{tmp_path}/results"))
    assert deployment.is_live_run("dag", at_work.run_id) is None


def test_fault_107_where_no_database_answers_nothing_is_concluded(tmp_path, monkeypatch):
    def fails() -> None:
        raise RuntimeError("no database here")

    monkeypatch.setattr("airflow.utils.session.create_session", fails)
    deployment = AirflowDeployment(RecoverySettings(journal=f"{tmp_path}/journal", results=f"{tmp_path}/results"))
    assert deployment.is_live_run("dag", "run") is None


def test_fault_107_control_without_the_look_the_run_is_closed_and_the_live_attempt_fenced(
    at_work, tmp_path, monkeypatch
):
    monkeypatch.setattr("airflow_recovery.results.sweep_purge.Purge._why_at_work", lambda purge, claim: None)
    assert gc(tmp_path, *PURGE) == 0
    assert at_work.state().is_closed
    assert at_work.journal().read_outcome("P", 1).state is AttemptState.FENCED


@pytest.fixture
def airflows_runs(monkeypatch):
    """Airflow's own table of runs, on a database in memory: ``add(dag_id, run_id, state, logical_date)``."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import create_engine, insert
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import StaticPool

    engine = create_engine("sqlite://", poolclass=StaticPool)
    DagRun.__table__.create(engine)
    monkeypatch.setattr("airflow.utils.session.create_session", lambda: Session(engine))

    def add(dag_id: str, run_id: str, state: str, logical_date: datetime | None = None) -> None:
        run_after = datetime(2026, 1, 1, tzinfo=timezone.utc)
        row = {"dag_id": dag_id, "run_id": run_id, "run_after": run_after, "logical_date": logical_date}
        with Session(engine) as session:
            session.execute(insert(DagRun).values(**row, state=state, run_type="manual", log_template_id=1))
            session.commit()

    yield add
    engine.dispose()


# runs that wait


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """P has finished and nothing is open: C comes after a sensor, an approval, or has no slot. For a month."""
    world = world_in(tmp_path)
    monkeypatch.setattr(fakes, "IDENTITY", RunIdentity("dag", "date-2026-01-01T000000Z", "flights"))
    world.go("P")
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 30 * 24 * 3600,) * 2)
    return world


def purged(tmp_path: Path, **options: object) -> None:
    args = argparse.Namespace(
        **dict.fromkeys(("dag", "retention", "connect")), **dict.fromkeys(("dry_run", "json", "force"), False)
    )
    args.purge, args.older_than, args.grace = True, "1d", "0s"
    vars(args).update(options)
    args.open_deployment = lambda args: AirflowDeployment(
        RecoverySettings(journal=f"{tmp_path}/journal", results=f"{tmp_path}/journal/_results")
    )
    assert gc_command.run(args) == 0


MIDNIGHT = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("state", ["running", "queued"])
def test_fault_292_a_run_that_airflow_says_waits_is_not_closed(waiting, tmp_path, airflows_runs, capsys, state, force):
    """Whatever its run id is now: a run that was made again has another one than the claims."""
    airflows_runs("dag", "another", "running", datetime(2026, 1, 2, tzinfo=timezone.utc))
    airflows_runs("dag", "manual__made-again", state, MIDNIGHT)
    purged(tmp_path, force=force)
    assert not waiting.state().is_closed
    assert "but Airflow's run manual__made-again has not ended: it runs, or waits" in capsys.readouterr().out


def test_fault_292_a_run_that_has_ended_is_closed(waiting, tmp_path, airflows_runs):
    airflows_runs("dag", "another", "running", datetime(2026, 1, 2, tzinfo=timezone.utc))
    airflows_runs("dag", "manual__made-again", "success", MIDNIGHT)
    purged(tmp_path)
    assert waiting.state().is_closed


@pytest.mark.control
def test_fault_292_control_open_attempts_alone_do_not_tell(waiting, tmp_path, airflows_runs, monkeypatch):
    airflows_runs("dag", "manual__made-again", "running", MIDNIGHT)
    monkeypatch.setattr(AirflowDeployment, "live_run", lambda self, dag_id, run_key: None)
    purged(tmp_path)
    assert waiting.state().is_closed
