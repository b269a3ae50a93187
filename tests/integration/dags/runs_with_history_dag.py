"""The DAGs of `test_runs_with_history.py`. What an operator does is in a file of the run's gates: another deploy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import BranchPythonOperator
from airflow.sdk import DAG

from airflow_recovery.operators import RecoveryPublishOperator, recoverable

Job = recoverable(BashOperator, paths="plain")


def said(dag_run: Any, name: str, default: str) -> str:
    """The text of a file of the gates; ``default`` if there is none."""
    path = Path(dag_run.conf["gates"]) / name
    return path.read_text() if path.exists() else default


def taken(dag_run: Any) -> str:
    return said(dag_run, "branch", "x")


def made(name: str) -> Any:
    return Job(
        task_id=name,
        bash_command=(
            "set -e; mkdir -p {output:o}; ({{ said(dag_run, task.task_id, 'echo ' + task.task_id) }}) > {output:o}/o"
        ),
        outputs=["o"],
        retries=0,
    )


def reads(name: str, *producers: Any, rule: str, optional: bool = False) -> Any:
    """It writes what its inputs have, one after the other."""
    read = " ".join(f"$([ -n '{{input:{each.task_id}}}' ] && cat {{input:{each.task_id}}}/o)" for each in producers)
    return Job(
        task_id=name,
        bash_command=f"set -e; mkdir -p {{output:o}}; echo {read} > {{output:o}}/o",
        inputs={each.task_id: each.result("o", optional=optional) for each in producers},
        outputs=["o"],
        trigger_rule=rule,
        retries=0,
    )


def tells(name: str) -> Any:
    """It leaves its name as an XCom."""
    command = "mkdir -p {output:o} && echo {{ task.task_id }} | tee {output:o}/o"
    return Job(task_id=name, bash_command=command, outputs=["o"], retries=0)


with DAG("histories", schedule=None, user_defined_macros={"said": said}):
    a, lone = made("a"), made("lone")
    b = reads("b", a, rule="all_success")
    done = reads("done", a, rule="all_done")
    failed = reads("failed", a, rule="one_failed")
    [b, done, failed, lone] >> RecoveryPublishOperator(task_id="publish")

with DAG("histories_branch", schedule=None, user_defined_macros={"said": said}):
    branch = BranchPythonOperator(task_id="branch", python_callable=taken)
    x, y = made("x"), made("y")
    branch >> [x, y]
    join = reads("join", x, y, rule="none_failed_min_one_success", optional=True)
    join >> RecoveryPublishOperator(task_id="publish")

with DAG("histories_xcoms", schedule=None):
    branch = BranchPythonOperator(task_id="branch", python_callable=taken)
    x, y = tells("x"), tells("y")
    branch >> [x, y]
    join = Job(
        task_id="join",
        bash_command=f"mkdir -p {{output:o}} && echo '{{{{ ti.xcom_pull(\"x\") }}}} {y.output}' > {{output:o}}/o",
        inputs={each.task_id: each.result("o", optional=True) for each in (x, y)},
        outputs=["o"],
        trigger_rule="none_failed_min_one_success",
        retries=0,
    )

with DAG("histories_waits", schedule=None):
    Job(
        task_id="slow",
        bash_command=(
            "until [ -e {{ dag_run.conf['gates'] }}/open ]; do sleep 0.1; done; "
            "mkdir -p {output:o} && echo > {output:o}/o"
        ),
        outputs=["o"],
        retries=0,
    )
    RecoveryPublishOperator(task_id="publish", retries=0)
