"""The task group: one task a region, wired by the region graph, with Airflow's own rules for arguments."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, BaseOperator, CronDataIntervalTimetable, TaskGroup
from expected_errors import fails_with

from airflow_recovery import Job, Retention
from airflow_recovery.operators import RecoveryPublishOperator, SparkJobTaskGroup, SparkRegionOperator
from airflow_recovery.operators.start_spark import StartSparkOperator
from airflow_recovery.operators.stop_spark import StopSparkOperator

JOB = "dagjobs.shapes:diamond"
REGIONS = {"cleaned", "left", "right", "joined", "aside"}
START = datetime(2024, 1, 1, tzinfo=timezone.utc)


def new_dag(**arguments: Any) -> DAG:
    return DAG("d", schedule=None, start_date=START, **arguments)


def diamond(dag: DAG, group_id: str = "g", **arguments: Any) -> SparkJobTaskGroup:
    with dag:
        return SparkJobTaskGroup(group_id=group_id, job=JOB, **arguments)


def test_one_task_a_region_wired_by_the_region_graph() -> None:
    dag = new_dag()
    diamond(dag)

    downstream = {task.task_id: task.downstream_task_ids for task in dag.tasks}
    assert downstream == {
        "g.cleaned": {"g.left", "g.right"},
        "g.left": {"g.joined"},
        "g.right": {"g.joined"},
        "g.joined": {"g.publish"},
        "g.aside": {"g.publish"},
        "g.publish": set(),
    }
    region = dag.get_task("g.cleaned")
    assert isinstance(region, SparkRegionOperator)
    assert (region.job, region.region, region.group_id) == (JOB, "cleaned", "g")
    assert region.doc_md == "Vertices: raw, cleaned. Results: cleaned."


def test_a_nested_group_is_known_by_its_full_id() -> None:
    dag = new_dag()
    with dag, TaskGroup("outer"):
        SparkJobTaskGroup(group_id="inner", job=JOB)

    region = dag.get_task("outer.inner.left")
    assert isinstance(region, SparkRegionOperator)
    assert region.group_id == "outer.inner"
    assert dag.get_task("outer.inner.publish").group_id == "outer.inner"  # type: ignore[union-attr]


def test_two_groups_of_one_job_have_a_journal_each() -> None:
    dag = new_dag()
    diamond(dag, "one")
    diamond(dag, "two")

    groups = {task.task_id: task.group_id for task in dag.tasks if isinstance(task, SparkRegionOperator)}
    assert groups == {f"{group}.{region}": group for group in ("one", "two") for region in REGIONS}


def test_a_group_is_wired_as_every_task_group() -> None:
    dag = new_dag()
    with dag:
        before, after = BaseOperator(task_id="before"), BaseOperator(task_id="after")
        group = SparkJobTaskGroup(group_id="g", job=JOB)
        before >> group >> after

    assert before.downstream_task_ids == {"g.cleaned", "g.aside"}
    assert after.upstream_task_ids == {"g.publish"}


# --- arguments --------------------------------------------------------------------------------------------------------

OURS = {"retries": 12, "retry_delay": timedelta(seconds=1)}
"""Two restarts of a region that may fail three times, and ten tries that only wait. So has a publish."""
FIVE = timedelta(minutes=5)


@pytest.mark.parametrize(
    ("dag_defaults", "group_defaults", "arguments", "expected"),
    [
        ({}, {}, {}, OURS),
        ({"retries": 7}, {}, {}, {**OURS, "retries": 7}),
        ({}, {"retries": 7}, {}, {**OURS, "retries": 7}),
        ({"retries": 7}, {"retries": 8}, {}, {**OURS, "retries": 8}),
        ({"retries": 7}, {"retries": 8}, {"retries": 9}, {**OURS, "retries": 9}),
        ({"retries": 0}, {}, {}, {**OURS, "retries": 0}),
        ({"retry_delay": FIVE}, {}, {}, {**OURS, "retry_delay": FIVE}),
        ({"retry_delay": FIVE}, {}, {"retry_delay": timedelta(0)}, {**OURS, "retry_delay": timedelta(0)}),
        ({"owner": "somebody"}, {"pool": "p"}, {}, OURS),
    ],
)
def test_what_the_user_says_wins_over_our_retries(
    dag_defaults: dict[str, Any], group_defaults: dict[str, Any], arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    dag = new_dag(default_args=dag_defaults)
    diamond(dag, default_args=group_defaults, **arguments)

    for task in dag.tasks:
        assert {"retries": task.retries, "retry_delay": task.retry_delay} == expected, task.task_id


def test_every_argument_of_spark_submit_passes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {
        "conf": {"a": "b"}, "env_vars": {"A": "b"}, "post_submit_commands": ["true"], "use_krb5ccache": True,
    }  # fmt: skip
    ours = ("self", "kwargs", "application", "application_args", "java_class", "reconnect_on_retry", "durable")
    for name, parameter in inspect.signature(SparkSubmitOperator.__init__).parameters.items():
        if name not in known and name not in ours:
            kind = type(parameter.default)
            known[name] = True if kind is bool else 7 if kind is int else f"my {name}"
    monkeypatch.setattr(
        "airflow.providers.apache.spark.operators.spark_submit.SparkSubmitHook",
        lambda **given: SimpleNamespace(given=given, submit=None.__eq__, _process_spark_submit_log=list),
    )
    dag = new_dag()
    diamond(dag, **known, durable=False)

    region: Any = dag.get_task("g.left")
    plain: Any = SparkSubmitOperator(task_id="plain", **known, durable=False)
    assert region._get_hook().given == plain._get_hook().given
    assert region.durable is False
    assert len(known) > 30


def test_airflows_own_arguments_pass_through_and_publish_gets_where_it_runs() -> None:
    dag = new_dag()
    diamond(dag, pool="spark", queue="big", doc_md="mine", max_active_tis_per_dag=2, conf={"a": "b"})

    region, publish = dag.get_task("g.left"), dag.get_task("g.publish")
    assert (region.pool, region.queue, region.doc_md, region.max_active_tis_per_dag) == ("spark", "big", "mine", 2)
    assert (publish.pool, publish.queue, publish.max_active_tis_per_dag) == ("spark", "big", None)


def test_priorities_are_those_of_the_group() -> None:
    dag = new_dag()
    diamond(dag, priority_weight=7, weight_rule="absolute")

    weights = {task.task_id: task.priority_weight for task in dag.tasks}
    assert {weights[f"g.{name}"] for name in ("cleaned", "left", "right", "joined")} == {7}
    assert dag.get_task("g.left").weight_rule == dag.get_task("g.joined").weight_rule


def test_a_connection_may_come_from_default_args() -> None:
    dag = new_dag(default_args={"conn_id": "theirs"})
    diamond(dag, "one")
    diamond(dag, "two", conn_id="mine")

    assert dag.get_task("one.left")._conn_id == "theirs"  # type: ignore[union-attr]
    assert dag.get_task("two.left")._conn_id == "mine"  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["application", "application_args", "java_class", "region", "task_id"])
def test_what_the_job_decides_is_refused(name: str) -> None:
    with fails_with("option-of-the-job", where="SparkJobTaskGroup 'g'"):
        diamond(new_dag(), **{name: "x"})


def test_an_unknown_argument_is_refused_by_airflow() -> None:
    with pytest.raises(TypeError, match="executor_memry"):
        diamond(new_dag(), executor_memry="3g")


def test_a_vertex_named_publish_is_refused() -> None:
    with new_dag(), fails_with("region-named-as-last-task", found="publish"):
        SparkJobTaskGroup(group_id="g", job="dagjobs.shapes:misnamed")


def test_an_unknown_job_is_refused_with_what_is_there() -> None:
    with new_dag(), fails_with("job-not-in-module"):
        SparkJobTaskGroup(group_id="g", job="dagjobs.shapes:diamnd")


def test_retention_may_be_said_as_in_the_configuration() -> None:
    with new_dag():
        group = SparkJobTaskGroup(group_id="g", job="dagjobs.shapes:diamond", retention="as-consumed 1h")
    assert group.retention == Job("j", retention="as-consumed 1h").retention == Retention.as_consumed("1h")


def test_outlets_hang_on_the_publish_alone() -> None:
    dag, asset = new_dag(), Asset("delays")
    diamond(dag, outlets=[asset])

    assert {task.task_id: list(task.outlets) for task in dag.tasks if task.outlets} == {"g.publish": [asset]}


def test_publish_runs_where_some_regions_were_skipped() -> None:
    dag = new_dag()
    diamond(dag)
    publish = dag.get_task("g.publish")
    assert isinstance(publish, RecoveryPublishOperator)
    assert publish.trigger_rule == "none_failed_min_one_success"


# --- what Airflow does with it ----------------------------------------------------------------------------------------


def test_serialised_and_read_back() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    dag = new_dag()
    with dag, TaskGroup("outer"):
        SparkJobTaskGroup(group_id="g", job=JOB, outlets=[Asset("delays")], conf={"a": "{{ ds }}"}, retries=5)

    document = DagSerialization.to_dict(dag)
    DagSerialization.validate_schema(document)
    read: Any = DagSerialization.from_dict(document)

    assert {task.task_id for task in read.tasks} == {f"outer.g.{region}" for region in (*REGIONS, "publish")}
    left = read.get_task("outer.g.left")
    assert (left.retries, left.retry_delay, left.task_type) == (5, timedelta(seconds=1), "SparkRegionOperator")
    assert left.downstream_task_ids == {"outer.g.joined"}
    assert left.template_fields == [*SparkSubmitOperator.template_fields, "subtask"]
    assert [outlet.name for outlet in read.get_task("outer.g.publish").outlets] == ["delays"]
    assert DagSerialization.to_dict(dag) == document  # nothing random in it: no new DAG version with every parse


def test_a_run_with_a_spark_of_its_own_has_a_setup_and_a_teardown_around_its_regions() -> None:
    dag = new_dag()
    with dag:
        before, after = BaseOperator(task_id="before"), BaseOperator(task_id="after")
        group = SparkJobTaskGroup(
            group_id="g", job=JOB, spark="per-run", conn_id="own", conf={"spark.x": "1"}, deferrable=False, pool="p"
        )
        before >> group >> after

    start, stop = dag.get_task("g.start_spark"), dag.get_task("g.stop_spark")
    assert isinstance(start, StartSparkOperator)
    assert isinstance(stop, StopSparkOperator)
    assert (start.is_setup, stop.is_teardown, stop.trigger_rule) == (True, True, "all_done_setup_success")
    assert start.downstream_task_ids == {"g.cleaned", "g.aside", "g.stop_spark"}
    assert stop.upstream_task_ids == {"g.publish", "g.start_spark"}
    assert before.downstream_task_ids == {"g.start_spark"}
    assert after.upstream_task_ids == {"g.publish"}
    assert (start.conf, start._conn_id, start.pool, stop.conn_id, stop.pool) == (
        {"spark.x": "1"},
        "own",
        "p",
        "own",
        "p",
    )
    assert {task.spark for task in dag.tasks if isinstance(task, SparkRegionOperator)} == {"per-run"}


def test_a_region_that_is_submitted_by_itself_does_not_wait_for_the_spark_of_the_run() -> None:
    dag = new_dag()
    with dag:
        SparkJobTaskGroup(group_id="g", job="dagjobs.split_wise:orders", spark="per-run")
    assert dag.get_task("g.start_spark").downstream_task_ids == {"g.best", "g.stop_spark"}
    assert dag.get_task("g.kept").upstream_task_ids == set()
    assert dag.get_task("g.best").upstream_task_ids == {"g.start_spark", "g.kept"}


def test_a_run_of_regions_that_are_all_submitted_by_themselves_has_no_spark_of_its_own() -> None:
    dag = new_dag()
    with dag:
        SparkJobTaskGroup(group_id="g", job="dagjobs.streams:scoring", spark="per-run")
    assert {task.task_id for task in dag.tasks} == {"g.events", "g.scores", "g.table", "g.audit"}


def test_a_run_has_no_setup_task_of_ours_unless_it_has_a_spark_of_its_own() -> None:
    dag = new_dag()
    diamond(dag)
    assert not [task.task_id for task in dag.tasks if task.is_setup or task.is_teardown]


def test_a_spark_of_its_own_is_refused_by_name_without_recovery_and_for_another_scope() -> None:
    off = {"execution.batch.job-recovery.enabled": False}
    with fails_with("per-run-without-recovery", where="g"):
        diamond(new_dag(), spark="per-run", job_recovery=off)
    with fails_with("argument-unfit", argument="spark", found="'per-task'"):
        diamond(new_dag(), spark="per-task")


DAYS = """
from airflow_recovery import dates, job

daily = job("daily")

@daily.source(splits=dates())
def raw(spark, splits): ...

@daily.sink
def shown(raw): ...
"""


@pytest.mark.parametrize(("cron", "is_warned"), [("0 2 * * *", True), ("0 0 * * *", False)])
def test_fault_364_a_schedule_whose_intervals_begin_within_a_day_is_named_at_the_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cron: str, is_warned: bool
) -> None:
    (tmp_path / "jobs_of_days.py").write_text(DAYS)
    monkeypatch.syspath_prepend(tmp_path)
    with DAG("d", schedule=CronDataIntervalTimetable(cron, timezone="UTC"), start_date=START):
        SparkJobTaskGroup("g", job="jobs_of_days:daily")
    assert ("raw" in caplog.text and "each run will fail" in caplog.text) is is_warned
