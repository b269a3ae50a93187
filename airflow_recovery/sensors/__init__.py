"""Sensors: tasks that wait for what other runs publish. Reads the journal, writes nothing."""

from airflow_recovery.sensors.result import RecoveryResultSensor

__all__ = ["RecoveryResultSensor"]
