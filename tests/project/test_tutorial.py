"""docs/tutorial.md, line by line: its files are written, its commands are run, and what they print is compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from environments import Environment

from airflow_recovery.testing.patience import HANG_S, NEVER_S

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r'^```(?:console|python title="(?P<file>[^"]+)")\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
ANYTHING = "..."


def steps(page: str) -> list[tuple[str, str]]:
    """(file, its text), and ("", command with its output), in the order of the page."""
    found = []
    for match in BLOCK.finditer(page):
        if match["file"]:
            found.append((match["file"], match["text"]))
        else:
            found += [("", f"$ {command}") for command in match["text"].split("$ ", 1)[1].split("\n$ ")]
    return found


def differs(expected: list[str], said: str) -> str | None:
    """The first expected line that is not said, in order; ``...`` stands for anything."""
    at = 0
    lines = [" ".join(line.split()) for line in said.splitlines()]
    for line in (" ".join(each.split()) for each in expected if each.strip() not in ("", ANYTHING)):
        at = next((i + 1 for i in range(at, len(lines)) if lines[i].startswith(line)), -1)
        if at < 0:
            return line
    return None


def test_lines_are_compared_in_order_and_loosely() -> None:
    assert differs(["a", "...", "c  d"], "a b\nx\nc d e") is None
    assert differs(["c", "a"], "a\nc") == "a"


def run(command: str, folder: Path, env: dict[str, str]) -> str:
    """What it prints. Nothing of it is left, whatever becomes of it."""
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=HANG_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, f"{command}\n{said[-4000:]}"
    return said


@pytest.mark.spark
@pytest.mark.airflow
def test_a_newcomer_can_follow_it(tmp_path: Path) -> None:
    env = Environment(tmp_path / "venv", "spark").variables()
    env |= {"AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": str(NEVER_S)}
    folder = tmp_path / "new"
    folder.mkdir()
    exports = ["set -e"]
    for file, text in steps(TUTORIAL.read_text()):
        if file:
            (folder / file).write_text(text)
            continue
        command, *expected = text.removeprefix("$ ").splitlines()
        if command.startswith("export "):
            exports.append(command)
            continue
        said = run("\n".join([*exports, command]), folder, env)
        missing = differs(expected, said)
        assert missing is None, f"{command}: expected {missing!r}, found\n{said}"
