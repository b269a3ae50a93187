"""Every command with a wrong DAG, run or region, a damaged journal, a denied store: one clear line, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_recovery.console.deployment import StandaloneDeployment
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.main import subcommands
from airflow_recovery.testing.faulty_store import Fault, FaultKind, FaultyStore, Verb

DAG, DATE = "flights", "2026-01-01"
OF_A_RUN = [
    subcommand.name
    for subcommand in subcommands()
    if subcommand.name not in ("gc", "doctor", "advise", "costs", "adopt", "impact")
]
OF_A_JOURNAL = [*OF_A_RUN, "gc", "advise", "costs", "adopt"]
"""What can't be opened is not their business, as it is `doctor`'s."""
OF_A_REGION = {"restart", "confirm", "abandon", "release", "pin", "why"}
"""Their third argument is a region."""


def arguments(command: str, dag: str = DAG, run: str = DATE, region: str = "raw") -> list[str]:
    if command == "gc":
        return [command, "--dag", dag]
    if command in ("advise", "costs"):
        return [command, dag]
    reason = ["--reason", "bad rows"] if command == "withdraw" else []
    return [command, dag, run, *([region] if command in OF_A_REGION else []), *reason]


@pytest.fixture
def world(recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where `export` writes
    found = recorded.world()
    found.until_green()
    return found


def refused(recorded, command: list[str], code: ExitCode) -> str:
    assert recorded.call(*command) == (code, "")
    error = recorded.errors
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("command", [*OF_A_RUN, "advise", "costs", "adopt"])
def test_a_wrong_dag(recorded, world, command):
    error = refused(recorded, arguments(command, dag="flihgts"), ExitCode.NOT_FOUND)
    assert "has no DAG 'flihgts'. The nearest DAGs of 1: flights" in error


@pytest.mark.parametrize("command", OF_A_RUN)
def test_a_wrong_run(recorded, world, command):
    error = refused(recorded, arguments(command, run="2026-01-02"), ExitCode.NOT_FOUND)
    assert "date-2026-01-01T000000Z" in error


@pytest.mark.parametrize("command", OF_A_RUN)
def test_a_wrong_group(recorded, world, command):
    error = refused(recorded, [*arguments(command), "--group", "wether"], ExitCode.NOT_FOUND)
    assert "has no group 'wether'" in error


@pytest.mark.parametrize("command", sorted(OF_A_REGION))
def test_a_wrong_region(recorded, world, command):
    assert "did you mean 'by_route'" in refused(recorded, arguments(command, region="by_rout"), ExitCode.NOT_FOUND)


@pytest.mark.parametrize("option", ["--restart", "--from", "--failed", "--lost", "--changed"])
def test_a_wrong_region_in_a_plan(recorded, world, option):
    refused(recorded, [*arguments("plan"), option, "by_rout"], ExitCode.NOT_FOUND)


HOSTILE = {
    "nan": b'{"format": 1, "body": {"x": NaN}}',
    "a key twice": b'{"format": 1, "format": 1}',
    "too deep": b'{"body": ' + b"[" * 40 + b"]" * 40 + b"}",
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize("command", ["show", "plan", "restart", "rebuild"])
def test_fault_87_a_document_that_no_writer_of_ours_leaves(recorded, world, command, hostile):
    (plan,) = [info.key for info in world.journal_store.list() if "/plan/" in info.key]
    world.journal_store.put(plan, hostile)
    refused(recorded, arguments(command), ExitCode.NO_ANSWER)


@pytest.mark.parametrize("command", ["show", "plan", "restart", "release", "pin"])
def test_fault_86_a_path_that_leaves_its_place(recorded, world, command):
    (outcome,) = [info.key for info in world.journal_store.list() if info.key.endswith("raw/00000001.outcome")]
    document = json.loads(world.journal_store.get(outcome).body)
    document["body"]["outputs"][0]["location"] += "/../../etc"
    del document["crc"]
    world.journal_store.put(outcome, json.dumps(document).encode())
    assert "stays where it begins" in refused(recorded, arguments(command), ExitCode.NO_ANSWER)


@pytest.mark.parametrize("command", ["show", "plan", "restart", "rebuild", "release", "pin"])
def test_fault_83_a_journal_of_a_newer_version_says_upgrade_and_nothing_is_changed(recorded, world, command):
    (outcome,) = [info.key for info in world.journal_store.list() if info.key.endswith("raw/00000001.outcome")]
    world.journal_store.put(outcome, b'{"format": 3}')
    before = [each.key for each in world.journal_store.list()]
    assert "Upgrade airflow-recovery" in refused(recorded, arguments(command), ExitCode.NO_ANSWER)
    assert [each.key for each in world.journal_store.list()] == before


# `verify` reports the damage, `gc` leaves the run as it is, `export` packs it: each says so.
@pytest.mark.parametrize(
    "command", [each for each in OF_A_RUN if each not in ("verify", "export", "events", "channels")]
)
@pytest.mark.parametrize("damage", [b"", b"\x00\xff", b"{}", b'{"format": 99}', b"[" * 50])
def test_a_damaged_journal(recorded, world, command, damage):
    (plan,) = [info.key for info in world.journal_store.list() if "/plan/" in info.key]
    world.journal_store.put(plan, damage)
    assert plan in refused(recorded, arguments(command), ExitCode.NO_ANSWER)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("verify", ExitCode.VIOLATED),
        ("gc", ExitCode.NO_ANSWER),
        *((command, ExitCode.DONE) for command in ("export", "events", "channels")),
    ],
)
def test_a_damaged_journal_of_commands_that_go_on(recorded, world, command, code):
    (plan,) = [info.key for info in world.journal_store.list() if "/plan/" in info.key]
    world.journal_store.put(plan, b"{}")
    found, said = recorded.call(*arguments(command))
    assert (found, recorded.errors) == (code, "")
    assert said


@pytest.mark.parametrize("command", OF_A_JOURNAL)
@pytest.mark.parametrize(
    ("kind", "words"), [(FaultKind.DENIED, "403"), (FaultKind.TIMEOUT, "time-out"), (FaultKind.SLOW_DOWN, "503")]
)
def test_a_store_that_denies_or_gives_no_answer(recorded, world, command, kind, words, monkeypatch):
    opened = StandaloneDeployment.__init__

    def open_faulty(self, *args, **options):
        opened(self, *args, **options)
        self.journal = FaultyStore(self.journal, [Fault(verb, kind, times=None) for verb in Verb])

    monkeypatch.setattr(StandaloneDeployment, "__init__", open_faulty)
    assert words in refused(recorded, arguments(command), ExitCode.NO_ANSWER)


@pytest.mark.parametrize("command", OF_A_JOURNAL)
def test_no_journal_is_named(command, capsys, monkeypatch):
    from airflow_recovery.console.main import main

    monkeypatch.delenv("AIRFLOW__RECOVERY__JOURNAL", raising=False)
    assert main(arguments(command)) == ExitCode.USAGE
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    "command",
    [
        ["gc", "--retention", "soon"],
        ["gc", "--grace", "soon"],
        ["gc", "--purge", "--older-than", "soon"],
        ["plan", DAG, DATE, "--diff", "nowhere.json"],
        ["plan", DAG, DATE, "--apply", "nowhere.json"],
        ["plan", DAG, DATE, "--lost", "raw", "--apply"],
        ["plan", DAG, DATE, "--connect", "http://x"],
        ["pin", DAG, DATE, "--off"],
        ["export", DAG, DATE, "--out", "no/folder/x.zip"],
    ],
    ids=" ".join,
)
def test_what_can_not_be_meant(recorded, world, command):
    assert recorded.call(*command)[0] == ExitCode.USAGE
    assert recorded.errors.startswith("error: ")
    assert recorded.errors.count("\n") == 1


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(recorded, world):
    """As in ``... events | head``: the pipe is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "airflow_recovery", "show", DAG, DATE, "--journal", recorded.uri]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, cwd=root)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
