"""Which inputs may be absent, and what a trigger rule may not do (fault 181)."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import BranchPythonOperator
from airflow.sdk import DAG
from expected_errors import fails_with

from airflow_recovery.operators import recoverable
from airflow_recovery.operators.drop_in import RUNS_AFTER_SKIPS
from airflow_recovery.task.dag_operators import plan_of_dag

Job = recoverable(BashOperator, paths="plain")


def branched(rule: str, *, optional: tuple[str, ...] = (), has_branch: bool = True) -> DAG:
    """``branch >> between >> [x, y] >> join``."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)) as dag:
        between = EmptyOperator(task_id="between")
        if has_branch:
            branch = BranchPythonOperator(task_id="branch", python_callable=lambda: "between")
        made = [Job(task_id=name, bash_command="cp a {output:o}", outputs=["o"]) for name in "xy"]
        Job(
            task_id="join",
            bash_command="cat {input:x} {input:y} > {output:o}",
            inputs={each.task_id: each.result("o", optional=each.task_id in optional) for each in made},
            outputs=["o"],
            trigger_rule=rule,
        )
        between >> made
        if has_branch:
            branch >> between
    return dag


@pytest.mark.parametrize("rule", sorted(RUNS_AFTER_SKIPS))
def test_fault_181_a_rule_that_runs_on_skips_needs_an_optional_input_behind_a_branch(rule: str) -> None:
    with fails_with("input-may-be-skipped", task="join", input="x", producer="x"):
        branched(rule).resolve_template_files()
    branched(rule, optional=("y",)).resolve_template_files()


@pytest.mark.parametrize("rule", ["all_success", "none_skipped"])
def test_a_rule_by_which_airflow_skips_it_needs_none(rule: str) -> None:
    branched(rule).resolve_template_files()


def test_where_no_branch_stands_before_the_producers_the_rule_is_free() -> None:
    branched("all_done", has_branch=False).resolve_template_files()


def test_a_plan_names_the_producers_whose_outputs_are_all_optional() -> None:
    assert plan_of_dag(branched("all_done", optional=("x",))).by_name["join"].optional == ("x",)
    assert plan_of_dag(branched("all_success")).by_name["join"].optional == ()
