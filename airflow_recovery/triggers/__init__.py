"""Triggers: what the triggerer waits for on behalf of sensors, of regions whose shared result another run makes, and of
streaming regions whose channel nobody has opened yet (`airflow_recovery.triggers.channel`).

Runs in Airflow's triggerer, where blocking calls belong into threads. Never imports operators.
"""

from airflow_recovery.triggers.result import ResultPublishedTrigger
from airflow_recovery.triggers.shared import SharedResultTrigger

__all__ = ["ResultPublishedTrigger", "SharedResultTrigger"]
