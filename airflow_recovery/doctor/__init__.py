"""What ``airflow recovery doctor`` looks at: whether what is installed and configured here can recover tonight.

A check is a small function that yields `result.CheckResult` values; it asks for what it needs as arguments, so that a
test can hand it a broken world. `checking` runs them one after the other, each bounded in time; `components` says which
of them a component needs. What has to ask Airflow is in `airflow_recovery.task.doctor` and
`airflow_recovery.operators.doctor`; the printing is in `airflow_recovery.console.doctor`.
"""
