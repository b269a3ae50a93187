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

SAME_LOGICAL_DATE = "{{ logical_date.isoformat() }}"


class RecoveryResultSensor(BaseSensorOperator):
    """Succeeds when ``vertex`` is named by the newest publish of its run, and is valid.

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

    def __init__(
        self,
        *,
        external_dag_id: str,
        group_id: str = OPERATORS_GROUP,
        vertex: str,
        logical_date: str | None = None,
        execution_delta: timedelta | None = None,
        partition_key: str | None = None,
        external_run_id: str | None = None,
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
                f"found {', '.join(named)}: leave all but one out"
            )
        if logical_date is not None and not is_known_later(logical_date):
            checked_moment(logical_date, where)
        if group_id == OPERATORS_GROUP and "." not in vertex and not is_known_later(vertex):
            raise JobDefinitionError(
                f"{where}: expected vertex= as '<task id>.<output>' where no group_id= is given, found {vertex!r}: no "
                "operator's result has such a name. Name the output, or the SparkJobTaskGroup with group_id="
            )
        self.external_dag_id = external_dag_id
        self.group_id = group_id
        self.vertex = vertex
        self.logical_date = logical_date if {*named} - {"execution_delta"} else SAME_LOGICAL_DATE
        self.execution_delta = execution_delta
        self.partition_key = partition_key
        self.external_run_id = external_run_id
        self.deferrable = deferrable

    def poke(self, context: Context) -> bool:
        """One look. Raises where waiting can't help (access denied, a damaged journal)."""
        del context
        # Templates have been rendered since the declaration was checked.
        arguments = {name: getattr(self, name) for name in self.template_fields}
        check_arguments(RecoveryResultSensor.__init__, arguments, self.task_id)
        from airflow_recovery.hooks.result import NOT_YET, RecoveryResultHook

        try:
            result = RecoveryResultHook().get_result(
                self.external_dag_id, self.vertex, group_id=self.group_id, **self._run()
            )
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
            self._defer()
        return None

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        """After the trigger. Raises `RecoveryError` where it could not read the journal."""
        del context
        if event["status"] != "published":
            raise RecoveryError(
                f"Expected {self.vertex!r} of {self.external_dag_id} to be published: {event['message']}"
            )
        self.log.info("Published: attempt %s in %s (publish %s)", event["attempt"], event["location"], event["publish"])

    def _defer(self) -> NoReturn:
        from airflow_recovery.triggers.result import ResultPublishedTrigger

        self.defer(
            trigger=ResultPublishedTrigger(
                dag_id=self.external_dag_id,
                group_id=self.group_id,
                vertex=self.vertex,
                poll_interval_s=float(self.poke_interval),
                **self._run(),
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        raise AssertionError("defer returned")

    def _run(self) -> dict[str, str | None]:
        logical_date = self.logical_date
        if logical_date is not None and self.execution_delta is not None:
            logical_date = (checked_moment(logical_date, self.task_id) - self.execution_delta).isoformat()
        return {"logical_date": logical_date, "partition_key": self.partition_key, "run_id": self.external_run_id}
