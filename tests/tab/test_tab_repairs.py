"""The Recovery tab of a real Airflow repairs a run of a declared job that uses Spark Connect.

made --> total        `total` fails, and the result of `made` is lost
"""

from __future__ import annotations

import pytest
from airflows_pages import log_in, open_tab
from browser import Browser
from pipeline import Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.browser, pytest.mark.spark, pytest.mark.s3]


@pytest.mark.smoke
def test_the_tab_runs_a_failed_step_and_the_producer_of_a_lost_result_again(
    pipeline: Pipeline, in_airflow: Browser
) -> None:
    run = pipeline.run("chain", name="in-the-tab")
    run.make_broken("total")
    run.start().ends("failed")
    run.repair("total")
    run.delete("made")

    log_in(in_airflow, pipeline.airflow, pipeline.airflow.admin)
    open_tab(in_airflow, pipeline.airflow, run.run_id, run.dag_id)
    in_airflow.press("What must run?")
    in_airflow.reads("2 run", "#details")
    in_airflow.press("Run this plan")

    in_airflow.reads("Cleared: g.made, g.total", "#details")
    journal = run.ends()
    assert journal.executions() == {"made": 2, "total": 2}
    assert journal.rows("total") == [(sum(range(50)),)]
    in_airflow.reads("✓ run: 2", "#legend")
    journal.check()
