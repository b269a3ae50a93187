from __future__ import annotations

import sys
from pathlib import Path

# `fakes`, a run without Airflow and Spark, is shared with the tests of the protocol.
sys.path.insert(0, str(Path(__file__).parents[1] / "attempt"))
