"""Two dates, two DAGs and a new name: nobody deletes the rows of another, or adds its own a second time.

owned_us, owned_de    rows --> load    PostgreSQL, mode replace with run_column
owned_whole           rows --> load    Delta, mode replace
owned_newest          rows --> load    Delta, mode replace with keeps="latest"
old_name              rows --> load    PostgreSQL, mode append
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import quote

import deltalake
import pytest
from pipeline import DagRun, Pipeline, fresh_day
from warehouse import Warehouse

from airflow_recovery.testing.patience import HANG_S

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


@pytest.fixture
def warehouse(pipeline: Pipeline) -> Iterator[Warehouse]:
    opened = Warehouse(pipeline.airflow, [])
    opened.ask("CREATE TABLE sales (day text, run_key text)")
    yield opened
    opened.close()


def days_in(pipeline: Pipeline, table: str) -> list[str]:
    found = deltalake.DeltaTable(str(pipeline.folder / "lake" / table)).to_pyarrow_table()
    return sorted(found["day"].to_pylist())


def test_fault_221_two_dags_of_one_factory_keep_their_rows(pipeline: Pipeline, warehouse: Warehouse) -> None:
    day = fresh_day()
    runs = [pipeline.run(dag, day=day).start() for dag in ("owned_us", "owned_de")]
    for run in runs:
        run.ends().check()

    def keys() -> list[tuple[str, str]]:
        return warehouse.ask("SELECT run_key, day FROM sales ORDER BY run_key")

    both = [(f"owned_{country}/date-{day}T000000Z/g/load", day) for country in ("de", "us")]
    assert keys() == both
    for run in runs:
        run.recovery("restart", "rows", "--json")
        run.ends().check()
        assert keys() == both


def test_fault_220_the_second_date_of_a_whole_table_fails_before_spark(pipeline: Pipeline) -> None:
    first, second = (pipeline.run("owned_whole") for _ in range(2))
    first.start().ends().check()
    stopped = second.start().ends("failed")
    assert second.state("load") == "failed"
    assert stopped.executions() == {"rows": 1}
    log = second.log("load")
    for part in ("One would delete the rows of the other", "run_column=", "keeps='latest'", first.day):
        assert part in log
    first.clear()
    first.ends()
    assert days_in(pipeline, "owned_whole") == [first.day]


def test_fault_223_a_backfill_in_reverse_order_leaves_the_newest_date(pipeline: Pipeline) -> None:
    days = [fresh_day() for _ in range(3)]
    backfill = pipeline.airflow.backfill("owned_newest", days[0], days[-1], max_active_runs=1, run_backwards=True)
    found = pipeline.airflow.wait_backfill(backfill)
    assert [each["state"] for each in found] == ["success"] * 3
    assert days_in(pipeline, "owned_newest") == [days[-1]]
    for each in found:
        day = each["logical_date"][:10]
        run = DagRun(pipeline, "owned_newest", each["dag_run_id"], day, pipeline.folder)
        run.journal().check()
        assert (f"superseded by {days[-1]}" in run.log("load")) is (day != days[-1])
        assert (f"superseded by {days[-1]}" in run.recovery("plan")) is (day != days[-1])


@pytest.mark.drill
def test_fault_225_a_dag_with_a_new_name_adds_nothing_until_it_adopts_the_old_one(
    pipeline: Pipeline, warehouse: Warehouse
) -> None:
    old = pipeline.run("old_name")
    old.start().ends().check()
    file = pipeline.folder / "dags" / "renamed_dag.py"
    text = file.read_text()
    try:
        file.write_text(text.replace('DAG("old_name"', 'DAG("new_name"'))
        airflow = pipeline.airflow

        def is_gone() -> bool:
            file.touch()  # Airflow gives up a DAG when its file was parsed again, 50 s later
            return bool(airflow.api("GET", f"/dags/{quote('old_name')}/details")["is_stale"])

        airflow.wait_until(is_gone, "the end of the old DAG")
        new = pipeline.run("new_name", day=old.day)
        new.start().ends("failed")
        assert "airflow recovery adopt old_name new_name" in new.log("load")
        assert warehouse.ask("SELECT day, run_key FROM sales") == [(old.day, f"old_name/date-{old.day}T000000Z/g/load")]
        words = [sys.executable, "-m", "airflow", "recovery", "adopt", "old_name", "new_name"]
        env = pipeline.airflow.env
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr
        assert warehouse.ask("SELECT day, run_key FROM sales") == [(old.day, f"new_name/date-{old.day}T000000Z/g/load")]
        new.clear("load", downstream=True)
        new.ends("failed")  # its input was made again under the new name, and is not declared deterministic
        assert "has made its own" in new.log("load")
        assert "holds attempt 1 already" in new.log("load")
        assert len(warehouse.ask("SELECT FROM sales")) == 1
    finally:
        file.write_text(text)
