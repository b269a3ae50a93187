"""``python -m airflow_recovery``: the commands without Airflow."""

from __future__ import annotations

import sys

from airflow_recovery.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
