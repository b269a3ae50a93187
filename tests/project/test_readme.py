"""README's Python blocks are what they say: each is a DAG that Airflow takes, or a job that runs.

`tests/integration/test_examples.py` runs the very same files in a real Airflow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from readme_blocks import SIGNS, python_blocks, write_dags

from scripts.wheel import INSTALLED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

bag = DagBag(sys.argv[1])
for dag in bag.dags.values():
    DagSerialization.to_dict(dag)
dags = {
    dag_id: {task.task_id: [type(task).__name__, sorted(task.upstream_task_ids)] for task in dag.tasks}
    for dag_id, dag in bag.dags.items()
}
print(json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    write_dags(folder)
    return folder


def parsed(folder: Path) -> Any:
    """What Airflow's own parser finds in a DAGs folder, in a process without a configuration of ours."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {"AIRFLOW_HOME": str(folder.parent), "AIRFLOW__CORE__DAGS_FOLDER": str(folder)}
    env |= {
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": f"{INSTALLED}:{folder}",
    }
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(folder)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_python_block_is_one_that_is_run() -> None:
    known = [[sign for sign in SIGNS if sign in block] for block in python_blocks()]
    assert sorted(known) == sorted([sign] for sign in SIGNS)


def test_airflow_takes_every_dag_as_it_is_written(dags: Path) -> None:
    found = parsed(dags)
    assert found["errors"] == {}
    assert found["dags"] == {
        "adopt": {
            "clean": ["RecoverableSparkSubmitOperator", []],
            "report": ["RecoverableSparkSubmitOperator", ["clean"]],
        },
        "flights": {
            "flights.by_route": ["SparkRegionOperator", []],
            "flights.busiest": ["SparkRegionOperator", ["flights.by_route"]],
            "flights.publish": ["RecoveryPublishOperator", ["flights.busiest"]],
        },
        "read": {"ready": ["RecoveryResultSensor", []], "read": ["_PythonDecoratedOperator", ["ready"]]},
    }


@pytest.mark.slow
def test_control_a_block_that_airflow_does_not_take_is_seen(dags: Path) -> None:
    adopt = dags / "adopt.py"
    adopt.write_text(adopt.read_text().replace('clean.result("cleaned")', 'clean.result("cleaned", 1)'))
    found = parsed(dags)
    assert list(found["errors"]) == [str(adopt)]
    assert "adopt" not in found["dags"]


@pytest.fixture
def job(dags: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`flights` of the README's ``jobs/flights.py``."""
    monkeypatch.syspath_prepend(str(dags))
    from jobs.flights import flights

    yield flights
    for name in [module for module in sys.modules if module.partition(".")[0] == "jobs"]:
        del sys.modules[name]


@pytest.mark.spark
def test_the_job_runs_in_a_unit_test(job: Any, spark: SparkSession, tmp_path: Path) -> None:
    rows = ["carrier,origin,dest", *["UA,EWR,IAH"] * 1001, *[",EWR,IAH"] * 3, *["AA,JFK,MIA"] * 1000]
    (tmp_path / "flights.csv").write_text("\n".join(rows))
    results = job.run_local(spark, splits={"raw": [str(tmp_path / "flights.csv")]})
    assert [tuple(each) for each in results["busiest"].collect()] == [("EWR", "IAH", 1001)]
