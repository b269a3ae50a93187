"""``restart``: the plan and its application in one call."""

from __future__ import annotations

import json

import pytest

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.planning.plan import Plan

RUN = ("flights", "2026-01-01")


@pytest.fixture
def world(recorded):
    found = recorded.world()
    found.until_green()
    return found


def test_a_region_and_its_reader_run_again(recorded, world):
    code, said = recorded.call("restart", *RUN, "by_route")
    assert code == ExitCode.CLEAR_BY_HAND  # there is no Airflow here
    assert "4 regions: 2 run, 2 keep." in said
    assert "Reset: by_route@1" in said
    assert "airflow tasks clear flights" in said
    world.new_airflow()
    world.until_green()
    assert {name: world.current(name) for name in ("raw", "by_route", "by_carrier", "busiest")} == {
        "raw": 1,
        "by_route": 2,
        "by_carrier": 1,
        "busiest": 2,
    }


@pytest.mark.parametrize(
    ("asked", "running"),
    [
        (["by_route", "by_carrier"], ("by_route", "by_carrier", "busiest")),
        (["--from", "raw"], ("raw", "by_route", "by_carrier", "busiest")),
        (["--everything"], ("raw", "by_route", "by_carrier", "busiest")),
    ],
)
def test_as_json_without_doing_it(recorded, world, asked, running):
    before = [each.key for each in world.journal_store.list()]
    code, said = recorded.call("restart", *RUN, *asked, "--dry-run", "--json")
    document = json.loads(said)
    assert (code, Plan.from_json(document["plan"]).running) == (ExitCode.DONE, running)
    assert "resets" not in document
    assert [each.key for each in world.journal_store.list()] == before


def test_nothing_to_restart_is_no_restart_of_everything(recorded, world):
    assert recorded.call("restart", *RUN) == (ExitCode.USAGE, "")
    assert recorded.errors == (
        "error: Expected what to restart, found nothing: name regions, --from V or --everything.\n"
    )


def test_fault_16_a_run_that_moves_on_between_plan_and_application_is_left_alone(recorded, world, monkeypatch):
    from airflow_recovery.console import restart

    def apply_and_clear(*args):
        world.restart("by_route")
        world.until_green()
        return done(*args)

    done = restart.apply_and_clear
    monkeypatch.setattr(restart, "apply_and_clear", apply_and_clear)
    code, said = recorded.call("restart", *RUN, "by_route")
    assert (code, said) == (ExitCode.OUTDATED, "")
    assert "this plan is outdated: attempt 2 of by_route has started. Nothing was changed" in recorded.errors
    assert world.state().of("by_route").reset_watermark == 1  # our own restart's, not the refused one's
