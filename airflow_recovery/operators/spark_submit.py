"""The drop-in: an existing Spark application as one recoverable vertex."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_recovery.errors import ConfigurationError, JobDefinitionError
from airflow_recovery.execution.probing import OnAltered
from airflow_recovery.execution.region_task import RegionResult, RegionTask
from airflow_recovery.operators.failures import airflow_errors
from airflow_recovery.operators.references import OutputReference, checked_outputs, checked_uri, placeholders
from airflow_recovery.operators.region import RETRIES, RETRY_DELAY
from airflow_recovery.operators.run_context import recompute_epoch, run_identity
from airflow_recovery.operators.summary import summary_of
from airflow_recovery.runtime.process import die_with_parent
from airflow_recovery.runtime.submit import s3a_conf, submit_environment

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

log = logging.getLogger(__name__)


class RecoverableSparkSubmitOperator(SparkSubmitOperator):
    """A `SparkSubmitOperator` whose application is one vertex with registered outputs.

    ::

        clean = RecoverableSparkSubmitOperator(
            task_id="clean", application="clean.py", outputs=["cleaned"],
            application_args=["--day", "{{ ds }}", "--out", "{output:cleaned}"],
        )
        report = RecoverableSparkSubmitOperator(
            task_id="report", application="report.py", outputs=["report"],
            inputs={"cleaned": clean.result("cleaned"), "rates": "s3://lake/rates/"},
            application_args=["--in", "{input:cleaned}", "--rates", "{input:rates}", "--out", "{output:report}"],
        )

    All recoverable operators of a DAG form one job. Reading another operator's output makes it upstream.

    **Managed outputs** (a name alone) get a location of their own for every attempt, put in for ``{output:name}`` after
    the attempt is claimed; consumers find the registered one at ``{input:name}``. The output is what lies there when
    the application has ended: its objects with size and etag, whatever format they are in. A dead attempt's files are
    never read.

    **Fixed outputs** (``outputs={"report": "s3://lake/report/"}``) stay at your own URI. What lies there when the
    application ends is registered as found. Promise 1 is *not* given there: a second application may write to the same
    place, and a reader may see half a write. Found altered later: stop and say so (``on_altered="stop"``); newer data
    is never overwritten by itself. ``on_altered="recompute"`` makes it again instead.

    The fingerprint is the application's content (or its URI, where it is not a file here), ``py_files``, ``jars``,
    ``java_class`` and the arguments before the placeholders are filled. Spark settings do not belong to it.

    Does not look into the application: it can't be cut into smaller regions, and its rows are not counted.

    :param outputs: names of managed outputs, or a mapping from name to URI (`None`: managed).
    :param inputs: by name: another operator's ``result(name)``, or a URI whose objects belong to the trace.
    :param on_altered: ``"stop"`` or ``"recompute"``, for fixed outputs.
    """

    def __init__(
        self,
        *,
        outputs: Sequence[str] | Mapping[str, str | None],
        inputs: Mapping[str, OutputReference | str] | None = None,
        on_altered: str = "stop",
        retries: int | None = RETRIES,
        retry_delay: timedelta | float = RETRY_DELAY,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.outputs = checked_outputs(self.task_id, outputs)
        self.inputs: dict[str, OutputReference | str] = dict(inputs or {})
        self.on_altered = OnAltered(on_altered)
        self._check_declaration()
        for reference in self.references().values():
            self.set_upstream(self.get_dag().get_task(reference.task_id))  # type: ignore[union-attr]

    def result(self, name: str) -> OutputReference:
        """This operator's output ``name``, to be given as another operator's input. Raises `JobDefinitionError`."""
        if name not in self.outputs:
            raise JobDefinitionError(f"{self.task_id} has no output {name!r}; it has {', '.join(self.outputs)}.")
        return OutputReference(self.task_id, name)

    def references(self) -> dict[str, OutputReference]:
        """The inputs that are outputs of other operators, by name."""
        return {name: each for name, each in self.inputs.items() if isinstance(each, OutputReference)}

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """One try. Raises Airflow's fail and skip exceptions where a retry can't help."""
        with airflow_errors():
            result = self._execute(context)
        return summary_of(result)

    def _execute(self, context: Context) -> RegionResult:
        from airflow_recovery.operators.application_runner import ApplicationRunner, application_fingerprint
        from airflow_recovery.operators.dag_operators import OPERATORS_GROUP, on_altered_of, plan_of_dag
        from airflow_recovery.operators.open_run import open_run

        if context["ti"].map_index is not None and context["ti"].map_index >= 0:
            raise ConfigurationError(
                f"{self.task_id}: a recoverable operator can't be mapped (expand): all its instances would share one "
                "journal entry. Make one operator each, or declare a job."
            )
        die_with_parent()
        dag = self.get_dag()
        fingerprint = application_fingerprint(self)
        plan = plan_of_dag(dag, {self.task_id: fingerprint})
        identity = run_identity(context, OPERATORS_GROUP)
        task_keys = {each.name: each.name for each in plan.regions}
        with open_run(context, identity, plan, task_keys, log, on_altered=on_altered_of(dag)) as opened:
            os.environ.update(submit_environment({**os.environ, **opened.stores.driver_env()}))
            self.conf = {**s3a_conf(opened.stores.results_spec, os.environ), **(self.conf or {})}
            runner = ApplicationRunner(self, context, opened, identity)
            task = RegionTask(
                opened.run,
                self.task_id,
                runner,
                epoch=recompute_epoch(context),
                prepare_journal=opened.prepare_journal,
            )
            return task.execute()

    def submit_attempt(self, context: Context, arguments: Sequence[str], attempt: int) -> None:
        """Run the application with ``arguments``, as one attempt. Raises Airflow's exception where it failed."""
        self.application_args = list(arguments)
        # A key that outlives its attempt would hand the old attempt's job to the next one (AIRFLOW.md section 3).
        self.external_id_key = f"spark_job_id/{attempt}"
        self._K8S_DRIVER_STATUS_KEY = f"k8s_driver_status/{attempt}"
        self._hook = self._get_hook()
        super().execute(context)

    def kill(self) -> None:
        """Kill what `submit_attempt` waits for."""
        if self._hook is not None:
            super().on_kill()

    def on_kill(self) -> None:
        """Kill the application, within Airflow's five seconds."""
        self.kill()

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # spark-submit dies with this process: its JVM would otherwise run on after kill -9.
        setattr(hook, "submit", partial(hook.submit, preexec_fn=die_with_parent))  # noqa: B010
        return hook

    def _check_declaration(self) -> None:
        for name, given in self.inputs.items():
            if not isinstance(given, OutputReference):
                self.inputs[name] = checked_uri(self.task_id, f"input {name!r}", given)
        used = placeholders(self.application_args)
        known = {("output", name) for name in self.outputs} | {("input", name) for name in self.inputs}
        unknown = sorted(f"{{{kind}:{name}}}" for kind, name in used - known)
        if unknown:
            raise JobDefinitionError(
                f"{self.task_id}: {', '.join(unknown)} in application_args stands for nothing; declared are "
                f"{', '.join(sorted(f'{{{kind}:{name}}}' for kind, name in known))}."
            )
        if isinstance(self.application_args, list):
            for name, uri in self.outputs.items():
                if uri is None and ("output", name) not in used:
                    raise JobDefinitionError(
                        f"{self.task_id}: output {name!r} is managed, and the application is never told where to write "
                        f"it: put {{output:{name}}} into application_args, or give its own URI in outputs."
                    )
