"""``python -m airflow_recovery.testing.split_exploration [--splits 4] [--faults 2] ...``."""

import sys

from airflow_recovery.testing.split_exploration.command import main

sys.exit(main())
