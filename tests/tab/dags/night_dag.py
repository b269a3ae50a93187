"""Runs as their regions would have left them: each task writes what a region's task writes, without Spark.

raw --> by_route --> busiest        by_route fails at its first try, with words of which some must not be believed
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG, get_current_context, task

REGIONS = {"raw": (), "by_route": ("raw",), "busiest": ("by_route",)}
FAILS = {"night": "no such column: delay", "hostile": "<img src=x onerror='window.hacked=1'> hunter2-the-password"}


def region(name: str) -> Any:
    @task(task_id=name, retries=0)
    def run() -> None:
        from airflow.sdk.log import mask_secret, redact

        from airflow_recovery.errors import Failure
        from airflow_recovery.journal.journal import Journal
        from airflow_recovery.journal.plans import plan_hash
        from airflow_recovery.model.inputs import InputRef
        from airflow_recovery.model.keys import OPERATORS_GROUP
        from airflow_recovery.model.manifest import PartitionManifest, ResultObject
        from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome, PlanRecord
        from airflow_recovery.model.region_plan import RegionPlan
        from airflow_recovery.store import open_store
        from airflow_recovery.task.run_context import run_identity

        context = get_current_context()
        identity = run_identity(context, OPERATORS_GROUP)
        base = os.environ["AIRFLOW__RECOVERY__JOURNAL"]
        fails = FAILS[identity.dag_id]
        mask_secret("hunter2-the-password")
        journal = Journal(open_store(base), identity, writer=str(context["ti"].id), mask=lambda text: str(redact(text)))
        vertices: dict[str, tuple[str, ...]] = {region: (region,) for region in REGIONS}
        if identity.dag_id == "hostile":
            vertices["by_route"] = ("by_route", "<img src=y onerror='window.hacked=2'>")
        regions = [
            RegionPlan(each, vertices[each], (each,), inputs, each == "busiest", "code")
            for each, inputs in REGIONS.items()
        ]
        plan = PlanRecord(f"jobs:{identity.dag_id}", tuple(regions))
        journal.put_plan(plan)
        state = journal.load(journal.list(REGIONS))
        number = state.of(name).latest_attempt + 1
        pins = tuple(InputRef(region, state.of(region).current.number) for region in REGIONS[name])
        begun = datetime.now(timezone.utc).isoformat()
        run_id, attempt = context["dag_run"].run_id, context["ti"].try_number
        ti_id = str(context["ti"].id)
        journal.claim(Claim(name, number, ti_id, plan_hash(plan), pins, run_id, attempt, ti_id, "", begun))
        ended = datetime.now(timezone.utc).isoformat()
        if name == "by_route" and attempt == 1:
            failure = Failure("AnalysisException", fails)
            cause = FenceCause.OWN_FAILURE
            journal.fence(
                Outcome(name, number, AttemptState.FENCED, ti_id, ended, cause=cause, detail=fails, failure=failure)
            )
            raise ValueError("no such column: delay")
        results = open_store(f"{base}/_results")
        key = f"{journal.layout.data_of_number(name, number)}/{name}"
        written = results.put(f"{key}/part-0", name.encode())
        files = (ResultObject("part-0", written.size, written.etag),)
        made = PartitionManifest(name, f"{results.base_uri}/{key}", files, 1)
        journal.finish(
            Outcome(
                name, number, AttemptState.FINISHED, ti_id, ended, "code", pins, outputs=(made,), spark_seconds=60.0
            )
        )

    return run()


for name in FAILS:
    with DAG(name, schedule=None, catchup=False):
        made = {candidate: region(candidate) for candidate in REGIONS}
        made["raw"] >> made["by_route"] >> made["busiest"]
