"""What must hold of a run of a job in its DAG: what it has made is what a run without a history makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_recovery.testing.simulation.dag_run import PUBLISH
from airflow_recovery.testing.simulation.settings import Violation
from airflow_recovery.testing.simulation.verdict import check_cut, has_same_rows
from simulation.dag_job import code_of
from simulation.dag_simulated_run import DagSimulatedRun
from simulation.fresh_run import fresh_run


def check_decided_end(run: DagSimulatedRun) -> None:
    """The run ended as one without a history, and what is green stands."""
    current = run.world.ledger.current()
    _check_fresh(run, current)
    check_cut(run, {name: n for name, n in current.items() if run.world.airflow.state(name) == "success"})


def check_declared(run: DagSimulatedRun, task: str) -> None:
    """What a try has just succeeded with was made by the code that the DAG's file declares, and so was all above it.

    Not what each worker, or each reading of the file, finds otherwise: only its own task can judge that.
    """
    ledger, job = run.world.ledger, run.world.main.job
    if task == PUBLISH:
        number = max(ledger.publishes)
        waiting = [(name, ledger.publishes[number][name]) for name in ledger.handed_out[number]]
    else:
        waiting = [(task, run.served[task])]
    seen: set[tuple[str, int]] = set()
    while waiting:
        name, n = waiting.pop()
        if (name, n) in seen or n <= ledger.regions[name].floor:
            continue
        seen.add((name, n))
        finish = ledger.regions[name].finish(n)
        waiting += [(ref["region"], ref["attempt"]) for ref in finish["inputs"]]
        made_by, declared = code_of(finish["fingerprint"]), code_of(job.regions[name].fingerprint)
        if made_by != declared and name not in job.uneven | job.unsteady | run.unasked:
            raise Violation(
                f"against the rule: {task} succeeds with {name}@{n} of {made_by!r}, and the DAG declares {declared!r}"
            )


def _check_fresh(run: DagSimulatedRun, current: Mapping[str, int]) -> None:
    """Compare how the run ended, and what its newest publish hands out, with a run without a history."""
    ledger, job, airflow = run.world.ledger, run.world.main.today, run.world.airflow
    fresh = fresh_run(job, run.followed, run.marked)
    states = {name: airflow.state(name) for name in job.regions}
    _check_intervals(run)
    is_held_up = not run.world.main.in_run.by_timetable and "failed" in states.values()
    if not fresh.is_certain or is_held_up:
        # A task that its rule starts early may have used up its retries before its inputs had ended. A task of a run
        # that was triggered stops rather than replace what another interval has made.
        failed = {name: state for name, state in states.items() if state == "failed"}
        fresh = fresh_run(job, run.followed, {**run.marked, **failed}, states)
    for name, state in states.items():
        if state == "success" and fresh.states[name] != state:
            raise Violation(
                f"against the rule: {name}@{current[name]} is green, and {fresh.states[name]} in a fresh run"
            )
    if run.settings.publishes and airflow.state(PUBLISH) == "success":
        number = max(ledger.publishes)
        for name in sorted(ledger.handed_out[number]):
            if states[name] != "success":
                named = f"{name}@{ledger.publishes[number][name]}"
                raise Violation(f"against the rule: publish {number} names {named}, and {name} is {states[name]}")
    if has_same_rows(run):
        for name, variants in fresh.made.items():
            made = tuple(ledger.wrote.get((name, current[name], result)) for result in job.regions[name].results)
            if states[name] == "success" and made not in variants:
                raise Violation(f"against the rule: {name}@{current[name]} has other rows than in a fresh run")
    if fresh.is_certain and not is_held_up and states != {name: fresh.states[name] for name in states}:
        raise Violation(f"against the rule: the run ends as {states}, and a fresh run as {dict(fresh.states)}")


def _check_intervals(run: DagSimulatedRun) -> None:
    """A run that was triggered has replaced nothing that another interval had made, if all else is equal."""
    for name, region in run.world.ledger.regions.items():
        last, before = 0, dict[str, Any]()
        for n in sorted(filter(region.has_finished, region.outcomes)):
            now: dict[str, Any] = region.finish(n).get("dag_run") or {}
            is_triggered = now.get("run_id", "").startswith("manual")
            if is_triggered and before and last > max(region.resets, default=0):
                same = all(now.get(part) == before.get(part) for part in ("params", "logical_date"))
                if same and now["data_interval_start"] != before["data_interval_start"]:
                    raise Violation(f"against the rule: {name}@{n} of a triggered run replaces another interval's")
            last, before = n, now
