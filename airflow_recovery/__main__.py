"""``python -m airflow_recovery``: the commands without Airflow."""

from __future__ import annotations

from airflow_recovery.console.main import leave, main

if __name__ == "__main__":
    leave(main())
