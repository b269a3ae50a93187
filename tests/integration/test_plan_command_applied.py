"""``airflow recovery plan ... --apply`` in real Airflow: it clears what it names, and is refused where it is too late.

`restart` does the same in one call, here in the metadata database, PostgreSQL. Both are in Airflow's audit log.

made --+--> total
       +--> side            aside
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from pipeline import Pipeline

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.user import user_name

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

REGIONS = ("aside", "made", "side", "total")


def test_fault_16_an_applied_plan_clears_what_it_names_and_an_outdated_one_is_refused(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    run = pipeline.run("trio")
    run.hold("total")
    run.start()
    run.wait_called("total")
    for each in ("aside", "side"):
        run.wait(lambda each=each: run.state(each) == "success", f"the success of {each}")

    # While `total` is at work: it has nothing to do with `aside`, and works on.
    saved = tmp_path / "plan.json"
    saved.write_text(run.recovery("plan", "--restart", "aside", "--json"))
    assert run.recovery("plan", "--apply", str(saved)) == "Reset: aside@1.\nCleared: g.aside.\n"
    run.wait(lambda: run.tries("aside") == 2 and run.state("aside") == "success", "aside again")
    assert {region: run.tries(region) for region in REGIONS} == {"aside": 2, "made": 1, "side": 1, "total": 1}
    assert run.calls("total") == 1

    # The same page again is too old.
    keys, tries = set(run.journal().keys), {region: run.tries(region) for region in REGIONS}
    said = run.recovery("plan", "--apply", str(saved), code=ExitCode.OUTDATED)
    assert "error: this plan is outdated: attempt 2 of aside has started. Nothing was changed" in said
    assert (set(run.journal().keys), {region: run.tries(region) for region in REGIONS}) == (keys, tries)

    # `total` reads `made`, so that it is stopped at its work.
    # In the database itself, without a connection to the API server.
    said = run.recovery("restart", "made", "--json", through_api=False)
    assert sorted(json.loads(said)["cleared"]) == ["g.made", "g.side", "g.total"]
    run.wait_called("total", 2)
    run.release("total")
    journal = run.ends()

    audited = run.airflow.api("GET", f"/eventLogs?dag_id={run.dag_id}&run_id={quote(run.run_id)}&limit=1000")
    by_event = {each["event"]: each for each in audited["event_logs"] if "recovery" in each["event"]}
    assert by_event["airflow_recovery.clear"]["owner"] == run.airflow.admin.user
    by_command = by_event["cli_recovery_clear"]
    assert (by_command["owner"], sorted(json.loads(by_command["extra"])["consumers"])) == (
        user_name(),
        ["g.made", "g.side", "g.total"],
    )
    assert "'restart', 'trio'" in json.loads(by_command["extra"])["full_command"]

    assert journal.executions() == dict.fromkeys(REGIONS, 2)
    assert journal.fenced("total") == ["superseded"]
    assert journal.rows("total") == [(sum(range(50)),)]
    journal.check()
