"""``python -m reference.split_exploration [--splits 4] [--faults 2] ...``."""

import sys

from reference.split_exploration.command import main

sys.exit(main())
