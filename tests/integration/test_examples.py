"""`dags/drop_in.py`, `dags/wait_for_delays.py` and the README's DAGs, run as they are written.

The Airflow of the other tests has copies of these files in its DAGs folder (`conftest.py`).
"""

from __future__ import annotations

import pytest
from pipeline import AFTER_THE_EXAMPLES_BEGIN, FLIGHTS, Pipeline, fresh_day

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

OPERATORS = "~28operators~29"

README_APPLICATION = """
import argparse, pathlib
import pyarrow, pyarrow.parquet as parquet

parser = argparse.ArgumentParser()
for each in ("--day", "--in", "--out"):
    parser.add_argument(each)
given = {name: value and value.removeprefix("file://") for name, value in vars(parser.parse_args()).items()}
table = parquet.read_table(given["in"]) if given["in"] else pyarrow.table({"day": [given["day"]]})
pathlib.Path(given["out"]).mkdir(parents=True)
parquet.write_table(table, given["out"] + "/part-0.parquet")
"""
"""What the README's operators submit. It starts no Spark context: the other applications here do, for 5 s each."""


def test_the_examples_and_the_readme_run_as_written(pipeline: Pipeline) -> None:
    lake, day = pipeline.folder / FLIGHTS, fresh_day(AFTER_THE_EXAMPLES_BEGIN)
    (lake / day).mkdir(parents=True)
    rows = ["carrier,origin,dest,dep_time,arr_delay", *["UA,EWR,IAH,517,11"] * 1001, "AA,JFK,MIA,NA,NA"]
    for each in (lake / "flights.csv", lake / day / "a.csv"):
        each.write_text("\n".join(rows))
    for name in ("clean.py", "report.py"):  # the README names them relative to the task's working folder
        (pipeline.airflow.home / name).write_text(README_APPLICATION)

    drop_in = pipeline.run("drop_in", day=day)
    adopt = pipeline.run("adopt", day=day)
    drop_in.group_id = adopt.group_id = OPERATORS
    flights = pipeline.run("flights", day=day)
    delays = pipeline.run("flights_delays", day=day)
    flights.group_id = delays.group_id = "flights"
    for run in (flights, drop_in, adopt, delays):
        run.start()

    # Each waits for the publish of another DAG's run of the same logical date.
    delays.ends().check()
    waiting = pipeline.run("wait_for_delays", day=day).start()
    journal = flights.ends()
    journal.check()
    read = pipeline.run("read", day=day).start()

    assert journal.executions() == {"by_route": 1, "busiest": 1}, flights.log("flights.by_route", 1)[-3000:]
    assert journal.rows("busiest") == [(1001, "IAH", "EWR")]
    assert drop_in.ends().rows("report.report") == [(1001, "EWR")]
    assert drop_in.journal().executions() == {"clean": 1, "report": 1}
    assert adopt.ends().rows("report.report") == [(day,)]

    for run in (waiting, read):
        assert pipeline.airflow.wait_run(run.dag_id, run.run_id) == "success", run.story()
    found = pipeline.airflow.xcom(waiting.dag_id, waiting.run_id, "where_is_it")
    assert (found["rows"], found["attempt"]) == (3, 1)
    assert found["files"] == [f"file://{candidate}" for candidate in delays.journal().files("carrier_delays")]
    files = pipeline.airflow.xcom(read.dag_id, read.run_id, "read")
    assert files == [f"file://{candidate}" for candidate in journal.files("busiest")]
