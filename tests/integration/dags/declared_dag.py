"""The DAG of `test_cleared_alone.py`, which changes this file and the script between two tries: make --> read."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_recovery.operators import RecoveryPublishOperator, recoverable

Job = recoverable(BashOperator, paths="plain")
SCRIPT = Path(__file__).parent / "declared_script" / "make.program"


def job(name: str, command: str, **options: Any) -> Any:
    return Job(
        task_id=name, bash_command=f"set -e; mkdir -p {{output:o}}; {command}", outputs=["o"], retries=3, **options
    )


with DAG("declared", schedule=None):
    make = job("make", "bash $SCRIPT > {output:o}/o", env={"SCRIPT": str(SCRIPT)}, append_env=True)
    read = job("read", "cat {input:make}/o > {output:o}/o", inputs={"make": make.result("o")})
    read >> RecoveryPublishOperator(task_id="publish")

with DAG("declared_each_time", schedule=None):
    make = job("make", f"echo {datetime.now()} > {{output:o}}/o")
    read = job("read", "cat {input:make}/o > {output:o}/o", inputs={"make": make.result("o")})
    read >> RecoveryPublishOperator(task_id="publish")
