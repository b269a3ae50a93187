"""`PYTHONPATH=tests:. python -m simulation`."""

import sys

from simulation.drill import main

sys.exit(main())
