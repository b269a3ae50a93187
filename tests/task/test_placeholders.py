"""Placeholders and the plan of a DAG's operators."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator
from expected_errors import fails_with

from airflow_recovery.operators import OutputReference, RecoverableSparkSubmitOperator, RecoveryPublishOperator
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.task.dag_operators import drop_ins_of, on_altered_of, plan_of_dag
from airflow_recovery.task.references import filled, placeholders

LOCATIONS = {("output", "out"): "s3a://b/out", ("input", "in"): "s3a://b/in"}


def test_every_placeholder_of_every_argument_is_filled() -> None:
    arguments = ["--io", "{input:in}:{output:out}", 3, "{output:out}/x", "{plain}", '{"json": 1}']
    assert filled(arguments, LOCATIONS) == [
        "--io", "s3a://b/in:s3a://b/out", 3, "s3a://b/out/x", "{plain}", '{"json": 1}',
    ]  # fmt: skip
    assert filled(None, LOCATIONS) is None
    assert placeholders(arguments) == set(LOCATIONS)


def test_what_stands_for_nothing_is_refused() -> None:
    with fails_with("placeholder-unknown", found="{output:uot}"):
        filled(["--x={output:uot}"], LOCATIONS)


def test_arguments_that_are_no_list_have_no_placeholders_yet() -> None:
    assert placeholders("{{ ti.xcom_pull('args') }}") == set()
    assert placeholders(None) == set()


def test_a_filled_location_is_not_filled_again() -> None:
    assert filled(["{input:in}"], {("input", "in"): "s3a://b/{output:out}"}) == ["s3a://b/{output:out}"]


@pytest.fixture
def dag() -> Any:
    """written last to first: z reads y and x, y reads x; and a task of another kind"""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)) as dag:

        def operator(task_id: str, inputs: Any = None, **given: Any) -> RecoverableSparkSubmitOperator:
            return RecoverableSparkSubmitOperator(
                task_id=task_id, application="s3://b/a.jar", inputs=inputs,
                outputs=["a", "b"], application_args=["{output:a}{output:b}"], **given,
            )  # fmt: skip

        x = operator("x")
        y = operator("y", {"i": x.result("a"), "j": x.result("b")}, on_altered="recompute")
        operator("z", {"y": y.result("a"), "x": x.result("a"), "u": "s3://lake/u"})
        BaseOperator(task_id="other")
        RecoveryPublishOperator(task_id="publish")
    return dag


def test_the_drop_ins_of_a_dag_are_one_job(dag: Any) -> None:
    plan = plan_of_dag(dag)
    assert plan.job == "operators of d"
    assert [(region.name, region.inputs, region.final, region.fingerprint) for region in plan.regions] == [
        ("x", (), False, None),
        ("y", ("x",), False, None),
        ("z", ("y", "x"), True, None),
    ]
    assert plan.regions[0].results == ("x.a", "x.b")


def test_the_order_is_that_of_reading_not_of_declaring(dag: Any) -> None:
    dag.task_dict = dict(reversed(dag.task_dict.items()))
    assert list(drop_ins_of(dag)) == ["x", "y", "z"]


def test_an_unknown_reference_is_refused_by_name(dag: Any) -> None:
    dag.get_task("z").inputs["y"] = OutputReference("y", "c")
    with fails_with("input-not-declared", task="z", input="y"):
        plan_of_dag(dag)


def test_the_policy_of_each(dag: Any) -> None:
    assert on_altered_of(dag) == {"x": OnAltered.STOP, "y": OnAltered.RECOMPUTE, "z": OnAltered.STOP}
