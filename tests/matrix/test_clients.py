"""A region over Spark Connect by the full package as the client, as beside an Airflow that has another version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_specs import outcome_of, region_spec, vertex, write_numbers

from airflow_recovery.model.records import Outcome
from airflow_recovery.testing.spark_cluster import connect_server
from scripts.sparks import NEWEST, installed_spark

pytestmark = [pytest.mark.drill, pytest.mark.spark]

RUNS_A_REGION = """
import logging, sys
from pathlib import Path
import pyspark
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.connect import run_over_connect
from airflow_recovery.driver.region_spec import RegionSpec

spec = RegionSpec.from_json(Path(sys.argv[1]).read_text())
run_over_connect(sys.argv[2], spec, archive=build_archive(spec.job), log=logging.getLogger(), user_id="matrix")
print(pyspark.__version__)
"""


@pytest.mark.parametrize("series", [series for series in NEWEST if series != "3.5"])
def test_a_region_by_the_full_package_as_client(series: str, tmp_path: Path) -> None:
    spark = installed_spark(series)
    spec = region_spec(
        tmp_path, vertex("raw"), vertex("doubled", is_result=True), externals=write_numbers(tmp_path / "in")
    )
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    with connect_server(master="local[2]", home=spark.home) as server:
        done = subprocess.run(
            [sys.executable, "-c", RUNS_A_REGION, str(path), server.url],
            # As if this version were installed here: it comes before what is.
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(spark.site), *filter(None, sys.path)])},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.stdout.split()[-1:] == [spark.version], done.stdout + done.stderr
    outcome = outcome_of(spec)
    assert isinstance(outcome, Outcome)
    assert [(output.result, output.rows) for output in outcome.outputs] == [("doubled", 20)]
    assert outcome.accumulators == (("calls", 1), ("rows seen", 20))
