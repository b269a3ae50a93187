"""An application with three readers, each way to say what becomes of them when it has run again.

joined --+--> by_day
         +--> by_route
         +--> late
"""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG
from existing import HERE as EXISTING

from airflow_recovery.model.determinism import Determinism
from airflow_recovery.operators import RecoverableSparkSubmitOperator

APPLICATIONS = Path(__file__).parent / "applications"
LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")

for name, deterministic in (("unsaid", None), ("verify", Determinism.VERIFY), ("always", Determinism.ALWAYS)):
    with DAG(f"joined_{name}", schedule=None):
        joined = RecoverableSparkSubmitOperator(
            task_id="joined",
            conn_id="submit",
            application=str(APPLICATIONS / "joined.py"),
            outputs=["rows"],
            application_args=[f"{LAKE}/joined_{name}/raw.csv", "{output:rows}"],
            deterministic=deterministic,
        )
        for reader in ("by_day", "by_route", "late"):
            RecoverableSparkSubmitOperator(
                task_id=reader,
                conn_id="submit",
                application=str(EXISTING / "report.py"),
                inputs={"rows": joined.result("rows")},
                outputs=["report"],
                application_args=["{input:rows}", "{output:report}"],
            )
