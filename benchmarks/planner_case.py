"""One measurement of the planner that runs, in a process of its own; prints one JSON line.

``python -m benchmarks.planner_case CASE LEVELS PARALLELISM``: a declared job of that shape, its plan record, a run in
which every region has finished; and after a failure that names one lost result what restarts, and the whole plan. Plan
and state of the run are in memory then, as Flink's graph is. ``... ladder SIZE`` and ``... volatile_vertex SIZE``: the
plan of such a run. ``... finished ENDPOINT``: from the first request for a journal of finished regions to their plan.
``... tab ENDPOINT LEVELS PARALLELISM``: the Recovery tab's first answer for such a run, as JSON; what it asks Airflow's
database is in memory.
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
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState  # noqa: E402
from airflow_recovery.model.altered import altered  # noqa: E402
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
from airflow_recovery.story.what_if import evaluate_run, plan_run  # noqa: E402
from benchmarks.plan_cases import Case, finished, ladder, volatile_vertex  # noqa: E402
from benchmarks.shapes import IDENTITY, chain, planned  # noqa: E402

T = TypeVar("T")
SPREADING = {make.__name__: make for make in (ladder, volatile_vertex)}
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

    def unseen() -> tuple[PlanRecord, RunState, RunState]:
        """The plan, and the run before and after the failure. Nothing was asked of them: to make them, something was.

        The first finish of the region that fails was reset.
        """
        regions = {name: RegionState(region.attempts) for name, region in state.regions.items()}
        regions[failed] = RegionState({1: altered(state.regions[failed].attempts[1], is_reset=True)})
        before = RunState(regions)
        after = request.apply(Scenario(record, before, available)).state
        return PlanRecord(record.job, GroupedRegions(map(replace, record.groups))), before, after

    def decide(plan_: PlanRecord, seen: RunState, before: Evaluation | None = None) -> Callable[[], int]:
        def restarted() -> int:
            evaluation = Evaluation(plan_, seen, available=available, before=before)
            return len(RestartSet(evaluation, same_rows=False, failed=[failed]))

        return restarted

    def check(evaluation: Evaluation) -> tuple[bool, int]:
        return evaluation.why_must_run(failed) is not None, len(evaluation.lost_inputs(failed))

    fresh, _, seen = unseen()
    cold_set, cold_ms, cold_cpu_ms = _timed_cpu(decide(fresh, seen))
    fresh, seen, failed_run = unseen()
    before = Evaluation(fresh, seen, available=lambda region, attempt, result: None)
    checked, pre_check_ms, pre_check_cpu_ms = _timed_cpu(lambda: check(before))
    restart_set, restart_set_ms, restart_set_cpu_ms = _timed_cpu(decide(fresh, failed_run, before))
    if checked != (True, 0) or restart_set != cold_set:
        raise RuntimeError(f"expected it to run and {cold_set} restarts, found {checked} and {restart_set}")
    made_plan, plan_ms = _timed(lambda: plan(record, state, available, request))
    return {
        "record_ms": record_ms + regions_ms,
        "record_mb": record_mb,
        "pre_check_ms": pre_check_ms,
        "pre_check_cpu_ms": pre_check_cpu_ms,
        "restart_set_ms": restart_set_ms,
        "restart_set_cpu_ms": restart_set_cpu_ms,
        "cold_ms": cold_ms,
        "cold_cpu_ms": cold_cpu_ms,
        "plan_ms": plan_ms,
        "regions": regions,
        "restarts": restart_set,
        "running": len(made_plan.names(Action.RUN)),
        "peak_mb": _peak_mb() - before_mb,
    }


def of_spread(make: Callable[[int], Case], size: int) -> dict[str, Any]:
    """The plan of a run that is in memory."""
    case = make(size)
    _, plan_ms, plan_cpu_ms = _timed_cpu(case.plan)
    return {"plan_ms": plan_ms, "plan_cpu_ms": plan_cpu_ms}


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
        return len(plan_run(view, evaluate_run(view, places, lambda location: opened)).regions)

    regions, read_ms = _timed(read)
    return {"read_ms": read_ms, "cpu_s": time.process_time() - cpu_s, "regions": regions, "peak_mb": _peak_mb()}


def of_tab(endpoint_url: str, levels: int, parallelism: int) -> dict[str, Any]:
    """What the endpoint calls, with a task instance of each region; and its answer when nothing has changed."""
    from airflow_recovery.api_server.budget import BudgetedStore
    from airflow_recovery.api_server.journals import REQUEST_BYTES
    from airflow_recovery.api_server.readings import Access, RunRead, read_run
    from airflow_recovery.attempt.task_instances import Observation, TaskTry

    store = S3Store("s3://bucket/journal", endpoint_url=endpoint_url, region_name="us-east-1")
    store.prepare()
    group = IDENTITY.group_id
    tries = [
        TaskTry(f"{group}.v{level}", at if parallelism > 1 else -1, 1, f"ti-v{level}-{at}", "success")
        for level in range(levels)
        for at in range(parallelism)
    ]
    observed = Observation({task.key: task for task in tries})

    def ask(known: str | None) -> RunRead:
        journal = BudgetedStore(store, REQUEST_BYTES)
        access = Access(journal, store, lambda location: store, lambda location: True, refuses_large=False)
        return read_run(
            access,
            dag_id=IDENTITY.dag_id,
            run_id="run",
            run_key=IDENTITY.run_key,
            run_state="success",
            group=None,
            observation=observed,
            known=known,
        )

    cpu_s = time.process_time()
    first, first_ms = _timed(lambda: ask(None))
    first_cpu_s, cpu_s = time.process_time() - cpu_s, time.process_time()
    again, again_ms = _timed(lambda: ask(first.version))
    again_cpu_s = time.process_time() - cpu_s
    if first.document is None or again.document is not None:
        raise RuntimeError("expected a document, and none where nothing has changed")
    return {
        "first_ms": first_ms,
        "first_cpu_s": first_cpu_s,
        "again_ms": again_ms,
        "again_cpu_s": again_cpu_s,
        "bytes": len(first.document),
        "peak_mb": _peak_mb(),
    }


def _timed(act: Callable[[], T]) -> tuple[T, float]:
    gc.disable()  # as the commands do
    begun = time.perf_counter()
    answer = act()
    took_ms = 1000 * (time.perf_counter() - begun)
    gc.enable()
    return answer, took_ms


def _timed_cpu(act: Callable[[], T]) -> tuple[T, float, float]:
    """As `_timed`, with milliseconds of this process's CPU."""
    cpu_s = time.process_time()
    answer, took_ms = _timed(act)
    return answer, took_ms, 1000 * (time.process_time() - cpu_s)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: list[str]) -> None:
    """Measure, and print."""
    if arguments[0] == "finished":
        measured = of_finished(arguments[1])
    elif arguments[0] == "tab":
        measured = of_tab(arguments[1], int(arguments[2]), int(arguments[3]))
    elif arguments[0] in SPREADING:
        measured = of_spread(SPREADING[arguments[0]], int(arguments[1]))
    else:
        measured = of_shape(arguments[0], int(arguments[1]), int(arguments[2]))
    print(json.dumps({**measured, "import_ms": IMPORT_MS}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
