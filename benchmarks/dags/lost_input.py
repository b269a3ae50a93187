"""A result that four applications read; the last of them fails once, and takes the result with it.

joined --+--> by_day
         +--> by_route
         +--> by_carrier
         +--> last
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

from airflow.sdk import DAG

from airflow_recovery.model.determinism import DeterminismLike
from airflow_recovery.operators import RecoverableSparkSubmitOperator

APPLICATION = str(Path(__file__).parents[1] / "applications" / "slow_step.py")
WORK_S = os.environ.get("BENCHMARK_WORK_S", "0")
FAIL = os.environ.get("BENCHMARK_FAILURES", "")
WAYS: dict[str, tuple[DeterminismLike | None, list[str]]] = {
    "files": (None, []),
    "verify": ("verify", ["--shuffle"]),
    "always": ("always", []),
}

for way, (deterministic, arguments) in WAYS.items():
    with DAG(f"lost_{way}", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)):
        joined = RecoverableSparkSubmitOperator(
            task_id="joined",
            application=APPLICATION,
            outputs=["rows"],
            application_args=["{output:rows}", WORK_S, *arguments],
            deterministic=deterministic,
        )
        readers = [
            RecoverableSparkSubmitOperator(
                task_id=name,
                application=APPLICATION,
                inputs={"rows": joined.result("rows")},
                outputs=["sum"],
                application_args=["{output:sum}", WORK_S, "--in", "{input:rows}"]
                + (["--fail-if", f"{FAIL}/lost_{way}"] if name == "last" else []),
            )
            for name in ("by_day", "by_route", "by_carrier", "last")
        ]
        readers[:-1] >> readers[-1]
