"""Inputs whose state no file shows: a version that a template gives, and an asset of Airflow by its events."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.exceptions import AirflowException
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from tries import journal_in, run_try, task_context

from airflow_recovery import BLOCKING, Job, files, load_job
from airflow_recovery.errors import JobDefinitionError, RegionFailed
from airflow_recovery.locations import AssetLocation
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.operators import SparkRegionOperator, Version, recoverable
from airflow_recovery.planning import evaluation
from airflow_recovery.task import asset_input, drop_in
from airflow_recovery.task.references import over_other_runs

Bash = recoverable(BashOperator, paths="plain")
TELL = "mkdir -p '{output:out}' && echo '{input:orders} {version:orders}' > '{output:out}/part-0'"
COUNT = Version("{{ params.count }}")
FEED = Asset("feed", uri="s3://lake/feed")


def reader(declared: Any = COUNT, command: str = TELL, name: str = "orders") -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return Bash(task_id="t", outputs=["out"], inputs={name: declared}, bash_command=command)


def tried(operator: Any, **changes: Any) -> tuple[str, int, str]:
    """How a try ended, at which attempt, and what the job was told."""
    answer = run_try(operator, **changes)
    (result,) = answer["results"].values()
    told = (Path(result["location"].removeprefix("file://")) / "part-0").read_text().strip()
    return answer["decision"], answer["attempt"], told


def counted(count: object) -> tuple[str, int, str]:
    return tried(reader(), params={"count": count})


# --- a version --------------------------------------------------------------------------------------------------------


def test_fault_300_a_task_runs_again_when_the_text_of_its_input_changes(recovery: Path) -> None:
    assert counted(41) == ("ran", 1, "41 41")
    assert counted(41) == ("kept", 1, "41 41")
    assert counted(42) == ("ran", 2, "42 42")
    assert counted(42) == ("kept", 2, "42 42")


def test_fault_300_log_and_decision_name_the_input_and_both_texts(
    recovery: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counted(41)
    with caplog.at_level("INFO"):
        counted(42)
    assert "input orders was '41', is now '42'" in caplog.text


@pytest.mark.control
def test_fault_300_control_without_the_text_in_the_trace_the_old_rows_are_kept(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted(41)
    monkeypatch.setattr(evaluation, "_changed_external", lambda *_: None)
    assert counted(42) == ("kept", 1, "41 41")


@pytest.mark.parametrize("nothing", ["", None, "  ", "x" * 1001, "4\n2"])
def test_fault_300_a_template_that_gives_no_such_text_fails_by_name(recovery: Path, nothing: object) -> None:
    with fails_with("version-text-unfit", by=(JobDefinitionError, AirflowException)):
        counted(nothing)


@pytest.mark.parametrize("unfit", ["", " ", 41, None])
def test_what_is_no_text_is_refused_where_it_is_declared(unfit: Any) -> None:
    with fails_with("argument-unfit", where="Version()", argument="text"):
        Version(unfit)


def test_an_output_is_no_version(recovery: Path) -> None:
    with fails_with("location-unfit"):
        Bash(task_id="t", outputs={"out": COUNT}, bash_command="true")


# --- values over other runs -------------------------------------------------------------------------------------------

OF_OTHER_RUNS = (
    *(f"prev_{what}_success" for what in ("data_interval_start", "data_interval_end", "start_date", "end_date")),
    "triggering_asset_events",
)


@pytest.mark.parametrize("name", OF_OTHER_RUNS)
def test_fault_305_a_value_over_other_runs_is_named_with_its_field_when_it_changes(
    recovery: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    command = f"mkdir -p '{{output:out}}' && echo '{{{{ {name} }}}}' > '{{output:out}}/part-0'"

    def at(value: str) -> tuple[str, int, str]:
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            operator = Bash(task_id="t", outputs=["out"], bash_command=command)
        answer = run_try(operator, {**task_context("t"), name: value})
        (result,) = answer["results"].values()
        told = (Path(result["location"].removeprefix("file://")) / "part-0").read_text().strip()
        return answer["decision"], answer["attempt"], told

    assert at("2024-01-01") == ("ran", 1, "2024-01-01")
    assert at("2024-01-01") == ("kept", 1, "2024-01-01")
    with caplog.at_level("INFO"):
        assert at("2023-12-31") == ("ran", 2, "2023-12-31")
    assert f"t: bash_command is a template over the states of other runs ({name})" in caplog.text
    assert "other now: bash_command" in caplog.text


def test_what_is_of_this_run_alone_is_no_value_over_other_runs() -> None:
    assert (
        over_other_runs(["{{ ds }} {{ prev_ds }}", "prev_start_date_success", {"a": "{{ data_interval_end }}"}]) == []
    )
    assert over_other_runs({"a": ["{{ dag_run.get_previous_dagrun() }}"]}) == ["get_previous_dagrun"]


# --- an asset ---------------------------------------------------------------------------------------------------------


class Airflow:
    """What Airflow knows of the events of `FEED`."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.asked = 0

    def send(self, run: str) -> Any:
        at = datetime(2024, 1, 2, tzinfo=timezone.utc) + timedelta(hours=len(self.events))
        source = {"source_dag_id": "up", "source_run_id": run, "source_task_id": "a", "source_map_index": -1}
        self.events.append(SimpleNamespace(timestamp=at, extra={}, **source))
        return self.events[-1]

    def last(self, name: str | None, uri: str | None) -> Any:
        assert (name, uri) in [("feed", "s3://lake/feed"), ("feed", None), (None, "s3://lake/feed")]
        self.asked += 1
        return self.events[-1] if self.events else None


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    answers = Airflow()
    monkeypatch.setattr("airflow_recovery.airflow_compat.last_asset_event", answers.last)
    return answers


def triggered(*events: Any, asset: Any = FEED, declared: Any = FEED) -> tuple[str, int, str]:
    context = {**task_context("t"), "triggering_asset_events": {asset: list(events)}}
    answer = run_try(reader(declared, name="orders"), context)
    (result,) = answer["results"].values()
    told = (Path(result["location"].removeprefix("file://")) / "part-0").read_text().strip()
    return answer["decision"], answer["attempt"], told


FIRST, SECOND = ("s3://lake/feed event of 2024-01-02T0{}:00:00+00:00 by up/{}/a".format(*of) for of in ("0x", "1y"))


def test_fault_301_the_events_that_triggered_the_run_are_what_was_read(recovery: Path, airflow: Airflow) -> None:
    x, y = airflow.send("x"), airflow.send("y")
    assert triggered(x) == ("ran", 1, FIRST)
    assert triggered(x) == ("kept", 1, FIRST)
    decision, attempt, told = triggered(y, x)
    assert (decision, attempt) == ("ran", 2)
    assert told.startswith(f"{SECOND} and 1 before it (")
    assert triggered(x, y) == ("kept", 2, told)
    assert airflow.asked == 0


def test_fault_301_else_the_last_event_at_the_first_claim_stands_for_the_whole_run(
    recovery: Path, airflow: Airflow
) -> None:
    airflow.send("x")
    assert tried(reader(FEED)) == ("ran", 1, FIRST)
    airflow.send("y")
    assert tried(reader(FEED)) == ("kept", 1, FIRST)
    airflow.events.clear()
    assert tried(reader(FEED)) == ("kept", 1, FIRST)
    assert tried(reader(FEED, f"true && {TELL}")) == ("ran", 2, FIRST)
    assert airflow.asked == 1


def test_fault_301_the_event_of_a_claim_that_never_finished_stands_as_well(recovery: Path, airflow: Airflow) -> None:
    airflow.send("x")
    with pytest.raises((RegionFailed, AirflowException), match="exit code 1"):
        run_try(reader(FEED, f"{TELL} && exit 1"))
    airflow.send("y")
    assert tried(reader(FEED)) == ("ran", 2, FIRST)
    journal = journal_in(recovery, OPERATORS_GROUP)
    assert [journal.read_claim("t", number).assets for number in (1, 2)] == [journal.read_outcome("t", 2).externals] * 2


@pytest.mark.control
def test_fault_301_control_without_the_record_another_event_is_read_in_the_same_run(
    recovery: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "recorded", lambda *_: None)
    airflow.send("x")
    assert tried(reader(FEED)) == ("ran", 1, FIRST)
    airflow.send("y")
    assert tried(reader(FEED)) == ("ran", 2, SECOND)


def test_an_asset_without_events_is_known_by_that(recovery: Path, airflow: Airflow) -> None:
    assert tried(reader(FEED)) == ("ran", 1, f"s3://lake/feed {asset_input.NO_EVENT}")


@pytest.mark.parametrize(
    ("declared", "told"),
    [(Asset.ref(name="feed"), "feed"), (Asset.ref(uri="s3://lake/feed"), "s3://lake/feed"), (FEED, "s3://lake/feed")],
)
def test_an_asset_may_be_named_by_a_reference(recovery: Path, airflow: Airflow, declared: Any, told: str) -> None:
    assert triggered(airflow.send("x"), declared=declared)[2] == FIRST.replace("s3://lake/feed", told)
    assert triggered(airflow.send("y"), asset=Asset("other"), declared=declared)[0] == "kept"


def test_an_asset_is_an_inlet_of_its_task() -> None:
    assert reader(FEED).inlets == [FEED]
    assert reader(COUNT).inlets == []


@pytest.mark.parametrize("unfit", [AssetAlias("feeds"), FEED | Asset("other")])
def test_what_is_not_one_asset_is_refused_by_name(unfit: Any) -> None:
    with fails_with("input-of-several-assets", input="orders"):
        reader(unfit)


@pytest.mark.parametrize("name", ["feed", "a b&c=d~e{{ f }}%", "é"])
def test_the_text_of_an_asset_can_be_read_back(name: str) -> None:
    location = AssetLocation(name, f"s3://lake/{name}")
    assert AssetLocation.parse(location.uri) == location
    assert "{" not in location.uri


def test_airflow_renders_nothing_in_the_text_of_an_asset(recovery: Path, airflow: Airflow) -> None:
    operator = reader(Asset("feed", uri="s3://lake/feed"))
    assert isinstance(operator, Bash)
    before = dict(operator.inputs)
    operator.render_template_fields(task_context("t"))
    assert operator.inputs == before


# --- a source of a declared job ---------------------------------------------------------------------------------------


def source_try(count: str, drivers: Drivers) -> tuple[str, int]:
    dag = job_dag("regionjobs.reads:reads")
    (task,) = (each for each in dag.tasks if isinstance(each, SparkRegionOperator) and each.region == "counted")
    context = task_context("g.counted")
    context["ti"].xcom_pull = {"count": count}.get
    answer = run_try(task, context)
    return answer["decision"], answer["attempt"]


def test_fault_300_a_source_runs_again_when_the_text_of_its_input_changes(recovery: Path, drivers: Drivers) -> None:
    assert source_try("41", drivers) == ("ran", 1)
    assert source_try("41", drivers) == ("kept", 1)
    assert source_try("42", drivers) == ("ran", 2)
    assert [spec.trace.externals for spec in drivers.specs] == [
        (ExternalObject("counted.orders", "version:orders", 0, count),) for count in ("41", "42")
    ]


@pytest.mark.parametrize(
    ("kind", "options", "code"),
    [
        ("source", {"inputs": {"x": "raw"}}, "input-unfit"),
        ("vertex", {"inputs": {"raw": COUNT}}, "input-unfit"),
        ("source", {"inputs": {"spark": COUNT}}, "input-name-taken"),
        ("source", {"inputs": {"n": COUNT}, "params": {"n": 1}}, "input-name-taken"),
    ],
)
def test_what_a_vertex_can_not_be_given_is_refused(kind: str, options: dict[str, Any], code: str) -> None:
    with fails_with(code):
        getattr(Job("j"), kind)(name="v", **options)(lambda raw=None, spark=None, n=None: raw)


def test_a_source_that_is_committed_in_parts_has_no_such_input() -> None:
    made = Job("j")

    @made.source(splits=files("/in/*"), commit="split", inputs={"count": COUNT})
    def raw(spark: Any, splits: Any) -> Any:
        return spark.read.csv(splits.paths)

    @made.vertex(commit="split", result=BLOCKING)
    def kept(raw: Any) -> Any:
        return raw

    @made.sink
    def out(kept: Any) -> Any:
        return kept

    with fails_with("version-not-blocking"):
        made.validate()


def test_a_local_run_is_given_the_text_as_a_parameter() -> None:
    spark = SimpleNamespace(range=lambda number: SimpleNamespace(write=1, schema=1, number=number))
    job = load_job("regionjobs.reads:reads")
    (frame,) = [
        job.vertices["counted"].call(spark=spark, inputs={}, params={"orders": "7"}, splits=None, context=None)  # type: ignore[arg-type]
    ]
    assert frame.number == 7
