"""The pipeline of `benchmarks.peers` with drop-in operators, as they are where nothing is said."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator
from benchmarks.peers.flights.steps import APPLICATION, CONF, LAKE, STEPS, arguments

lake = os.environ.get(LAKE, "")

with DAG("peers_recovering", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)):
    done: dict[str, RecoverableSparkSubmitOperator] = {}
    for step, reads in STEPS.items():
        tables = {} if reads else {"table": f"file://{lake}/{step}.csv"}
        done[step] = RecoverableSparkSubmitOperator(
            task_id=step,
            application=APPLICATION,
            inputs={**{name: done[name].result("rows") for name in reads}, **tables},
            outputs=["rows"],
            application_args=arguments(step, lake, {name: f"{{input:{name}}}" for name in reads}, "{output:rows}"),
            conf=CONF,
        )
