"""Observe the tries of a run, and clear exactly those that are still what was observed. API server only.

Airflow gives a task instance a new id with every try and every clear, so the id names one try: "still the observed try"
is an equality of ids under the run's lock. Both functions work in the caller's session and neither commits.

It decides nothing: a clear only starts a task, whose own pre-check decides (docs/protocol.md#clear and #final-check).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import select, tuple_, update

from airflow_recovery.airflow_compat import (
    DagRun,
    DagRunState,
    DBDagBag,
    Log,
    TaskInstance,
    TaskInstanceState,
    clear_task_instances,
    get_dialect_name,
)
from airflow_recovery.api_server.recovery_clears import note_clears
from airflow_recovery.attempt.clear_protocol import Caller
from airflow_recovery.attempt.task_instances import (
    FINISHED_STATES,
    MARKED_FAILED,
    RUNNING_STATES,
    ClearRequest,
    ClearResult,
    Observation,
    TaskTry,
)
from airflow_recovery.errors import Kind, NotMine, RecoveryError
from airflow_recovery.model.keys import TaskKey

if TYPE_CHECKING:
    from sqlalchemy import Select
    from sqlalchemy.orm import Session

    from airflow_recovery.airflow_compat import SerializedDAG


USING_STATES = RUNNING_STATES | {"scheduled", "queued", "restarting", "deferred", "up_for_reschedule"}
"""States of a task that works with what a setup has made, or is about to: nobody looks at its upstream any more."""


class RunMissing(RecoveryError, LookupError):
    """Airflow's database has no run of that id for this DAG."""

    kind = Kind.NOT_FOUND


def observe(session: Session, dag_id: str, run_id: str) -> Observation:
    """All task instances of one run. Raises `RunMissing`. Takes no lock: what it says may be old when it is read."""
    columns = (
        TaskInstance.task_id,
        TaskInstance.map_index,
        TaskInstance.try_number,
        TaskInstance.id,
        TaskInstance.state,
    )
    rows = session.execute(select(*columns).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)).all()
    if not rows and session.scalar(_run(dag_id, run_id)) is None:
        raise RunMissing(_missing(dag_id, run_id))
    tries = [
        TaskTry(task_id, map_index, try_number, str(ti_id), None if state is None else TaskInstanceState(state).value)
        for task_id, map_index, try_number, ti_id, state in rows
    ]
    return Observation({task_try.key: task_try for task_try in tries})


def clear(
    session: Session, dag_id: str, run_id: str, request: ClearRequest, *, caller: Caller | None = None
) -> ClearResult:
    """Compare and clear with the run locked until the session ends.

    1. A producer is cleared iff it is finished and still the observed try.
    2. A consumer is cleared, running or finished, iff it is still the observed try and (there are no producers, or one
       of them was cleared here): where no producer moved, somebody else has decided already.
    3. ``unblock``: what is ``upstream_failed`` downstream of the caller and of what was cleared is cleared too.
    4. Setups that what is cleared depends on are cleared with their teardowns, as in Airflow's own clear: what a
       teardown has removed is set up again (faults 68 and 69). Not while a task uses them that runs or is about to.
    5. The caller is never cleared, and neither is what a person has marked as failed: it has no result in this run
       (fault 242). A run that has ended is queued again.

    ``unmoved`` names what was compared and found to be another try, another state, marked as failed, or not there
    (try 0).
    Raises `RunMissing`, and `NotMine` where the caller's ``ti_id`` is given and is no longer its try.
    """
    run = lock_run(session, dag_id, run_id)
    if caller is not None and caller.ti_id is not None:
        current = session.scalar(instances_of(dag_id, run_id, [caller.key]))
        if current is None or str(current.id) != caller.ti_id:
            raise NotMine(
                f"Expected {caller.key} of {dag_id} / {run_id} to be task instance {caller.ti_id}, found "
                f"{None if current is None else current.id}: it was cleared or retried. This process must stop."
            )
    own_key = None if caller is None else caller.key
    wanted = sorted({*request.producers, *request.consumers} - {own_key})
    # Rows are locked as well: a task's own state report takes no lock on the run, and must not commit between the
    # comparison and the clear. Airflow's id in the identity map may be old, hence populate_existing.
    instances = session.scalars(instances_of(dag_id, run_id, wanted)) if wanted else ()
    by_key = {key_of(instance): instance for instance in instances}
    unmoved: dict[str, tuple[int, str | None]] = {}
    matching = partial(_matching, by_key, marked_as_failed(session, by_key.values()), unmoved)
    chosen = matching(_others(request.producers, own_key), FINISHED_STATES)
    if chosen or not request.producers:
        chosen += matching(_others(request.consumers, own_key, *request.producers), FINISHED_STATES | RUNNING_STATES)
    dag = DBDagBag().get_dag_for_run(run, session=session) if chosen or request.unblock else None
    if dag is not None and request.unblock:
        chosen += _blocked(session, run, dag, chosen, own_key)
    if dag is not None and chosen:
        chosen += _setups(session, run, dag, chosen, own_key)
    if chosen:
        if caller is not None:
            note_clears(session, run, chosen)
        clear_task_instances(chosen, session, DagRunState.QUEUED)
        # Explicit, since Airflow's sessions don't flush by themselves and the new ids must be there for later reads.
        session.flush()
    return ClearResult(tuple(key_of(ti) for ti in chosen), unmoved)


def _others(observed: Mapping[str, str], *left_out: str | None) -> dict[str, str]:
    return {key: ti_id for key, ti_id in observed.items() if key not in left_out}


def _matching(
    by_key: Mapping[str, TaskInstance],
    marked: frozenset[str],
    unmoved: dict[str, tuple[int, str | None]],
    observed: Mapping[str, str],
    states: frozenset[str],
) -> list[TaskInstance]:
    """The task instances that are still the ``observed`` tries, in one of ``states``; all others go to ``unmoved``."""
    chosen = []
    for key, ti_id in observed.items():
        instance = by_key.get(key)
        state = None if instance is None else MARKED_FAILED if key in marked else state_of(instance)
        if instance is not None and str(instance.id) == ti_id and state in states:
            chosen.append(instance)
        else:
            unmoved[key] = (0 if instance is None else instance.try_number, state)
    return chosen


def marked_as_failed(session: Session, of_run: Iterable[TaskInstance]) -> frozenset[str]:
    """The keys of those task instances of one run that are ``failed`` because a person has marked them, or the run.

    Airflow writes each state that a try itself comes to into its audit log. If the last one of the present try is not
    ``failed``, the try did not fail by itself. A task whose entries `airflow db clean` has deleted counts as failed by
    itself. Sends no statement if none is failed.
    """
    failed = [instance for instance in of_run if state_of(instance) == "failed"]
    if not failed:
        return frozenset()
    instances = {(instance.task_id, instance.map_index, instance.try_number): key_of(instance) for instance in failed}
    first = failed[0]
    entries = session.execute(
        select(Log.task_id, Log.map_index, Log.try_number, Log.event)
        .where(
            Log.dag_id == first.dag_id,
            Log.run_id == first.run_id,
            Log.task_id.in_({task_id for task_id, _, _ in instances}),
            Log.event.in_([state.value for state in TaskInstanceState]),
        )
        .order_by(Log.dttm, Log.id)
    )
    last = {(task_id, -1 if index is None else index, number): event for task_id, index, number, event in entries}
    return frozenset(key for of, key in instances.items() if last.get(of, "failed") != "failed")


def lock_run(session: Session, dag_id: str, run_id: str) -> DagRun:
    """The run, locked until the session ends. Raises `RunMissing`."""
    if get_dialect_name(session) == "sqlite":
        # SQLite has no row locks, and pysqlite begins a transaction only at the first write: without one, two threads
        # would both compare and then both clear. An update that changes nothing takes the database's write lock.
        unchanged = update(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
        session.execute(
            unchanged.values(clear_number=DagRun.clear_number, updated_at=DagRun.updated_at),
            execution_options={"synchronize_session": False},
        )
    run: DagRun | None = session.scalar(
        _run(dag_id, run_id).with_for_update(of=DagRun).execution_options(populate_existing=True)
    )
    if run is None:
        raise RunMissing(_missing(dag_id, run_id))
    return run


def _blocked(
    session: Session, run: DagRun, dag: SerializedDAG, cleared: list[TaskInstance], own_key: str | None
) -> list[TaskInstance]:
    """What stayed ``upstream_failed`` below the caller and below what is cleared (fault 65)."""
    roots = {ti.task_id for ti in cleared}
    if own_key is not None:
        roots.add(TaskKey.parse(own_key).task_id)
    below: set[str] = set()
    for task_id in roots:
        if dag.has_task(task_id):
            below |= dag.get_task(task_id).get_flat_relative_ids(upstream=False)
    stuck: Iterable[TaskInstance] = session.scalars(
        _lockable(
            select(TaskInstance).where(
                TaskInstance.dag_id == run.dag_id,
                TaskInstance.run_id == run.run_id,
                TaskInstance.state == TaskInstanceState.UPSTREAM_FAILED,
            )
        )
    )
    taken = {key_of(ti) for ti in cleared} | {own_key}
    return [ti for ti in stuck if ti.task_id in below and key_of(ti) not in taken]


def _setups(
    session: Session, run: DagRun, dag: SerializedDAG, cleared: list[TaskInstance], own_key: str | None
) -> list[TaskInstance]:
    """The finished setups of what is cleared, and their finished teardowns, unless a task at work depends on them."""
    taken = {key_of(ti) for ti in cleared} | {own_key}
    needed: set[str] = set()
    for task_id in {ti.task_id for ti in cleared}:
        if dag.has_task(task_id):
            needed |= {teardown.task_id for teardown in dag.get_task(task_id).get_upstreams_only_setups_and_teardowns()}
    if not needed:
        return []
    of_run = _lockable(select(TaskInstance).where(TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id))
    instances: list[TaskInstance] = list(session.scalars(of_run))
    using = {
        instance.task_id
        for instance in instances
        if state_of(instance) in USING_STATES and key_of(instance) not in taken
    }
    in_use = {
        task_id
        for task_id in needed
        if dag.get_task(task_id).is_setup and using & dag.get_task(task_id).get_flat_relative_ids(upstream=False)
    }
    in_use |= {
        operator.task_id
        for task_id in in_use
        for operator in dag.get_task(task_id).downstream_list
        if operator.is_teardown
    }
    return [
        instance
        for instance in instances
        if instance.task_id in needed - in_use
        and key_of(instance) not in taken
        and state_of(instance) in FINISHED_STATES
    ]


def instances_of(dag_id: str, run_id: str, keys: Iterable[str]) -> Select[Any]:
    """The task instances with these keys, locked when they are read. Raises `ValueError` for what can't be a key."""
    tasks = map(TaskKey.parse, keys)
    pairs = [(task.task_id, task.map_index) for task in tasks]
    return _lockable(
        select(TaskInstance).where(
            TaskInstance.dag_id == dag_id,
            TaskInstance.run_id == run_id,
            tuple_(TaskInstance.task_id, TaskInstance.map_index).in_(pairs),
        )
    )


def _lockable(statement: Any) -> Select[Any]:
    # One order for everybody, so that two clears of one run can't wait for each other.
    ordered: Select[Any] = statement.order_by(TaskInstance.task_id, TaskInstance.map_index)
    return ordered.with_for_update(of=TaskInstance).execution_options(populate_existing=True)


def _run(dag_id: str, run_id: str) -> Select[Any]:
    return select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)


def key_of(instance: TaskInstance) -> str:
    """The key of a task instance, as `airflow_recovery.attempt.task_instances.TaskTry.key` has it."""
    return str(TaskKey(instance.task_id, instance.map_index))


def state_of(instance: TaskInstance) -> str | None:
    """Its state as text; `None` before it is scheduled."""
    return None if instance.state is None else TaskInstanceState(instance.state).value


def _missing(dag_id: str, run_id: str) -> str:
    return f"Expected DAG {dag_id!r} to have a run {run_id!r}, found none."
