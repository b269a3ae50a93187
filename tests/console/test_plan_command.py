"""``python -m airflow_recovery plan``: against a journal in a folder, and over HTTP in S3."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import StoreAccessDenied
from airflow_recovery.planning.plan import Plan
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing import S3Server

RUN = ("flights", "2026-01-01")


def finished(recorded):
    world = recorded.world()
    world.until_green()
    return world


def test_a_finished_run_is_kept(recorded):
    finished(recorded)
    code, said = recorded.call("plan", *RUN)
    assert code == ExitCode.DONE
    assert said.startswith("DAG flights, run date-2026-01-01T000000Z, group flights\nPlan ")
    assert "of jobs:flights: the only one." in said
    assert "Publish 1 is the newest." in said
    assert "busiest     keep    @1       attempt 1 is valid, 1 files are as registered" in said
    assert "4 regions: 4 keep." in said
    assert "Why:" not in said


def test_a_lost_result_and_what_follows_as_a_table_and_a_tree(recorded):
    world = finished(recorded)
    world.restart("by_route")
    world.delete_results("raw", 1)
    _, said = recorded.call("plan", *RUN)
    assert "4 regions: 4 run." in said
    assert "raw: result is missing (attempt 1: " in said
    assert "part-0 is gone (listed without it))\n│   asked a listing of file:///" in said
    assert "\n└── by_carrier: input was made again (read raw@1, which is to be made again)\n" in said
    assert "by_route: reset (user: asked for)\n│   asked reset of by_route@1: user: asked for\n└── busiest" in said


@pytest.mark.parametrize(
    ("options", "running"),
    [
        (["--restart", "by_route"], ["by_route", "busiest"]),
        (["--from", "raw"], ["raw", "by_route", "by_carrier", "busiest"]),
        (["--recompute"], ["raw", "by_route", "by_carrier", "busiest"]),
        (["--failed", "by_carrier", "--cause", "boom"], ["by_carrier", "busiest"]),
        (["--lost", "busiest"], ["busiest"]),
        (["--lost", "busiest.busiest", "--lost", "by_route"], ["by_route", "busiest"]),
        (["--changed", "by_carrier"], ["by_carrier", "busiest"]),
        (["--restart", "busiest", "--lost", "by_route.by_route"], ["by_route", "busiest"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_what_if(recorded, options, running):
    world = finished(recorded)
    before = sorted(info.key for info in world.journal_store.list())
    code, said = recorded.call("plan", *RUN, *options, "--json")
    assert code == ExitCode.DONE
    assert Plan.from_json(json.loads(said)["plan"]).running == tuple(running)
    assert sorted(info.key for info in world.journal_store.list()) == before


def test_two_plans_are_compared(recorded, tmp_path: Path):
    world = finished(recorded)
    saved = tmp_path / "plan.json"
    saved.write_text(recorded.call("plan", *RUN, "--json")[1])
    assert recorded.call("plan", *RUN, "--diff", str(saved)) == (ExitCode.DONE, f"No difference to {saved}.\n")
    world.delete_results("busiest", 1)
    code, said = recorded.call("plan", *RUN, "--diff", str(saved))
    assert code == ExitCode.DIFFERENT
    assert said.startswith("busiest: keep @1 -> run @1 (result is missing (attempt 1: ")


def test_two_plans_are_compared_for_a_script(recorded, tmp_path: Path):
    world = finished(recorded)
    saved = tmp_path / "plan.json"
    saved.write_text(recorded.call("plan", *RUN, "--json")[1])
    code, said = recorded.call("plan", *RUN, "--json", "--diff", str(saved))
    assert (code, json.loads(said)) == (ExitCode.DONE, {"differences": []})
    world.delete_results("busiest", 1)
    code, said = recorded.call("plan", *RUN, "--json", "--diff", str(saved))
    assert code == ExitCode.DIFFERENT
    (found,) = json.loads(said)["differences"]
    assert (found["region"], found["before"]["action"], found["after"]["action"]) == ("busiest", "keep", "run")
    assert found["text"].startswith("busiest: keep @1 -> run @1 (result is missing")


# applying


def test_a_restart_is_written_and_what_to_clear_is_told(recorded):
    world = finished(recorded)
    code, said = recorded.call("plan", *RUN, "--restart", "by_route", "--apply")
    assert code == ExitCode.CLEAR_BY_HAND
    assert "Reset: by_route@1." in said
    assert (
        "airflow tasks clear flights --task-regex '^(flights\\.by_route|flights\\.busiest)$' "
        "--start-date 2026-01-01T00:00:00+00:00 --end-date 2026-01-01T00:00:00+00:00 --yes"
    ) in said
    assert "POST /api/v2/dags/flights/clearTaskInstances" in said
    body = json.loads(said.rstrip().splitlines()[-1])
    assert (body["dag_run_id"], body["task_ids"]) == ("run", ["flights.by_route", "flights.busiest"])
    assert world.state().of("by_route").reset_watermark == 1


def test_a_script_is_told_what_to_clear(recorded):
    finished(recorded)
    code, said = recorded.call("plan", *RUN, "--restart", "busiest", "--apply", "--json")
    assert code == ExitCode.CLEAR_BY_HAND
    assert json.loads(said) == {
        "resets": [["busiest", 1]],
        "airflow_run_id": "run",
        "clear": ["flights.busiest"],
        "cleared": None,
    }


def test_a_saved_plan_is_applied_and_refused_where_the_run_has_moved_on(recorded, tmp_path: Path):
    world = finished(recorded)
    saved = tmp_path / "plan.json"
    saved.write_text(recorded.call("plan", *RUN, "--restart", "by_route", "--json")[1])
    assert recorded.call("plan", *RUN, "--apply", str(saved))[0] == ExitCode.CLEAR_BY_HAND
    assert recorded.call("plan", *RUN, "--apply", str(saved))[0] == ExitCode.OUTDATED
    assert "error: this plan is outdated: by_route@1 was reset by " in recorded.errors
    world.airflow.clear("by_route")
    world.until_green()
    assert recorded.call("plan", *RUN, "--apply", str(saved))[0] == ExitCode.OUTDATED
    assert "error: this plan is outdated: attempt 2 of by_route has started." in recorded.errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--restart", "raw"], "found --restart as well"),
        (["--from", "raw", "--cause", "x"], "found --from, --cause as well"),
        (["--diff", "x.json"], "Expected --apply or --diff, found both"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_saved_plan_does_not_say_is_not_passed_over(recorded, tmp_path: Path, options, said):
    world = finished(recorded)
    saved = tmp_path / "plan.json"
    saved.write_text(recorded.call("plan", *RUN, "--restart", "by_route", "--json")[1])
    assert recorded.call("plan", *RUN, "--apply", str(saved), *options)[0] == ExitCode.USAGE
    assert said in recorded.errors
    assert world.state().of("by_route").reset_watermark == 0


def test_nothing_to_restart_needs_no_clear(recorded):
    recorded.world().go("raw")
    finished(recorded)
    code, said = recorded.call("plan", *RUN, "--apply")
    assert (code, said.rstrip().splitlines()[-2:]) == (
        ExitCode.DONE,
        ["Reset: nothing had to be reset.", "Cleared: nothing."],
    )


def test_what_can_not_be_brought_about_is_not_applied(recorded):
    finished(recorded)
    assert recorded.call("plan", *RUN, "--lost", "raw", "--apply")[0] == ExitCode.USAGE
    assert "error: Expected a plan of restarts alone, found: raw is gone." in recorded.errors


def test_another_runs_plan_is_refused(recorded, tmp_path: Path):
    finished(recorded)
    recorded.world(key="run-manual").until_green()
    saved = tmp_path / "plan.json"
    saved.write_text(recorded.call("plan", *RUN, "--json")[1])
    assert recorded.call("plan", "flights", "manual", "--apply", str(saved))[0] == ExitCode.USAGE
    assert "found one of flights / date-2026-01-01T000000Z / flights" in recorded.errors
    saved.write_text("{}")
    assert recorded.call("plan", *RUN, "--diff", str(saved))[0] == ExitCode.USAGE
    assert "Expected a plan saved with --json" in recorded.errors


# errors


def test_a_denied_store_is_no_answer(recorded, monkeypatch):
    finished(recorded)
    listed = LocalStore.list

    def denied(self, prefix="", *, start_after=""):
        if "busiest" in self.base_uri:
            raise StoreAccessDenied("403: not for you")
        return listed(self, prefix, start_after=start_after)

    monkeypatch.setattr(LocalStore, "list", denied)
    assert recorded.call("plan", *RUN) == (ExitCode.NO_ANSWER, "")
    assert recorded.errors == "error: 403: not for you\n"


def test_an_unknown_region_or_result(recorded):
    finished(recorded)
    assert recorded.call("plan", *RUN, "--restart", "by_rout")[0] == ExitCode.NOT_FOUND
    assert "error: 'by_rout' is no region and no vertex of jobs:flights (did you mean 'by_route'?)" in recorded.errors
    assert recorded.call("plan", *RUN, "--lost", "nothing")[0] == ExitCode.NOT_FOUND


def test_without_a_journal_the_option_is_named(monkeypatch, capsys):
    from airflow_recovery.console.main import main

    monkeypatch.delenv("AIRFLOW__RECOVERY__JOURNAL", raising=False)
    assert main(["plan", *RUN]) == ExitCode.USAGE
    assert "Give --journal s3://bucket/prefix, or set AIRFLOW__RECOVERY__JOURNAL" in capsys.readouterr().err


def test_over_http(s3_server: S3Server, recorded_in, capsys, monkeypatch):
    bucket = f"plan-{uuid.uuid4().hex[:8]}"
    s3_server.create_bucket(bucket)
    options = ("--endpoint-url", s3_server.endpoint_url, "--s3-region", "us-east-1")
    recorded = recorded_in(f"s3://{bucket}", capsys, options)
    world = recorded.world()
    world.until_green()
    world.delete_results("busiest", 1)
    code, said = recorded.call("plan", *RUN)
    assert code == ExitCode.DONE
    assert (
        f"busiest: result is missing (attempt 1: s3://{bucket}/journal/_results/flights/date-2026-01-01T000000Z/"
        in said
    )
    assert "4 regions: 1 run, 3 keep." in said
    assert recorded.call("plan", *RUN, "--restart", "raw", "--apply")[0] == ExitCode.CLEAR_BY_HAND
    assert world.state().of("raw").reset_watermark == 1
    assert recorded.call("show", *RUN)[0] == ExitCode.DONE
