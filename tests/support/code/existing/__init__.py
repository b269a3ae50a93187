"""Applications that know nothing of recovery, and the tasks of two of them: clean --> report --> publish.

A folder of DAGs gets a copy of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_recovery.operators import RecoverableSparkSubmitOperator, RecoveryPublishOperator

HERE = Path(__file__).parent


def two_applications(lake: str, *, report: str, outputs: Sequence[str] | Mapping[str, str], **submitted: Any) -> None:
    """In the DAG around the call. ``lake`` has ``raw.csv``; ``submitted`` goes to both operators.

    ``report`` is the second application's file, ``outputs`` are its operator's.
    """
    clean = RecoverableSparkSubmitOperator(
        task_id="clean",
        application=str(HERE / "clean.py"),
        inputs={"raw": f"{lake}/raw.csv"},
        outputs=["cleaned"],
        application_args=["{input:raw}", "{output:cleaned}"],
        **submitted,
    )
    reported = RecoverableSparkSubmitOperator(
        task_id="report",
        application=str(HERE / report),
        inputs={"cleaned": clean.result("cleaned")},
        outputs=outputs,
        application_args=["{input:cleaned}", "{output:report}"],
        **submitted,
    )
    reported >> RecoveryPublishOperator(task_id="publish")
