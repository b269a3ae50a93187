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
            each.result: {"location": each.location, "rows": each.rows, "files": len(each.objects), "bytes": each.size}
            for each in result.outcome.outputs
        },
        **story_of(result.outcome).summary(result.outcome),
    }


def _summary_of_batch(batch: BatchResult) -> dict[str, Any]:
    """The sums, and of each subtask no more than what was decided: a batch may have many."""
    found = batch.results.values()
    return {
        "region": batch.region,
        "decision": batch.decision.value,
        "ran": sum(each.decision is Decision.RAN for each in found),
        "kept": sum(each.decision is Decision.KEPT for each in found),
        "files_checked": sum(each.files_checked for each in found),
        "spark_seconds": sum(each.outcome.spark_seconds or 0.0 for each in found),
        "spark_seconds_saved": sum(each.seconds_saved for each in found),
        "subtasks": {each.region: {"decision": each.decision.value, "attempt": each.attempt} for each in found},
    }
