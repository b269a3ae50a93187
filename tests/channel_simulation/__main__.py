"""`PYTHONPATH=tests:. python -m channel_simulation`."""

import sys

from channel_simulation.drill import main

sys.exit(main())
