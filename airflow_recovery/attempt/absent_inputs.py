"""Which inputs this DAG run has, where Airflow starts a task though not all of its producers have succeeded.

By the default trigger rule, ``all_success``, each producer has succeeded in this run, and nobody is asked. By any other
rule (``all_done``, ``none_failed_min_one_success``, ...) an input counts only if Airflow says that its producer is a
success: what an earlier try of this date has left of it is no result of this run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from airflow_recovery.attempt.run import ALL_SUCCESS, Run
from airflow_recovery.attempt.task_instances import ENDED_STATES
from airflow_recovery.errors import InputFailed, InputPending, InputSkipped
from airflow_recovery.journal.events import RegionSkipped
from airflow_recovery.model.region_plan import RegionPlan

FAILED_STATES = frozenset({"failed", "upstream_failed"})


def absent_inputs(run: Run, region: str) -> tuple[str, ...]:
    """The optional inputs of ``region`` that are absent in this DAG run, in the plan's order.

    Asks Airflow only if the task has another trigger rule than ``all_success``. To be called before the journal is
    listed: what a producer that is a success has made is in the listing then. Raises as `absent_by_states` and
    `check_rendered`.
    """
    planned = run.regions[region]
    if run.task.trigger_rule == ALL_SUCCESS or not planned.inputs:
        return ()
    states = run.task_instances.states([run.task_keys[name] for name in planned.inputs])
    try:
        absent = absent_by_states(
            planned, run.task.trigger_rule, {name: states.get(run.task_keys[name]) for name in planned.inputs}
        )
    except InputSkipped as error:
        run.events.record(RegionSkipped(occurred_at=run.now(), region=region, why=error.why))
        raise
    check_rendered(planned, absent, run.xcoms_counted)
    return absent


def check_rendered(planned: RegionPlan, absent: Collection[str], counted: Mapping[str, bool]) -> None:
    """Raise `InputPending` if an input is absent and the arguments hold its XCom, or if it is the other way round.

    Pure. The arguments are rendered before the states of the inputs are asked for. ``counted``: as in `Run`.
    """
    changed = [name for name in planned.inputs if name in counted and counted[name] is (name in absent)]
    if changed:
        was = "was a success" if counted[changed[0]] else "was no success"
        raise InputPending(
            f"{planned.name} pulls an XCom of {changed[0]}, which {was} in this run when the arguments were rendered. "
            "That has changed since. This task starts again, and renders them again."
        )


def absent_by_states(planned: RegionPlan, rule: str, states: Mapping[str, str | None]) -> tuple[str, ...]:
    """The optional inputs of a region that are absent. ``states``: of its inputs' tasks, by the input's name.

    Pure. Raises `InputSkipped`, `InputFailed` or `InputPending` for an input that is not optional and whose producer is
    no success, if the task was started by the trigger rule ``rule``.
    """
    if rule == ALL_SUCCESS:
        return ()
    absent = tuple(name for name, state in states.items() if name in planned.optional and state != "success")
    required = {name: state for name, state in states.items() if name not in absent}

    def those_in(wanted: Iterable[str | None]) -> str:
        return ", ".join(name for name, state in required.items() if state in wanted)

    region, by_rule = planned.name, f"the trigger rule {rule!r}"
    without = f"Or declare the input with result(..., optional=True): {region} then runs without it."
    if failed := those_in(FAILED_STATES):
        raise InputFailed(
            f"{region} reads {failed}, which has failed in this run. By {by_rule} Airflow has started {region} all the "
            "same. Results of earlier tries do not count for this run. Repair what has failed, and clear it with its "
            f"downstream tasks. {without}",
            code="reads-what-failed",
            region=region,
            input=failed,
        )
    if skipped := those_in({"skipped"}):
        raise InputSkipped(
            f"{region} reads {skipped}, which was skipped in this run: {region} is skipped as well, as in a new run. "
            f"To run {skipped}, clear the branch or task that skipped it, with its downstream tasks. {without}",
            f"{skipped} was skipped in this run",
            code="reads-what-was-skipped",
            region=region,
            input=skipped,
        )
    if pending := those_in({state for state in required.values() if state not in ENDED_STATES}):
        raise InputPending(
            f"{region} reads {pending}, which is not over in this run. Airflow has started {region} by {by_rule}, "
            "without waiting for it. This task waits until it has ended, and uses no retry for that.",
            code="reads-what-is-not-over",
            region=region,
            input=pending,
        )
    return absent
