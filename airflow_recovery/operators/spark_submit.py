"""An existing Spark application as one recoverable vertex, by spark-submit."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_recovery.checks import check_arguments
from airflow_recovery.driver.submit import store_conf, submit_environment
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.appends import how_application_appends
from airflow_recovery.operators.drop_in import DropInOperator
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.task.code_places import Place, places_of_submit
from airflow_recovery.task.spark_connection import PER_REGION, PER_RUN, SparkScope, user_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.task.application_code import ApplicationCode
    from airflow_recovery.task.drop_in import DropInSubmission
    from airflow_recovery.task.open_run import OpenRun


class RecoverableSparkSubmitOperator(DropInOperator, SubmittingOperator):
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

    What ``outputs``, ``inputs`` and the rest of a vertex mean is said at `DropInOperator`.

    The fingerprint is the content of the application and of all code and files that spark-submit loads with it,
    wherever they lie (docs/operators.md#code), and the arguments as rendered by Airflow, before the placeholders are
    filled: a template over the try or the clock makes every try a change. Other Spark settings and ``env_vars`` do not
    belong to it.

    :param idempotent: not said: ``False`` where there are fixed outputs and the application, a Python file here, is
        seen to append.
    :param spark: ``per-region``: it is submitted as it is. ``per-run``: one Spark Connect server for all operators of
        the DAG that say so, started by whoever needs it first, with the arguments of that operator (see
        `StartSparkOperator`). The application is a Python program that takes its session from ``SPARK_REMOTE``, as
        ``SparkSession.builder.getOrCreate()`` does. It runs without spark-submit, and ships its UDFs' code itself
        (``addArtifacts``).

    Raises `JobDefinitionError` where the declaration can't be run; Airflow shows it as an import error of the DAG.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "inputs", "outputs")

    @property
    def placeholder_fields(self) -> Sequence[str]:  # type: ignore[override]
        """A session on another's Spark takes no settings of the operator."""
        return ("application_args",) if self.spark == PER_RUN else ("application_args", "conf")

    @property
    def marks_commits(self) -> bool:  # type: ignore[override]
        """By settings of Iceberg's and Delta's writers; a session on another's Spark takes none."""
        return self.spark != PER_RUN

    def __init__(
        self,
        *,
        spark: SparkScope = PER_REGION,
        application: str,
        application_args: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        where = str(kwargs.get("task_id"))
        of_types: dict[str, object] = {"spark": spark}
        check_arguments(RecoverableSparkSubmitOperator.__init__, of_types, where)
        self._check_application(where, application, application_args, templated=self.template_fields)
        self.spark = spark
        super().__init__(application=application, application_args=application_args, **kwargs)
        if spark == PER_RUN:
            self._check_takes_session()

    def computes(self, code: ApplicationCode | None = None) -> dict[str, Any]:
        """See `application_document`."""
        from airflow_recovery.task.drop_in import application_document

        return application_document(self, self.drop_in, code)

    def code_places(self) -> list[Place]:
        """As `DropInOperator.code_places`. What a properties file names is not among it."""
        from airflow_recovery.task.spark_submission import described

        return places_of_submit(described(self), self.conf or {}, self.application_args or ())

    def check_rendered(self) -> None:
        """As `DropInOperator.check_rendered`, with the application and its arguments."""
        self._check_application(self.task_id, self.application, self.application_args)
        if self.spark == PER_RUN:
            self._check_takes_session()
        super().check_rendered()

    def how_it_appends(self) -> str | None:
        """Where the application, a Python file here, is seen to append."""
        return how_application_appends(self.application_file())

    def application_file(self) -> Path:
        """See `DropInOperator.application_file`."""
        return Path(str(self.application).removeprefix("file://"))

    def new_application(self, opened: OpenRun, context: Context) -> DropInSubmission:
        """By spark-submit, or with a session on the run's own Spark."""
        from airflow_recovery.task.drop_in import DropInSubmission
        from airflow_recovery.task.spark_submission import keeping

        os.environ.update(opened.stores.driver_env())
        self.conf = {**store_conf(opened.stores.results_spec, os.environ), **(self.conf or {})}
        start: Callable[..., DropInSubmission] = partial(DropInSubmission, keeping=keeping(opened, gives_signs=True))
        if self.spark == PER_RUN:
            start = self._on_own_spark(opened, context)
        application = start(
            self.drop_in,
            opened,
            self,
            context=context,
            is_killed=lambda: self.is_killed,
            memory_policy=self.memory_policy,
        )
        os.environ.update(submit_environment(os.environ, driver_is_here=not application.is_on_cluster))
        return application

    def _on_own_spark(self, opened: OpenRun, context: Context) -> Callable[..., DropInSubmission]:
        from airflow.sdk import BaseHook

        from airflow_recovery.model.keys import OPERATORS_GROUP
        from airflow_recovery.task.drop_in_session import DropInSession
        from airflow_recovery.task.run_spark import OwnServer, StartServer, open_run_spark
        from airflow_recovery.task.spark_submission import connection_id

        connection = BaseHook.get_connection(connection_id(self))
        run_spark = open_run_spark(connection, opened, opened.run.journal.identity)
        start = StartServer.of(self, context, OPERATORS_GROUP, opened.settings)
        return partial(DropInSession, OwnServer(run_spark, start), user_of(connection))

    def _check_takes_session(self) -> None:
        """What the run's own Spark can't run, or could not be found by."""
        if not str(self.application).endswith((".py", "}}")):
            raise JobDefinitionError(
                f"{self.task_id}: expected a Python application, which takes the session that SPARK_REMOTE names, "
                f"found {self.application!r}: leave spark='per-run' out."
            )
        if not self.recovers:
            raise JobDefinitionError(
                f"{self.task_id}: recovery is off, and the address of a run's own Spark stands in the journal: leave "
                "spark='per-run' out.",
                code="per-run-without-recovery",
                where=self.task_id,
            )

    def _check_application(self, where: str, application: object, arguments: object, **options: Any) -> None:
        declared = {"application": application, "application_args": arguments}
        check_arguments(RecoverableSparkSubmitOperator.__init__, declared, where, **options)
