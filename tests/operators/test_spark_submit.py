"""Declaring drop-in operators, and what reaches spark-submit."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import DAG, TaskGroup
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from paths import CODE
from tries import run_try, submissions, task_context

from airflow_recovery.operators import OutputReference, RecoverableSparkSubmitOperator
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.results.stored_rows import ReadLimits
from airflow_recovery.task.dag_operators import plan_of_dag

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
WRITER = str(CODE / "writer.py")


def new_dag(**arguments: Any) -> DAG:
    return DAG("d", schedule=None, start_date=START, **arguments)


def operator(task_id: str = "t", dag: DAG | None = None, **given: Any) -> RecoverableSparkSubmitOperator:
    given = {"application": WRITER, "outputs": ["out"], "application_args": ["--out", "{output:out}"], **given}
    with dag or new_dag():
        return RecoverableSparkSubmitOperator(task_id=task_id, **given)


# --- declaration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"outputs": []}, "no-outputs"),
        ({"outputs": "out"}, "outputs-unfit"),
        ({"outputs": ["a b"]}, "output-name-unfit"),
        ({"outputs": {"out": "hdfs://x/y"}}, "location-unfit"),
        ({"outputs": {"out": 3}}, "location-unfit"),
        ({"inputs": {"i": "relative/path"}}, "location-unfit"),
        (
            {"application_args": ["{output:uot}"]},
            "placeholder-in-vain",
        ),
        (
            {"application_args": ["{input:out}", "{output:out}"]},
            "placeholder-in-vain",
        ),
        ({"application_args": ["--out", "s3://x"]}, "output-never-told"),
        ({"application_args": None}, "output-never-told"),
        ({"on_altered": "ignore"}, "option-unfit"),
        ({"deterministic": True}, "deterministic-unfit"),
        ({"verify_max_bytes": 1}, "verify-option-useless"),
        (
            {"deterministic": "always", "verify_timeout": 3},
            "verify-option-useless",
        ),
        ({"deterministic": "verify", "verify_max_bytes": "1g"}, "argument-unfit"),
        ({"deterministic": "verify", "verify_max_bytes": 0}, "verify-limit-not-above-0"),
        (
            {"deterministic": "verify", "verify_timeout": timedelta(0)},
            "verify-limit-not-above-0",
        ),
        ({"inputs": {"i": OutputReference("gone", "x")}}, "input-of-no-operator"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(given: dict[str, Any], code: str) -> None:
    with fails_with(code):
        operator(**given)


@pytest.mark.parametrize(
    ("given", "planned", "limits"),
    [
        ({}, (("clean.out", "verify"),), ReadLimits(64 * 1024**2, 10.0, in_order=True)),
        ({"deterministic": "always"}, (), None),
        ({"deterministic": "assume"}, (("clean.out", "assume"),), None),
        ({"deterministic": "verify"}, (("clean.out", "verify"),), ReadLimits(10 * 1024**3, 300.0)),
        (
            {"deterministic": "verify", "verify_max_bytes": 9, "verify_timeout": timedelta(minutes=1)},
            (("clean.out", "verify"),),
            ReadLimits(9, 60.0),
        ),
    ],
)
def test_determinism_stands_on_the_producer_and_goes_into_the_plan(
    given: dict[str, Any], planned: tuple[tuple[str, str], ...], limits: ReadLimits | None
) -> None:
    dag = new_dag()
    clean = operator("clean", dag, **given)
    operator("report", dag, inputs={"i": clean.result("out")}, deterministic="always")
    regions = {region.name: region for region in plan_of_dag(dag).regions}
    assert (regions["clean"].determinism, clean.drop_in.read_limits) == (planned, limits)
    assert (regions["report"].determinism, regions["report"].reads) == ((), ("clean.out",))


def test_results_of_another_operator_are_named_by_it() -> None:
    clean = operator("clean", outputs=["a", "b"], application_args=["{output:a}{output:b}"])
    assert clean.result("b") == OutputReference("clean", "b")
    with fails_with("output-unknown", task="clean", output="c"):
        clean.result("c")


def test_reading_an_output_makes_upstream() -> None:
    dag = new_dag()
    clean = operator("clean", dag)
    with dag, TaskGroup("later"):
        report = operator("report", dag, inputs={"cleaned": clean.result("out"), "rates": "s3://lake/rates/"})

    assert report.task_id == "later.report"
    assert report.upstream_task_ids == {"clean"}
    assert report.inputs["rates"] == "s3://lake/rates"


def test_reading_another_dags_operator_is_refused() -> None:
    clean = operator("clean")
    with fails_with("input-of-no-operator"):
        operator("report", inputs={"cleaned": clean.result("out")})


def test_retries_give_way_to_what_the_user_says() -> None:
    assert (operator().retries, operator().retry_delay) == (12, timedelta(seconds=1))  # two restarts and ten waits
    assert operator(dag=new_dag(default_args={"retries": 7})).retries == 7
    assert operator(dag=new_dag(default_args={"retries": 7}), retries=1).retries == 1
    assert operator(default_args={"retries": 5}).retries == 5


def test_outputs_and_inputs_are_templates_and_the_dag_is_serialisable() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    dag = new_dag()
    clean = operator("clean", dag)
    operator(
        "report",
        dag,
        inputs={"cleaned": clean.result("out"), "day": "s3://lake/{{ ds }}/"},
        outputs={"report": "s3://lake/report/{{ ds }}/"},
        application_args=[],
        on_altered="recompute",
    )

    document = DagSerialization.to_dict(dag)
    DagSerialization.validate_schema(document)
    read: Any = DagSerialization.from_dict(document)
    assert {"inputs", "outputs", "application_args"} <= set(read.get_task("report").template_fields)
    assert DagSerialization.to_dict(dag) == document
    report: Any = dag.get_task("report").prepare_for_execution()
    report.render_template_fields(task_context())
    assert (report.inputs["day"], report.inputs["cleaned"]) == ("s3://lake/2024-01-02/", clean.result("out"))
    assert report.outputs == {"report": "s3://lake/report/2024-01-02/"}
    assert report.on_altered is OnAltered.RECOMPUTE
    assert cast(Any, dag.get_task("report")).inputs["day"] == "s3://lake/{{ ds }}/"


# --- fingerprint ------------------------------------------------------------------------------------------------------


def fingerprint(changes: dict[str, Any] | None = None, ds: str = "2024-01-02") -> str:
    task = operator(
        **{
            "application_args": ["--day", "{{ ds }}", "--out", "{output:out}"],
            "py_files": "s3://code/lib.zip",
            **(changes or {}),
        }
    ).prepare_for_execution()
    context = task_context()
    task.render_template_fields(context | {"ds": ds})
    return task.fingerprint()


def test_rendered_arguments_belong_to_the_fingerprint_and_placeholders_do_not() -> None:
    assert fingerprint() == fingerprint()
    assert fingerprint() != fingerprint(ds="2024-01-03")
    task = operator(application_args=["{{ ds }}", "{output:out}"]).prepare_for_execution()
    task.render_template_fields(task_context())
    assert task.application_args == ["2024-01-02", "{output:out}"]


@pytest.mark.parametrize(
    "changes",
    [
        {"application": "s3://code/other.py"},
        {"py_files": "s3://code/lib-2.zip"},
        {"jars": "s3://code/a.jar"},
        {"files": "s3://code/rates.csv"},
        {"archives": "s3://code/lookup.zip#lookup"},
        {"packages": "org.example:a:1"},
        {"java_class": "Main"},
        {"application_args": ["--out", "{output:out}"]},
        {"outputs": {"out": "s3://lake/out"}},
        {"inputs": {"i": "s3://lake/in"}},
        {"conf": {"spark.sql.session.timeZone": "UTC"}},
        {"conf": {"spark.mine": "1"}},
    ],
)
def test_what_decides_the_rows_is_in_the_fingerprint(changes: dict[str, Any]) -> None:
    assert fingerprint(changes) != fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"conf": {"spark.executor.memory": "4g"}},
        {"executor_memory": "3g"},
        {"env_vars": {"TOKEN": "x"}},
        {"name": "n"},
        {"verbose": True},
    ],
)
def test_settings_that_do_not_change_rows_and_secrets_are_not_in_the_fingerprint(changes: dict[str, Any]) -> None:
    assert fingerprint(changes) == fingerprint()


def test_files_on_this_machine_count_by_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("print(1)")
    two.write_text("print(1)")
    assert fingerprint({"application": str(one)}) == fingerprint({"application": f"file://{two}"})
    before = fingerprint({"application": str(one)})
    one.write_text("print(2)")
    assert fingerprint({"application": str(one)}) != before
    assert fingerprint({"archives": f"{two}#a"}) != fingerprint({"archives": f"{two}#b"})


# --- what reaches spark-submit ----------------------------------------------------------------------------------------


def test_the_application_gets_its_locations_after_the_claim(recovery: Path, submitted: Path) -> None:
    dag = new_dag()
    clean = operator("clean", dag, application_args=["--out", "{output:out}", "--day", "{{ ds }}"])
    report = operator(
        "report",
        dag,
        inputs={"cleaned": clean.result("out")},
        application_args=["--in", "{input:cleaned}", "--out", "{output:out}"],
    )
    first, second = run_try(clean), run_try(report)

    one, two = submissions(submitted)
    assert one["application"] == WRITER
    assert one["arguments"][2:] == ["--day", "2024-01-02"]
    assert one["arguments"][1].startswith(f"file://{recovery}/results/d/date-2024-01-02T000000Z/")
    assert re.search("/clean/00000001-[0-9a-f]{8}/out$", one["arguments"][1])
    assert two["arguments"][1] == one["arguments"][1] == first["results"]["clean.out"]["location"]
    assert (first["decision"], second["decision"]) == ("ran", "ran")
    assert Path(two["arguments"][3].removeprefix("file://"), "part-0").read_text() == "rows"


def test_a_second_try_of_the_same_task_object_is_kept(recovery: Path, submitted: Path) -> None:
    """The placeholders are filled on Airflow's copy: the fingerprint of the next try is that of the first."""
    task = operator()
    assert run_try(task)["decision"] == "ran"
    again = run_try(task, try_number=2)
    assert (again["decision"], again["attempt"], len(submissions(submitted))) == ("kept", 1, 1)


def test_credentials_reach_the_driver_by_its_environment_alone(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connection = {
        "conn_type": "aws", "login": "AKIA-OURS", "password": "s3cr3t-key",
        "extra": {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:9"},
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__RECOVERY__AWS_CONN_ID", "lake")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "")  # given back after the test
    run_try(operator())

    (told,) = submissions(submitted)
    assert told["env"]["AWS_SECRET_ACCESS_KEY"] == "s3cr3t-key"
    assert "s3cr3t-key" not in json.dumps({**told, "env": {}})
    assert "s3cr3t-key" not in caplog.text
    journal = "".join(path.read_text() for path in (recovery / "journal").rglob("*") if path.is_file())
    assert "s3cr3t-key" not in journal
    assert "AKIA-OURS" not in journal


def test_a_mapped_task_is_refused(recovery: Path, submitted: Path) -> None:
    context = task_context("t")
    context["ti"].map_index = 3
    with fails_with("mapped", by=AirflowFailException, task="t"):
        run_try(operator(), context)
    assert submissions(submitted) == []


def test_a_template_that_renders_to_no_location_is_refused(recovery: Path, submitted: Path) -> None:
    task = operator(outputs={"out": "{{ params.where }}"}, application_args=[])
    with fails_with("location-unfit", by=AirflowFailException, where="t: output 'out'"):
        run_try(task, task_context("t", params={"where": "here"}))
    assert submissions(submitted) == []
