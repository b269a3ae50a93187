"""What a try did, for Airflow's pages and other programs: the return value of the task."""

from __future__ import annotations

from typing import Any

from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.story.mode import story_of
from airflow_recovery.task.subtask_batch import BatchResult


def summary_of(result: RegionResult | BatchResult) -> dict[str, Any]:
    """Plain JSON. For reading only: no decision is ever made from it, since XCom is neither fenced nor kept."""
    if isinstance(result, BatchResult):
        return _summary_of_batch(result)
    return {
        "region": result.region,
        "decision": result.decision.value,
        "attempt": result.attempt,
        "why": result.why,
        "files_checked": result.files_checked,
        "spark_seconds": result.outcome.spark_seconds,
        "spark_seconds_saved": result.seconds_saved,
        "results": {
            output.result: {
                "location": output.location,
                "rows": output.rows,
                "files": len(output.objects),
                "bytes": output.size,
            }
            for output in result.outcome.outputs
        },
        **story_of(result.outcome).summary(result.outcome),
    }


def _summary_of_batch(batch: BatchResult) -> dict[str, Any]:
    """The sums, and of each subtask no more than what was decided: a batch may have many."""
    results = batch.results.values()
    return {
        "region": batch.region,
        "decision": batch.decision.value,
        "ran": sum(result.decision is Decision.RAN for result in results),
        "kept": sum(result.decision is Decision.KEPT for result in results),
        "files_checked": sum(result.files_checked for result in results),
        "spark_seconds": sum(result.outcome.spark_seconds or 0.0 for result in results),
        "spark_seconds_saved": sum(result.seconds_saved for result in results),
        "subtasks": {
            result.region: {"decision": result.decision.value, "attempt": result.attempt} for result in results
        },
    }
