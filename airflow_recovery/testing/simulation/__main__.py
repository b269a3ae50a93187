"""`python -m airflow_recovery.testing.simulation`."""

import sys

from airflow_recovery.testing.simulation.drill import main

sys.exit(main())
