"""What a try did, for Airflow's pages and other programs: the return value of the task."""

from __future__ import annotations

from typing import Any

from airflow_recovery.execution.region_task import RegionResult


def summary_of(result: RegionResult) -> dict[str, Any]:
    """Plain JSON. For reading only: no decision is ever made from it, since XCom is neither fenced nor kept."""
    return {
        "region": result.region,
        "decision": result.decision.value,
        "attempt": result.attempt,
        "why": result.why,
        "files_checked": result.files_checked,
        "spark_seconds": result.outcome.spark_seconds,
        "spark_seconds_saved": result.seconds_saved,
        "results": {
            each.result: {"location": each.location, "rows": each.rows, "files": len(each.objects), "bytes": each.size}
            for each in result.outcome.outputs
        },
    }
