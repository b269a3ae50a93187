"""Waits until a result of another DAG, or of another run, is published."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator

from airflow_recovery.checks import check_arguments, is_known_later
from airflow_recovery.errors import JobDefinitionError, RecoveryError
from airflow_recovery.job.templates import checked_moment
from airflow_recovery.model.keys import OPERATORS_GROUP

if TYPE_CHECKING:
    from airflow.sdk import Context

SAME_LOGICAL_DATE = "{{ logical_date.isoformat() if logical_date is defined and logical_date else '' }}"
"""Empty in a run without a logical date, which is then refused by name."""


class RecoveryResultSensor(BaseSensorOperator):
    """Succeeds when the newest publish of a run names ``vertex``, and nothing is about to replace that valid result.

    The sensor waits while Airflow has the run and it is queued or running, and while an attempt that is newer than the
    publish gives heartbeats. It also waits if the run has failed, or was marked failed: ``accept_failed=True`` takes
    the newest publish of such a run. If Airflow does not have the run any more (``airflow db clean``), the newest
    publish decides. In its own run, the sensor does not wait for the run's end.

    The run is the one with this run's logical date, minus ``execution_delta``; or the one named by ``logical_date``
    (ISO 8601), ``partition_key`` or ``external_run_id``. Templated: all of these, ``external_dag_id``, ``group_id`` and
    ``vertex``. ``group_id`` is that of the `SparkJobTaskGroup`; without it the DAG's recoverable operators are meant,
    of which ``vertex`` is ``<task id>.<output>``.

    Deferrable by default: it then holds no worker slot, and looks every ``poke_interval`` seconds until ``timeout``.

    What it does not do: it returns no location. Ask `RecoveryResultHook` in the task that reads: between the two the
    result may have been made again.
    """

    template_fields: Sequence[str] = (
        "external_dag_id",
        "group_id",
        "vertex",
        "logical_date",
        "partition_key",
        "external_run_id",
    )

    def __init__(  # noqa: PLR0913 - an operator's arguments
        self,
        *,
        external_dag_id: str,
        group_id: str = OPERATORS_GROUP,
        vertex: str,
        logical_date: str | None = None,
        execution_delta: timedelta | None = None,
        partition_key: str | None = None,
        external_run_id: str | None = None,
        accept_failed: bool = False,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        where = str(kwargs.get("task_id"))
        check_arguments(RecoveryResultSensor.__init__, locals(), where, templated=self.template_fields)
        super().__init__(**kwargs)
        ways = {
            "logical_date": logical_date,
            "execution_delta": execution_delta,
            "partition_key": partition_key,
            "external_run_id": external_run_id,
        }
        named = [name for name, value in ways.items() if value is not None]
        if len(named) > 1:
            raise JobDefinitionError(
                f"{where}: expected at most one of logical_date, execution_delta, partition_key and external_run_id, "
                f"found {', '.join(named)}: leave all but one out",
                code="sensor-ways-exclude",
            )
        if logical_date is not None and not is_known_later(logical_date):
            checked_moment(logical_date, where)
        if group_id == OPERATORS_GROUP and "." not in vertex and not is_known_later(vertex):
            raise JobDefinitionError(
                f"{where}: expected vertex= as '<task id>.<output>' where no group_id= is given, found {vertex!r}: no "
                "operator's result has such a name. Name the output, or the SparkJobTaskGroup with group_id=",
                code="sensor-without-group",
            )
        self.external_dag_id = external_dag_id
        self.group_id = group_id
        self.vertex = vertex
        self.logical_date = logical_date if {*named} - {"execution_delta"} else SAME_LOGICAL_DATE
        self.execution_delta = execution_delta
        self.partition_key = partition_key
        self.external_run_id = external_run_id
        self.accept_failed = accept_failed
        self.deferrable = deferrable
        self._watch: Any = None

    def poke(self, context: Context) -> bool:
        """One look. Raises where waiting can't help (access denied, a damaged journal, a run that can't be named)."""
        # Templates have been rendered since the declaration was checked.
        self._check_named()
        arguments = {name: getattr(self, name) for name in self.template_fields}
        check_arguments(RecoveryResultSensor.__init__, arguments, self.task_id)
        from airflow_recovery.hooks.result import NOT_YET
        from airflow_recovery.hooks.result_watch import ResultWatch

        if self._watch is None:
            self._watch = ResultWatch(
                self.external_dag_id,
                self.vertex,
                group_id=self.group_id,
                looks_once=not self.deferrable and self.reschedule,
                **self._waiting(context),
            )
        try:
            result = self._watch.look()
        except NOT_YET as reason:
            self.log.info("Not yet: %s", reason)
            return False
        self.log.info(
            "Published: %s@%s in %s (publish %s)", result.region, result.attempt, result.location, result.publish
        )
        return True

    def execute(self, context: Context) -> Any:
        """Look once; defer where the result is not there yet (or poke, where it is not deferrable)."""
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            self._defer(context)
        return None

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """After the trigger. Raises `RecoveryError` where it could not read the journal."""
        del context
        if event["status"] != "published":
            raise RecoveryError(
                f"Expected {self.vertex!r} of {self.external_dag_id} to be published: {event['message']}",
                code="awaited-not-published",
            )
        self.log.info("Published: attempt %s in %s (publish %s)", event["attempt"], event["location"], event["publish"])

    def _defer(self, context: Context) -> NoReturn:
        from airflow_recovery.triggers.result import ResultPublishedTrigger

        self.defer(
            trigger=ResultPublishedTrigger(
                dag_id=self.external_dag_id,
                group_id=self.group_id,
                vertex=self.vertex,
                poll_interval_s=float(self.poke_interval),
                **self._waiting(context),
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        raise AssertionError("defer returned")

    def _waiting(self, context: Context) -> dict[str, Any]:
        """Which run it is, and what matters of its state: arguments of the watch, and of the trigger."""
        run = self._run()
        return {**run, "accept_failed": self.accept_failed, "of_own_run": self._is_own(run, context)}

    def _is_own(self, run: dict[str, str | None], context: Context) -> bool:
        """Whether the result is one of the run in which this sensor waits."""
        own = context.get("dag_run")
        if own is None or own.dag_id != self.external_dag_id:
            return False
        if run["logical_date"] is not None:
            return own.logical_date == checked_moment(run["logical_date"], self.task_id)
        return own.run_id == run["run_id"] or (own.partition_key or "") == run["partition_key"]

    def _check_named(self) -> None:
        """Raise `JobDefinitionError` if a template over what this run lacks has named the other run."""
        for name in ("logical_date", "partition_key", "external_run_id"):
            value = getattr(self, name)
            if value is not None and str(value).strip() in ("", "None"):
                raise JobDefinitionError(
                    f"{self.task_id}: expected {name}= of the run of {self.external_dag_id!r} that is waited for, "
                    f"found {value!r}: this run has no such value (a run that was triggered without a logical date has "
                    "none). Name the run with external_run_id=, partition_key= or logical_date=",
                    code="sensor-run-without-value",
                    task=self.task_id,
                    name=name,
                )

    def _run(self) -> dict[str, str | None]:
        logical_date = self.logical_date
        if logical_date is not None and self.execution_delta is not None:
            logical_date = (checked_moment(logical_date, self.task_id) - self.execution_delta).isoformat()
        return {"logical_date": logical_date, "partition_key": self.partition_key, "run_id": self.external_run_id}
