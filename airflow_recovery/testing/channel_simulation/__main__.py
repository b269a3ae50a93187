"""`python -m airflow_recovery.testing.channel_simulation`."""

import sys

from airflow_recovery.testing.channel_simulation.drill import main

sys.exit(main())
