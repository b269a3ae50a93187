"""One measurement of the planner that runs, in a process of its own; prints one JSON line.

``python -m benchmarks.planner_case CASE LEVELS PARALLELISM``: a declared job of that shape, its plan record, a run in
which every region has finished, and the plan after one lost result. ``... finished ENDPOINT``: from the first request
for a journal of finished regions to their plan.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

_BEGUN = time.perf_counter()

from airflow_recovery.errors import JobDefinitionError  # noqa: E402
from airflow_recovery.journal.journal import Journal  # noqa: E402
from airflow_recovery.journal.run_state import Attempt  # noqa: E402
from airflow_recovery.model.groups import GroupedRegions  # noqa: E402
from airflow_recovery.model.records import PlanRecord  # noqa: E402
from airflow_recovery.planning.evaluation import Evaluation  # noqa: E402
from airflow_recovery.planning.plan import Action  # noqa: E402
from airflow_recovery.planning.plan_making import plan  # noqa: E402
from airflow_recovery.planning.reason import Reason, Why  # noqa: E402
from airflow_recovery.planning.restart_set import RestartSet  # noqa: E402
from airflow_recovery.planning.scenario import RegionFailure, Scenario  # noqa: E402
from airflow_recovery.results.places import Asker, ResultPlaces  # noqa: E402
from airflow_recovery.store.s3 import S3Store  # noqa: E402
from airflow_recovery.story.run_view import view_run  # noqa: E402
from airflow_recovery.story.what_if import plan_run, prober_of  # noqa: E402
from benchmarks.plan_scale import finished  # noqa: E402
from benchmarks.shapes import IDENTITY, chain, planned  # noqa: E402

T = TypeVar("T")
IMPORT_MS = 1000 * (time.perf_counter() - _BEGUN)


def of_shape(case: str, levels: int, parallelism: int) -> dict[str, Any]:
    """A chain of ``levels`` vertices: the middle one fails, and the error names one lost input."""
    before_mb = _peak_mb()
    made = chain(levels, parallelism, all_to_all=case.startswith("all_to_all"))
    try:
        record, record_ms = _timed(lambda: planned(made).record)
    except JobDefinitionError as error:
        return {"refused": str(error)}
    regions, regions_ms = _timed(lambda: len(record.regions))
    record_mb = _peak_mb() - before_mb
    state = finished(record)
    middle = levels // 2
    [lost, failed] = (
        next(region.name for region in record.regions if f"v{level}" in region.vertices)
        for level in (middle - 1, middle)
    )

    def available(region: str, attempt: Attempt, result: str) -> Reason | None:
        return Reason(region, Why.OUTPUT_MISSING, "gone") if region == lost else None

    request = RegionFailure(failed)
    scenario = request.apply(Scenario(record, state, available))
    # Nothing was asked of this plan before: what the plan above knows of itself was found out to make the run.
    fresh = PlanRecord(record.job, GroupedRegions(map(replace, record.groups)))

    def decide() -> int:
        evaluation = Evaluation(fresh, scenario.state, available=available)
        return len(RestartSet(evaluation, same_rows=False, failed=[failed]))

    restart_set, restart_set_ms = _timed(decide)
    made_plan, plan_ms = _timed(lambda: plan(record, state, available, request))
    return {
        "record_ms": record_ms + regions_ms,
        "record_mb": record_mb,
        "restart_set_ms": restart_set_ms,
        "plan_ms": plan_ms,
        "regions": regions,
        "restarts": restart_set,
        "running": len(made_plan.names(Action.RUN)),
        "peak_mb": _peak_mb() - before_mb,
    }


def of_finished(endpoint_url: str) -> dict[str, Any]:
    """Listing to plan, as the command does it."""
    store = S3Store("s3://bucket/journal", endpoint_url=endpoint_url, region_name="us-east-1")
    store.prepare()
    cpu_s = time.process_time()

    def read() -> int:
        view = view_run(Journal(store, IDENTITY, writer="reader"))
        results = f"{store.base_uri}/_results"
        places = ResultPlaces.of(results, IDENTITY, Asker.PERSON, view.in_use.recorded)
        opened = store.sibling(results)
        return len(plan_run(view, prober_of(view, places, lambda location: opened)).regions)

    regions, read_ms = _timed(read)
    return {"read_ms": read_ms, "cpu_s": time.process_time() - cpu_s, "regions": regions, "peak_mb": _peak_mb()}


def _timed(act: Callable[[], T]) -> tuple[T, float]:
    gc.disable()  # as the commands do
    begun = time.perf_counter()
    answer = act()
    took_ms = 1000 * (time.perf_counter() - begun)
    gc.enable()
    return answer, took_ms


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: list[str]) -> None:
    """Measure, and print."""
    if arguments[0] == "finished":
        measured = of_finished(arguments[1])
    else:
        measured = of_shape(arguments[0], int(arguments[1]), int(arguments[2]))
    print(json.dumps({**measured, "import_ms": IMPORT_MS}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
