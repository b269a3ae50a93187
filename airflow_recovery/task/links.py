"""Links from a task instance: to the Recovery tab of its run, and to its application in Spark's history server.

Airflow computes them when a try ends, in the task's process: there is none while it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf

from airflow_recovery.hooks.settings import SECTION

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

TAB_ROUTE = "recovery-dag-run"
"""Where the plugin puts the tab of a run, in Airflow's pages."""
PLACE = "{application_id}"


def tab_url(dag_id: str, run_id: str) -> str:
    """The Recovery tab of a run: below ``[api] base_url``, or relative to the host where that is not set."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}/plugin/{TAB_ROUTE}"


def history_url(application_id: str | None) -> str:
    """The application in the history server that ``[recovery] spark_history_url`` names; empty: there is none."""
    template = (conf.get(SECTION, "spark_history_url", fallback="") or "").rstrip("/")
    if not template or not application_id:
        return ""
    where = template if PLACE in template else f"{template}/history/{PLACE}/"
    return where.replace(PLACE, quote(application_id, safe=""))


class RecoveryTabLink(BaseOperatorLink):
    """To the Recovery tab of the run."""

    @property
    def name(self) -> str:
        """The text on the button."""
        return "Recovery"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The tab's address for the run of ``ti_key``; never empty."""
        return tab_url(ti_key.dag_id, ti_key.run_id)


class SparkHistoryLink(BaseOperatorLink):
    """To the Spark application of the try; where it was kept, to that which made the result."""

    @property
    def name(self) -> str:
        """The text on the button."""
        return "Spark history"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Its address; empty where no history server is configured, or the application is not known."""
        return history_url(getattr(operator, "spark_application_id", None))
