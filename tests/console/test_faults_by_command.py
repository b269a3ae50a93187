"""Faults as a person at the command line meets them (docs/faults.md). Others: `test_wrong_arguments.py` and its kin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import subcommands
from airflow_recovery.journal.owner import own_prefix, own_results
from airflow_recovery.planning.plan import Plan
from airflow_recovery.store.local import LocalStore

RUN = ("flights", "2026-01-01")
ALL = ("raw", "by_route", "by_carrier", "busiest")


@pytest.fixture
def world(recorded):
    return recorded.world()


def planned(recorded, *options: str) -> tuple[str, ...]:
    code, said = recorded.call("plan", *RUN, *options, "--json")
    assert code == ExitCode.DONE, recorded.errors
    return Plan.from_json(json.loads(said)["plan"]).running


def test_fault_17_a_task_that_is_cleared_while_a_plan_is_applied_leaves_no_vertex_in_between(recorded, world):
    world.until_green()
    code, said = recorded.call("restart", *RUN, "raw")
    assert code == ExitCode.CLEAR_BY_HAND
    assert "Reset: raw@1" in said
    # Before anybody clears what the command has named, a user clears another task, and that alone.
    world.airflow.clear("busiest")
    assert planned(recorded) == ALL
    world.until_green()
    assert {name: world.current(name) for name in ALL} == dict.fromkeys(ALL, 2)
    assert planned(recorded) == ()


def test_fault_65_what_a_failure_has_blocked_is_in_the_plan_of_the_repair(recorded, world):
    world.go_all(["raw"])
    world.airflow.mark("by_route", "failed")
    world.airflow.mark("busiest", "upstream_failed")
    assert planned(recorded) == ("by_route", "by_carrier", "busiest")
    code, said = recorded.call("plan", *RUN, "--apply")
    assert code == ExitCode.CLEAR_BY_HAND
    for name in ("by_route", "busiest"):
        assert name in said.partition("airflow tasks clear")[2]


def test_fault_66_a_mark_by_hand_changes_no_plan(recorded, world):
    world.go_all(["raw", "by_route"])
    before = planned(recorded)
    world.airflow.mark("raw", "failed")
    world.airflow.mark("by_carrier", "success")
    assert planned(recorded) == before == ("by_carrier", "busiest")
    assert "by_carrier" in recorded.call("show", *RUN)[1]


# `doctor` says it in a line of its report (tests/doctor/test_stores.py).
@pytest.mark.parametrize("command", [subcommand.name for subcommand in subcommands() if subcommand.name != "doctor"])
def test_fault_82_the_journal_of_another_deployment_is_neither_shown_nor_touched(
    recorded, world, command, monkeypatch, tmp_path: Path
):
    world.until_green()
    own_prefix(world.journal_store, "north")
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "south")
    monkeypatch.chdir(tmp_path)
    before = [each.key for each in world.journal_store.list()]
    region = ["by_route"] if command in ("restart", "release", "pin", "withdraw", "confirm", "abandon", "why") else []
    region += ["--reason", "bad"] if command == "withdraw" else []
    options = {"gc": ["--dag", RUN[0]], "impact": ["--from", "journal"], "advise": [RUN[0]], "costs": [RUN[0]]}
    code, said = recorded.call(command, *options.get(command, [*RUN, *region]))
    assert (code, said) == (ExitCode.USAGE, "")
    assert "found that of 'north'" in recorded.errors
    assert recorded.errors.count("\n") == 1
    assert [each.key for each in world.journal_store.list()] == before


def test_fault_82_control_without_a_look_at_the_owner_its_data_goes(recorded, world, monkeypatch):
    world.until_green()
    own_prefix(world.journal_store, "north")
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "south")
    monkeypatch.setattr("airflow_recovery.console.deployment.check_owner", lambda store, name: None)
    assert recorded.call("restart", *RUN, "by_route")[0] == ExitCode.CLEAR_BY_HAND
    assert world.state().of("by_route").reset_watermark == 1


def test_fault_102_the_results_of_another_journal_are_not_released(recorded, world, tmp_path: Path):
    world.until_green()
    own_results(LocalStore(f"file://{tmp_path}/another"), world.results)
    before = [each.key for each in world.results.list()]
    assert recorded.call("release", *RUN, "raw", "--force", "--results", world.results.base_uri) == (ExitCode.USAGE, "")
    assert "found that it holds those of the journal" in recorded.errors
    assert [each.key for each in world.results.list()] == before


def test_fault_102_control_without_the_look_they_go(recorded, world, tmp_path: Path, monkeypatch):
    world.until_green()
    own_results(LocalStore(f"file://{tmp_path}/another"), world.results)
    monkeypatch.setattr("airflow_recovery.console.release.check_results", lambda journal, results: None)
    before = [each.key for each in world.results.list()]
    assert recorded.call("release", *RUN, "raw", "--force", "--results", world.results.base_uri)[0] == ExitCode.DONE
    assert [each.key for each in world.results.list()] != before


def test_fault_85_a_file_that_was_exchanged_is_found_and_named(recorded, world):
    world.until_green()
    (file, *_) = [each.key for each in world.results.list() if "busiest" in each.key]
    world.results.put(file, b"forged by somebody who may write data")
    assert planned(recorded) == ("busiest",)
    code, said = recorded.call("verify", *RUN)
    assert code == ExitCode.VIOLATED
    assert Path(file).name in said
