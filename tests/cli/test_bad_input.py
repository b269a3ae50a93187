"""What people mistype on a command line: refused in words, before a store is asked, and nothing is changed."""

from __future__ import annotations

import argparse

import pytest

from airflow_recovery.cli import main as command_line
from airflow_recovery.cli.exit_codes import ExitCode
from airflow_recovery.cli.main import SUBCOMMANDS

DAG, DATE = "flights", "2026-01-01"
POSITIONAL = {"dag": DAG, "run": DATE, "region": "raw"}


def values_of(command) -> list[tuple[str, list[str]]]:
    """Every option or positional of a subcommand that takes a value, and a command line on which it is empty."""
    parser = argparse.ArgumentParser(add_help=False)
    command.load().add_arguments(parser)
    from airflow_recovery.cli.deployment import add_standalone_arguments

    add_standalone_arguments(parser)
    positional = [each.dest for each in parser._actions if not each.option_strings]
    found = []
    for action in parser._actions:
        if action.nargs != 0:
            given = ["" if each == action.dest else POSITIONAL.get(each, "x") for each in positional]
            option = [action.option_strings[0], ""] if action.option_strings else []
            found.append((action.dest, [command.name, *given, *option]))
    return found


EMPTY = [(f"{each.name} {option}", line) for each in SUBCOMMANDS for option, line in values_of(each)]


def called(line: list[str], capsys) -> tuple[int, str]:
    """The exit code and what was said, also where argparse itself refuses."""
    try:
        code = command_line.main([line[0], "--journal", "/no/such/folder", *line[1:]])
    except SystemExit as ended:
        return int(str(ended.code)), "argparse"
    return code, capsys.readouterr().err


@pytest.mark.parametrize("line", [line for _, line in EMPTY], ids=[name for name, _ in EMPTY])
def test_an_option_that_is_empty_is_refused_and_no_store_is_asked(line, monkeypatch, capsys):
    """As ``"$DAG"`` is where the variable is not set: it must not mean the same as leaving the option out."""
    monkeypatch.setattr("airflow_recovery.cli.deployment.open_store", lambda *_, **__: pytest.fail("a store is opened"))
    code, said = called(line, capsys)
    assert code == ExitCode.USAGE
    assert said == "argparse" or ("Expected a value for" in said and "Leave the option out" in said)


def test_control_an_empty_option_means_none_where_nobody_looks(recorded, monkeypatch):
    monkeypatch.setattr(command_line, "_refuse_empty", lambda args: None)
    assert recorded.call("gc", "--grace", "", "--dry-run")[0] == ExitCode.DONE
