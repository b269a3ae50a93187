"""Shell completion is Airflow's own (argcomplete over its parser): our commands and options are in it."""

from __future__ import annotations

import argcomplete
import argcomplete.lexers
import pytest

from airflow_recovery.console.main import subcommands


@pytest.fixture(scope="module")
def finder() -> argcomplete.CompletionFinder:
    """Of Airflow's parser, as `airflow` itself hands it to argcomplete."""
    from airflow.cli.cli_parser import get_parser

    return argcomplete.CompletionFinder(get_parser.__wrapped__())


def completions(finder: argcomplete.CompletionFinder, line: str) -> set[str]:
    """What a shell is offered after ``line``."""
    _, prefix, _, words, _ = argcomplete.lexers.split_line(line, len(line))
    return {completion.strip() for completion in finder._get_completions(words, prefix, "", None)}


def test_the_group_and_its_commands(finder) -> None:
    assert "recovery" in completions(finder, "airflow reco")
    assert {subcommand.name for subcommand in subcommands()} <= completions(finder, "airflow recovery ")
    assert completions(finder, "airflow recovery re") == {"rebuild", "release", "restart"}


@pytest.mark.parametrize("command", [subcommand.name for subcommand in subcommands()])
def test_every_command_has_json(finder, command: str) -> None:
    assert completions(finder, f"airflow recovery {command} --js") == {"--json"}


def test_values_that_are_known_beforehand(finder) -> None:
    assert completions(finder, "airflow recovery events dag run --type Region") == {"RegionKept", "RegionSkipped"}
