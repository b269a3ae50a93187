"""Telling people, by Airflow's own notifiers, what recovery did in a run. Reads the journal, and changes nothing."""

from airflow_recovery.notifications.recovered import RecoveredNotifier

__all__ = ["RecoveredNotifier"]
