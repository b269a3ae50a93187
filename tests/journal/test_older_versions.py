"""What earlier versions make of today's journal: their own code, from the repository's history.

    tests/golden/older-versions.json    by commit: what each says of our golden records and events, but for "read"

A golden file as any other: what an earlier version makes of a record does not change, so a line is only ever added. The
page docs/journal-format.md has it in short. Where the history is not there, the test is skipped.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from example_events import EXAMPLE_EVENTS
from test_codec import IDENTITY, add_classes

from airflow_recovery.journal.events import event_to_json
from airflow_recovery.model.codec import _key
from airflow_recovery.model.groups import RegionGroup
from airflow_recovery.model.inputs import GroupAttempts, InputGroupRef
from airflow_recovery.model.record_kinds import RECORD_KINDS

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
EXPECTED = GOLDEN / "older-versions.json"
PROGRAM = ROOT / "tests" / "support" / "code" / "read_with_older_code.py"
VERSIONS = {
    "0b0cde42": "the first journal",
    "01595678": "before sinks that commit",
    "3b4974fe": "before pins and streaming regions",
    "0f53555f": "before writers in tokens, and locations of one's own",
    "33058add": "before groups of regions (format 2)",
    "fb6b0913": "before runs of attempts in a group",
}
"""Commits between which a format has changed."""
UNKNOWN = ("t/raw/00000001.voided", "t/raw/00000001.x-note", "sealed/00000001", "sealed-00000001", "x-note/00000001")
"""Names of kinds to come."""


def todays_journal() -> dict[str, Any]:
    """What the program is asked."""
    golden = sorted([*(GOLDEN / "v1").glob("*.json"), *(GOLDEN / "v2").glob("*.json")])
    turns = {kind.name: "" if kind.number is None else "-0001" for kind in RECORD_KINDS.values() if kind.is_of_attempt}
    return {
        "identity": [IDENTITY.dag_id, IDENTITY.run_key, IDENTITY.group_id],
        "records": {f"{path.parent.name}/{path.stem}": [path.stem.split("-")[0], path.read_text()] for path in golden},
        "events": {f"{event.type} {number}": event_to_json(event) for number, event in enumerate(EXAMPLE_EVENTS)},
        "listings": [*UNKNOWN, *(f"t/raw/00000001.{name}{turn}" for name, turn in turns.items())],
    }


def said_by(code: Path) -> dict[str, dict[str, str]]:
    """What the package in that folder makes of today's journal, but for what it reads whole."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(todays_journal()),
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer.pop("from") == str(code)
    return {
        part: {name: said for name, said in answer[part].items() if said not in ("read", "listed")} for part in answer
    }


def code_of(commit: str, folder: Path) -> Path:
    """The package as it was then. Skips the test where the repository has no history."""
    done = subprocess.run(["git", "archive", commit, "airflow_recovery"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"the history of the repository, with {commit}, is not here")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.drill
@pytest.mark.parametrize("commit", VERSIONS)
def test_what_an_earlier_version_makes_of_todays_journal(commit: str, tmp_path: Path) -> None:
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    assert said_by(code_of(commit, tmp_path)) == expected[commit]


def test_this_version_reads_all_of_its_own_journal() -> None:
    """And refuses, or passes over, the names of kinds to come."""
    said = said_by(ROOT)
    assert (said["records"], said["events"]) == ({}, {})
    assert {name: words.partition(":")[0] for name, words in said["listings"].items()} == {
        name: "passed over" if "x-" in name else "refused" for name in UNKNOWN
    }


def test_what_the_versions_since_groups_do_not_read_they_refuse_by_name() -> None:
    """The rule is kept from there on: nothing is passed over that changes the meaning.

    A record of a kind that is not known is refused where it is listed.
    """
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    listed = [expected[commit]["listings"]["t/raw/00000001.withdrawn-0001"] for commit in [*VERSIONS][-2:]]
    assert all(each.startswith("refused: ") for each in listed)
    said = [said for commit in [*VERSIONS][-2:] for said in expected[commit]["records"].values()]
    assert {each.partition(":")[0] for each in said} == {
        "refused",
        "no such kind",
        "read without absent",
        "read without absent, outdated",
        "read without airflow_run_id",
        "read without after_clear, components",
        "read without assets",
        "read without dag_run",
        "read without declared",
        "read without folder",
        "read without inputs.token",
        "read without regions.finals",
        "read without regions.optional",
        "read without undeclared",
        "read without xcoms",
    }


def test_every_field_that_came_later_is_in_the_table_of_the_page() -> None:
    assert without_row(later_keys()) == []


def test_control_a_field_that_is_in_no_row_is_seen() -> None:
    assert without_row(later_keys() | {"seals"}) == ["seals"]


def later_keys() -> set[str]:
    """The keys of all fields of records that a version before may not know."""
    classes: set[type] = set()
    for kind in RECORD_KINDS.values():
        add_classes(kind.record, classes)
    for each in (RegionGroup, InputGroupRef, GroupAttempts):
        add_classes(each, classes)
    return {
        _key(field.name, get_type_hints(each, include_extras=True)[field.name])
        for each in classes
        for field in fields(each)
        if field.metadata.get("later")
    }


def without_row(keys: set[str]) -> list[str]:
    page = (ROOT / "docs" / "journal-format.md").read_text(encoding="utf-8")
    section = page.partition("### What earlier versions make of today's journal")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (.+?) \|", section, re.MULTILINE) for name in re.findall("`(.+?)`", row)}
    return sorted(keys - named)
