"""A DAG that publishes, and one that reads what it has published: as a declared input, and by asking the hook."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from airflow_recovery.operators import RecoveryPublishOperator, published, recoverable
from airflow_recovery.sensors import RecoveryResultSensor

Bash = recoverable(BashOperator, paths="plain")
Python = recoverable(PythonOperator)
COPY = "mkdir -p '{output:o}' && cat '{input:rows}'/* > '{output:o}/part-0'"
SOURCE = Path(os.environ["CLEAR_CLIENTS_OUT"]) / "source"
"""A folder of the test."""

with DAG("upstream", schedule=None, catchup=False):
    made = Bash(task_id="a", bash_command=COPY, inputs={"rows": SOURCE.as_uri()}, outputs=["o"])
    made >> RecoveryPublishOperator(task_id="publish")


def ask(out: str, logical_date: str) -> None:
    from airflow_recovery.hooks.result import RecoveryResultHook

    result = RecoveryResultHook().get_result("upstream", "a.o", logical_date=logical_date)
    folder = Path(out.removeprefix("file://"))
    folder.mkdir(parents=True)
    rows = "".join(Path(uri.removeprefix("file://")).read_text() for uri in result.files)
    (folder / "part-0").write_text(rows)


with DAG("downstream", schedule=None, catchup=False):
    ready = RecoveryResultSensor(
        task_id="ready", external_dag_id="upstream", vertex="a.o", poke_interval=1, timeout=86400
    )
    declared = Bash(task_id="declared", bash_command=COPY, inputs={"rows": published("upstream", "a.o")}, outputs=["o"])
    asked = Python(
        task_id="asked",
        python_callable=ask,
        op_kwargs={"out": "{output:o}", "logical_date": "{{ logical_date.isoformat() }}"},
        outputs=["o"],
    )
    ready >> [declared, asked]

with DAG("by_uri", schedule=None, catchup=False):
    FOLDER = f"{SOURCE.parent.as_uri()}/by_uri/{{{{ ds }}}}"
    Bash(
        task_id="reads",
        bash_command="cat '{input:rows}'/* && mkdir -p '{output:o}' && cp '{input:rows}'/* '{output:o}'",
        inputs={"rows": FOLDER},
        outputs=["o"],
    )
    Bash(
        task_id="writes",
        bash_command="sleep 2; mkdir -p '{output:o}' && echo new > '{output:o}/part-0'",
        outputs={"o": FOLDER},
        idempotent=True,
    )
