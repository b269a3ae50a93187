"""``why``: what the newest attempt was made of, beside the attempt before it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from components_of_claims import made_of

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.model.components import Component
from airflow_recovery.model.records import AttemptState, FenceCause, FingerprintRecord, Outcome
from airflow_recovery.story.compared_components import unseen_code, unseen_text
from airflow_recovery.story.run_view import view_run

RUN = ("flights", "2026-01-01")
CODE = Component("application", "ab" * 32)
ANSI = Component("setting spark.sql.ansi.enabled", '"true"')
IMAGE = Component("image", "spark:4", seen=False, decides=False)
REMOTE = Component("jars 1", "s3a://code/a.jar", seen=False)


@pytest.fixture
def world(recorded):
    found = recorded.world()
    found.until_green()
    return found


def claimed(world, *components: Component, **changes: object) -> None:
    """Another attempt of raw, which ends without a result."""
    journal = world.journal()
    number = journal.load(journal.list(["raw"])).of("raw").latest_attempt
    record = FingerprintRecord(components)
    journal.put_components(record)
    claim = replace(journal.read_claim("raw", number), attempt=number + 1, writer=journal.writer)
    journal.claim(replace(claim, components=record.name, **changes))
    ended = Outcome("raw", number + 1, AttemptState.FENCED, journal.writer, "now", cause=FenceCause.SUPERSEDED)
    journal.fence(ended)


def shown(recorded) -> tuple[dict[str, Any], str]:
    code, text = recorded.call("why", *RUN, "raw")
    assert code == ExitCode.DONE
    code, document = recorded.call("why", *RUN, "raw", "--json")
    assert code == ExitCode.DONE
    return json.loads(document), text


def test_a_plan_names_code_that_can_not_be_seen_of_the_attempts_that_count(recorded, world):
    code, text = recorded.call("plan", *RUN)
    assert (code, "can't be seen" in text) == (ExitCode.DONE, False)
    made_of(world.journal(), "busiest", CODE, IMAGE, REMOTE)
    _, text = recorded.call("plan", *RUN)
    assert text.rstrip().endswith(f"(unseen_code= decides what a clear does): busiest: {REMOTE.name}.")
    _, document = recorded.call("plan", *RUN, "--json")
    assert json.loads(document)["unseen_code"] == {"busiest": [REMOTE.name]}


@pytest.mark.control
def test_control_without_the_recorded_components_a_plan_says_nothing_of_unseen_code(recorded, world, monkeypatch):
    monkeypatch.setattr("airflow_recovery.journal.journal.Journal.read_all_components", lambda *_: {})
    made_of(world.journal(), "busiest", CODE, IMAGE, REMOTE)
    assert "can't be seen" not in recorded.call("plan", *RUN)[1]


def test_a_plan_reads_claims_only_if_something_can_not_be_seen(recorded, world, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a claim was read")

    made_of(world.journal(), "busiest", CODE, IMAGE)
    view = view_run(world.journal())
    monkeypatch.setattr("airflow_recovery.journal.journal.Journal.read_claims", refuse)
    assert unseen_code(view) == {}


def test_of_many_regions_with_unseen_code_ten_are_named():
    text = unseen_text({f"t{number}": ("jars 1",) for number in range(12)})
    assert text.endswith("t9: jars 1; and 2 more regions.")
    assert unseen_text({}) == ""


def test_every_component_old_and_new_and_which_one_decided(recorded, world):
    claimed(world, CODE, IMAGE)
    claimed(world, replace(CODE, value="cd" * 32), replace(IMAGE, value="spark:5"), ANSI)
    document, text = shown(recorded)
    assert (document["attempt"], document["before"]) == (3, 2)
    rows = {row["name"]: (row["before"], row["now"], row["changed"], row["decides"]) for row in document["components"]}
    assert rows == {
        "application": ("ab" * 32, "cd" * 32, True, True),
        "image": ("spark:4", "spark:5", True, False),
        ANSI.name: (None, '"true"', True, True),
    }
    assert f"raw@3 differs from attempt 2 in: application, {ANSI.name}." in text
    assert "changed, decided" in text
    assert "changed, does not decide; can't be seen" in text
    assert text.rstrip().endswith(
        "To run it again whatever this table says: airflow recovery restart flights date-2026-01-01T000000Z raw"
    )


def test_an_attempt_of_the_same_components_says_so_and_one_after_a_clear_says_what_is_unseen(recorded, world):
    claimed(world, CODE, REMOTE)
    claimed(world, CODE, REMOTE)
    assert "raw@3 has the same code, settings and arguments as attempt 2." in shown(recorded)[1]
    claimed(world, CODE, REMOTE, after_clear=True)
    assert "raw@4 ran because its task was cleared, and can't be seen: jars 1." in shown(recorded)[1]


def test_what_is_not_recorded_is_said(recorded, world):
    document, text = shown(recorded)
    assert document["components"] == []
    assert "raw@1: its components are not recorded" in text
    claimed(world, CODE)
    assert "raw@2 is the first attempt with components" in shown(recorded)[1]


def test_a_region_that_is_not_there_is_refused_by_name(recorded, world):
    assert recorded.call("why", *RUN, "row")[0] == ExitCode.NOT_FOUND
    assert "'row' is not in this plan" in recorded.errors
