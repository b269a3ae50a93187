"""``python -m airflow_recovery``: the commands without Airflow."""

from __future__ import annotations

import gc

from airflow_recovery.console.main import leave, main

if __name__ == "__main__":
    gc.disable()  # the process ends with its command: what a large run has left is not looked through once more
    leave(main(), at_once=True)
