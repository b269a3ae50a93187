"""`python -m airflow_recovery.testing.crash_kit`."""

import sys

from airflow_recovery.testing.crash_kit.cli import main

sys.exit(main())
