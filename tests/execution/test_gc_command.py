"""``gc`` on the command line, over folders."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from fakes import PAIR, World

from airflow_recovery.cli.main import main
from airflow_recovery.journal.owner import own_prefix
from airflow_recovery.storage.local import LocalStore


@pytest.fixture
def world(tmp_path: Path) -> World:
    """P@1 was superseded by P@2, two hours ago; C@1 by C@2."""
    world = World(PAIR)
    world.journal_store = LocalStore(f"file://{tmp_path}/journal")
    world.results = LocalStore(f"file://{tmp_path}/journal/_results")
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
    assert [each["action"] for each in dry["entries"]] == ["deleted", "kept", "deleted", "kept"]
    assert dry["deleted_bytes"] == 23
    assert not list(world.results.list(f"{world.journal().layout.data_of('P', 1)}/"))
    assert world.current("C") == 2


def test_purge_removes_what_was_silent_for_long_in_two_calls(world, tmp_path, capsys):
    arguments = ("--purge", "--older-than", "1h", "--grace", "0s", "--force")
    assert gc(tmp_path, *arguments) == 0
    assert "closed   dag / date" in capsys.readouterr().out
    assert gc(tmp_path, *arguments) == 0
    assert [path.name for path in (tmp_path / "journal").rglob("*") if path.is_file()] == ["closed"]


def test_fault_82_a_journal_of_another_deployment_is_not_swept(world, tmp_path, capsys, monkeypatch):
    own_prefix(world.journal_store, "north")
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "south")
    assert gc(tmp_path) == 2
    assert "to be the journal of deployment 'south', found that of 'north'" in capsys.readouterr().err
    assert list(world.results.list(f"{world.journal().layout.data_of('P', 1)}/"))
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "north")
    assert gc(tmp_path) == 0
    assert not list(world.results.list(f"{world.journal().layout.data_of('P', 1)}/"))


def test_fault_82_control_without_a_look_at_the_owner_its_data_goes(world, tmp_path, monkeypatch):
    own_prefix(world.journal_store, "north")
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "south")
    monkeypatch.setattr("airflow_recovery.cli.deployment.check_owner", lambda store, deployment: None)
    assert gc(tmp_path) == 0
    assert not list(world.results.list(f"{world.journal().layout.data_of('P', 1)}/"))


@pytest.mark.parametrize("arguments", [["--purge"], ["--older-than", "30d"], ["--grace", "soon"]])
def test_what_cannot_be_meant_is_refused(tmp_path, capsys, arguments):
    assert gc(tmp_path, *arguments) == 2
    assert "Expected" in capsys.readouterr().err
