"""`dag.test()` of a small job whose drivers end at once: a DAG file, run by `test_dag_test.py`. Prints the states."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from airflow.sdk import DAG

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.store.opening import open_store
from airflow_recovery.task.region_program import RegionProgram

LOG = logging.getLogger(__name__)
EVENTS: list[str] = []
LOSE = sys.argv[1] == "lose"


class Drivers:
    """`left` fails once. With "lose", it also deletes the result of `cleaned` before it fails."""

    def run(self, spec: RegionSpec, folder: Path) -> None:
        EVENTS.append(f"{spec.region}@{spec.attempt}")
        if spec.region == "left" and spec.attempt == 1:
            if LOSE:
                for file in spec.inputs[0].objects:
                    Path(spec.inputs[0].location.removeprefix("file://"), file.path).unlink()
            raise RuntimeError("the weather")
        outputs = []
        for vertex in spec.vertices:
            if vertex.is_result:
                info = open_store(f"{spec.location}/{vertex.name}").put("part-0", vertex.name.encode())
                objects = (ResultObject("part-0", info.size, info.etag),)
                outputs.append(PartitionManifest(vertex.name, f"{spec.location}/{vertex.name}", objects, 1))
        finish_attempt(spec, AttemptResult(tuple(outputs), 1.0, None), LOG)


with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), params={"lake": sys.argv[2]}) as dag:
    SparkJobTaskGroup(group_id="g", job="dagjobs.shapes:diamond")

if __name__ == "__main__":  # Airflow imports this file a second time, to serialise the DAG
    run_program = RegionProgram.run
    cast(Any, RegionProgram).run = lambda program, attempt, launch: run_program(program, attempt, Drivers().run)
    run = dag.test(logical_date=datetime(2024, 1, 2, tzinfo=timezone.utc))
    states = {instance.task_id: instance.state for instance in run.get_task_instances()}
    print(json.dumps({"run": run.state, "events": EVENTS, "states": states}))
