"""The task that looks whether recovery will work on a worker: ``airflow recovery doctor``, run by Airflow."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_recovery.checks import check_arguments
from airflow_recovery.doctor.checking import TIMEOUT_S, run_checks
from airflow_recovery.doctor.components import Component
from airflow_recovery.doctor.result import CheckResult, Status, is_wrong, summary
from airflow_recovery.task.doctor import AirflowChecks
from airflow_recovery.task.region_trial import region_check

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)

REGION_TIMEOUT_S = 300.0


class RecoveryDoctorOperator(BaseOperator):
    """``airflow recovery doctor`` as a task: on a worker, with a worker's settings and a task's ways to the API server.

    Each result is a line of its log. Fails, and is not retried, where anything is wrong.

    :param conn_id: the connection that the DAGs' regions run with.
    :param spark: also run one small region with it, in folders of its own below journal and results.
    :param timeout_s: how long one check may take; ``spark_timeout_s``: the region.

    Raises `JobDefinitionError` for an argument of another type.
    """

    template_fields: Sequence[str] = ("conn_id",)

    def __init__(
        self,
        *,
        conn_id: str = "spark_default",
        spark: bool = False,
        timeout_s: float = TIMEOUT_S,
        spark_timeout_s: float = REGION_TIMEOUT_S,
        **kwargs: Any,
    ) -> None:
        where = str(kwargs.get("task_id"))
        check_arguments(RecoveryDoctorOperator.__init__, locals(), where, templated=self.template_fields)
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.spark = spark
        self.timeout_s = timeout_s
        self.spark_timeout_s = spark_timeout_s

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Run the checks; what they found, as `CheckResult.to_json`. Raises `AirflowFailException`."""
        region = region_check(self.spark_timeout_s) if self.spark else None
        checks = AirflowChecks(Component.WORKER, self.conn_id, context=context, run_region=region).checks()
        results = []
        for check in run_checks(checks, self.timeout_s):
            result = _masked(check)
            results.append(result)
            log.log(_LEVELS[result.status], "%s  %s", result.status.value.upper(), result.text())
        if is_wrong(results):
            problems = "; ".join(result.text() for result in results if result.status is Status.WRONG)
            raise AirflowFailException(f"{summary(results)} {problems}")
        log.info(summary(results))
        return [result.to_json() for result in results]


def _masked(result: CheckResult) -> CheckResult:
    """Without what Airflow knows as a secret: errors of stores and servers are told in their own words."""
    from airflow_recovery.airflow_compat import redact

    return replace(result, found=str(redact(result.found)), expected=str(redact(result.expected)))


_LEVELS = {
    Status.OK: logging.INFO,
    Status.WARNING: logging.WARNING,
    Status.NOT_CHECKED: logging.WARNING,
    Status.WRONG: logging.ERROR,
}
