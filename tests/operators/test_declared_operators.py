"""What the DAG's file declares of an operator, as every task of the DAG reads it (faults 240 and 241)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_recovery.airflow_compat import DagBag
from airflow_recovery.task.dag_read_again import declared_operators, read_again

DAG_FILE = """
import random
from datetime import datetime, timedelta
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from airflow_recovery.operators import recoverable
from airflow_recovery.operators.spark_submit import RecoverableSparkSubmitOperator
HERE = __file__.rpartition("/")[0]

class Other(RecoverableSparkSubmitOperator):
    pass

class OwnBash(BashOperator):
    pass

def compute(out):
    return 1

with DAG("declared", start_date=datetime(2026, 1, 1)):
    RecoverableSparkSubmitOperator(
        task_id="submitted", application=f"{HERE}/clean.py", outputs=["o"],
        application_args=["--day", "{{ ds }}", "--out", "{output:o}"],
    )
    recoverable(BashOperator)(
        task_id="shell", bash_command="cp {{ ds }} {output:o} # " + HERE, env={"A": "1"}, outputs=["o"]
    )
    recoverable(OwnBash)(task_id="own", bash_command="cp a {output:o}", outputs=["o"])
    recoverable(PythonOperator)(
        task_id="python", python_callable=compute, op_kwargs={"out": "{output:o}", "days": {1, 2}}, outputs=["o"]
    )
"""
CHANGES: dict[str, tuple[str, str, str]] = {
    "arguments of spark-submit": ("submitted", '"--day", "{{ ds }}"', '"--date", "{{ ds }}"'),
    "class": ("submitted", "    RecoverableSparkSubmitOperator(", "    Other("),
    "application": ("submitted", "clean.py", "other.py"),
    "name of an output": (
        "submitted",
        'outputs=["o"],\n        application',
        'outputs=["o", "p"],\n        application',
    ),
    "a template": ("shell", "cp {{ ds }}", "cp {{ ds_nodash }}"),
    "a value in a mapping": ("shell", '"A": "1"', '"A": "2"'),
    "code of a function": ("python", "return 1", "return 2"),
    "an argument of a function": ("python", "{1, 2}", "{1, 3}"),
}
NO_CHANGES = {
    "retries": ('task_id="shell"', 'task_id="shell", retries=3'),
    "memory": ('task_id="submitted"', 'task_id="submitted", driver_memory="4g"'),
    "the schedule": ('DAG("declared"', 'DAG("declared", schedule=timedelta(days=1)'),
}
UNSTABLE = ["datetime.now()", "random.random()", "object()"]


def read(folder: Path, text: str = DAG_FILE, application: str = "print(1)") -> Any:
    """The DAG, as a process of Airflow reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clean.py").write_text(application)
    (folder / "other.py").write_text("print(2)")
    (folder / "declared_dag.py").write_text(text)
    bag: Any = DagBag(dag_folder=folder, collect_dags=False, bundle_path=folder)
    (dag,) = bag.process_file(str(folder / "declared_dag.py"), only_if_updated=False, safe_mode=False)
    return dag


def digests(dag: Any) -> dict[str, str | None]:
    declared = declared_operators(dag)
    return {name: declared.own(name) for name in dag.task_dict}


def test_two_processes_in_two_folders_read_the_same(tmp_path):
    one, two = digests(read(tmp_path / "versions" / "1a")), digests(read(tmp_path / "versions" / "2b"))
    assert one == two
    assert None not in one.values()


@pytest.mark.parametrize("change", CHANGES)
def test_fault_240_a_change_of_class_arguments_or_code_is_seen(tmp_path, change):
    task, old, new = CHANGES[change]
    before, after = digests(read(tmp_path / "a")), digests(read(tmp_path / "b", DAG_FILE.replace(old, new)))
    assert [name for name in before if before[name] != after[name]] == [task]


def test_fault_240_so_is_the_content_of_a_local_file(tmp_path):
    before, after = digests(read(tmp_path / "a")), digests(read(tmp_path / "b", application="print(3)"))
    assert [name for name in before if before[name] != after[name]] == ["submitted"]


@pytest.mark.parametrize("change", NO_CHANGES)
def test_what_computes_nothing_else_is_not(tmp_path, change):
    assert digests(read(tmp_path / "a")) == digests(read(tmp_path / "b", DAG_FILE.replace(*NO_CHANGES[change])))


def test_the_own_task_has_the_same_digest_once_its_arguments_are_rendered(tmp_path):
    before, dag = digests(read(tmp_path / "a")), read(tmp_path / "b")
    for task in dag.tasks:
        task.render_template_fields({"ds": "2026-01-01"})
    assert dag.task_dict["submitted"].application_args[1] == "2026-01-01"
    assert digests(dag) == before


@pytest.mark.parametrize("value", UNSTABLE)
def test_fault_241_what_is_other_each_time_is_found_by_a_second_reading(tmp_path, value):
    dag = read(tmp_path, DAG_FILE.replace('"--day"', f"str({value})"))
    declared = declared_operators(dag)
    assert declared.own("submitted") != declared.own_again("submitted") or value == "object()"
    assert declared.own("shell") == declared.own_again("shell")


def test_a_second_reading_leaves_the_module_of_the_running_task_in_place(tmp_path):
    dag = read(tmp_path)
    module = sys.modules[dag.task_dict["python"].python_callable.__module__]
    again = read_again(dag)
    assert again.dag_id == dag.dag_id
    assert again is not dag
    assert sys.modules[module.__name__] is module


def test_a_file_that_can_not_be_read_again_has_no_second_digest(tmp_path):
    dag = read(tmp_path)
    Path(dag.fileloc).write_text("raise ValueError")
    declared = declared_operators(dag)
    assert declared.own("submitted") is not None
    assert declared.own_again("submitted") is None
