"""What a command imports is most of the second that a person waits for it (`benchmarks/command_line.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_recovery.console.main import subcommands
from airflow_recovery.story.question import QUESTIONS

HEAVY = {"airflow", "boto3", "botocore", "jinja2", "numpy", "pandas", "pyarrow", "pyspark", "requests", "rich"}
COMMANDS = {subcommand.module for subcommand in subcommands() if subcommand.module}

SCRIPT = """
import contextlib, io, json, sys
from airflow_recovery.console.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        main(sys.argv[1:])
    except SystemExit:
        pass
print(json.dumps(sorted(sys.modules)))
"""


def imported(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("command", ["show", "verify"])
def test_of_the_commands_only_the_one_that_is_given_is_imported_and_no_client_of_another_store(
    command: str, tmp_path: Path
) -> None:
    modules = imported(command, "dag", "run", "--journal", f"file://{tmp_path}/journal")
    assert modules & COMMANDS == {f"airflow_recovery.console.{command}"}
    assert modules & HEAVY == set()


def test_of_the_questions_only_the_one_that_is_asked_is_imported(tmp_path: Path) -> None:
    modules = imported("events", "dag", "run", "--journal", f"file://{tmp_path}/journal")
    assert modules & COMMANDS == set()
    asked = {name for name, question in QUESTIONS.items() if question.function.partition(":")[0] in modules}
    assert asked == {"events", "channels"}  # bundles, which any question of a run may read, are of the second's module
    assert modules & HEAVY == set()


def test_help_imports_no_command() -> None:
    assert imported("--help") & COMMANDS == set()
    assert imported("show", "--help") & COMMANDS == {"airflow_recovery.console.show"}


@pytest.mark.slow
def test_control_a_journal_on_s3_imports_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    modules = imported("show", "dag", "run", "--journal", "s3://b/j", "--endpoint-url", "http://127.0.0.1:1")
    assert modules & HEAVY == {"botocore"}
