"""Triggers: what the triggerer waits for on behalf of the sensors.

Runs in Airflow's triggerer, where blocking calls belong into threads. Never imports operators.
"""

from airflow_recovery.triggers.result import ResultPublishedTrigger

__all__ = ["ResultPublishedTrigger"]
