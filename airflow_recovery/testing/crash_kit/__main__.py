"""Lets ``python -m airflow_recovery.testing.crash_kit`` run the command line of `cli`."""

import sys

from airflow_recovery.testing.crash_kit.cli import main

sys.exit(main())
