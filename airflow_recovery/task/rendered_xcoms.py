"""Which XComs of its run the arguments of a recoverable task may hold.

Airflow deletes a task's XComs only when the task starts again. So a task that this run has skipped, or that waits to
run again, still has the XComs of an earlier try. In a new run it would have none. Therefore an argument finds no XCom
of a recoverable task that is not a success in this run. XComs of tasks that are not recoverable are left to Airflow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_recovery.airflow_compat import reading_xcoms
from airflow_recovery.attempt.run import ALL_SUCCESS
from airflow_recovery.attempt.task_instances import ENDED_STATES
from airflow_recovery.errors import InputPending, JobDefinitionError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

log = logging.getLogger(__name__)

_SUCCESS = "success"
_NOT_MAPPED = -1


class XComsOfRun:
    """The XComs of the run of ``instance`` that the arguments of ``operator`` may hold.

    ``counted``: the recoverable tasks whose XComs were read, and whether each is a success in this run. Airflow is
    asked for the state of such a task once, unless the default trigger rule has waited for its success.
    """

    def __init__(self, operator: BaseOperator, instance: Any) -> None:
        self._operator = operator
        self._instance = instance
        self._known: dict[str, Mapping[int, str | None] | None] = {}
        self.counted: dict[str, bool] = {}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within this context, XComs are read by these rules. Raises as `_left_before`."""
        with reading_xcoms(self._one, self._all):
            yield

    def _one(self, get: Callable[..., Any], **of: Any) -> Any:
        states = self._states(of)
        index = of.get("map_index")
        if states is None or states.get(_NOT_MAPPED if index is None else index) == _SUCCESS:
            return get(**of)
        return self._left_before(get, of, states)

    def _all(self, get: Callable[..., Any], get_one: Callable[..., Any], **of: Any) -> Any:
        states = self._states(of)
        if states is None or self.counted.get(of["task_id"]):
            return get(**of)
        made = sorted(index for index, state in states.items() if state == _SUCCESS)
        if not made or of.get("include_prior_dates"):
            return self._left_before(get, of, states)
        each = (get_one(**of, map_index=index) for index in made)
        return [value for value in each if value is not None] or None

    def _left_before(self, get: Callable[..., Any], of: Mapping[str, Any], states: Mapping[int, str | None]) -> Any:
        """Return what a new run would pull from a task without a result in this run: `None`, or an earlier date's XCom.

        Raises `JobDefinitionError` if the argument pulls from earlier dates, but Airflow would find an XCom of this run
        first. Raises `InputPending` if the task may still become a success.
        """
        if not of.get("include_prior_dates"):
            return None
        if get(**{**of, "include_prior_dates": False}) is None:
            return get(**of)
        task_id, found = of["task_id"], _text(states)
        message = (
            f"{self._operator.task_id}: an argument pulls the XCom {of['key']!r} of {task_id} with "
            f"include_prior_dates=True. {task_id} is {found} in this run, and an earlier try of it has left that XCom. "
            "Airflow would return this XCom, but a new run would get the XCom of an earlier date. "
        )
        if any(state not in ENDED_STATES for state in states.values()):
            raise InputPending(f"{message}This task waits until {task_id} has ended.")
        raise JobDefinitionError(
            f"{message}Clear {task_id} with its downstream tasks, or delete the XCom, or pull it with the run_id= of "
            "that date.",
            code="xcom-of-another-run",
            task=task_id,
        )

    def _states(self, of: Mapping[str, Any]) -> Mapping[int, str | None] | None:
        """The states of the task that is read, by map index; `None` if all its XComs count."""
        task_id, own = of["task_id"], self._instance
        if (of.get("dag_id"), of.get("run_id")) != (own.dag_id, own.run_id) or task_id == own.task_id:
            return None
        if task_id not in self._known:
            self._known[task_id] = states = self._asked(task_id)
            if states is not None and not self.counted.get(task_id):
                log.info("No argument gets an XCom of %s, which is %s in this run.", task_id, _text(states))
        return self._known[task_id]

    def _asked(self, task_id: str) -> Mapping[int, str | None] | None:
        operator, own = self._operator, self._instance
        dag = operator.get_dag()
        if dag is None:
            return None
        producer = dag.task_dict.get(task_id)
        if producer is None:  # today's code has no such task: a new run would not run it
            return {}
        if not getattr(producer, "recovers", False) and not getattr(producer, "publishes_results", False):
            return None
        rule = getattr(operator.trigger_rule, "value", operator.trigger_rule)
        if rule == ALL_SUCCESS and task_id in operator.upstream_task_ids:
            self.counted[task_id] = True
            return None
        answer = own.get_task_states(dag_id=own.dag_id, task_ids=[task_id], run_ids=[own.run_id]).get(own.run_id, {})
        # One task alone was asked for. The answer calls its mapped instances "<task id>_<index>".
        indexes = {name: _NOT_MAPPED if name == task_id else int(name.removeprefix(f"{task_id}_")) for name in answer}
        states = {indexes[name]: getattr(state, "value", state) for name, state in answer.items()}
        self.counted[task_id] = bool(states) and all(state == _SUCCESS for state in states.values())
        return states


def _text(states: Mapping[int, str | None]) -> str:
    """The states of a task, for people."""
    return ", ".join(sorted({state or "not started" for state in states.values()})) or "not there"
