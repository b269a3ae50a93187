"""What is mistyped in a DAG file or a job: refused where it is written, as expected, found and what to do next."""

from __future__ import annotations

import importlib
import inspect
import re
import traceback
import typing
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pydantic
import pytest
from airflow.sdk import DAG, BaseOperator, task, task_group
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from tries import run_try

import airflow_recovery
from airflow_recovery import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    Job,
    JobDefinitionError,
    RaiseMemory,
    RecoveryError,
    Retention,
    Split,
    Version,
    dates,
    enumerated_by,
    files,
    job,
    key_ranges,
    load_job,
    published,
    same_as,
)
from airflow_recovery.hooks.recovery_api import RecoveryApiHook
from airflow_recovery.hooks.result import RecoveryResultHook
from airflow_recovery.job.local import run_local
from airflow_recovery.job.vertex_options import SinkOptions, SourceOptions, VertexOptions
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.result_type import Consume, ResultType
from airflow_recovery.model.retention import ReleasePolicy
from airflow_recovery.notifications import RecoveredNotifier
from airflow_recovery.operators import (
    OutputReference,
    RecoverableSparkJDBCOperator,
    RecoverableSparkSubmitOperator,
    RecoveryPublishOperator,
    SparkJobTaskGroup,
    SparkRegionOperator,
    StartSparkOperator,
    StopSparkOperator,
    recoverable,
)
from airflow_recovery.operators.drop_in import DropInOperator
from airflow_recovery.operators.recovering import RecoveringOperator
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.planning.restart_budget import RestartLimits
from airflow_recovery.sensors import RecoveryResultSensor
from airflow_recovery.sinks import DeltaTable, IcebergTable, PostgresTable, ProbedSink
from airflow_recovery.streaming import APPROXIMATE, Streaming
from airflow_recovery.streaming.audit_operator import RecoveryAuditOperator

DIAMOND = "dagjobs.shapes:diamond"


def in_a_dag(make: Callable[..., Any], **usual: Any) -> Callable[..., Any]:
    def made(**given: Any) -> Any:
        with DAG("d", schedule=None):
            return make(**{**usual, **given})

    return made


def declared(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def made(**given: Any) -> Job:
        found = job("j")
        getattr(found, kind)(**given)(function)
        return found

    return made


def drop_in_here(**given: Any) -> RecoverableSparkSubmitOperator:
    usual = {"task_id": "t", "application": "a.py", "outputs": ["o"], "application_args": ["{output:o}"]}
    return RecoverableSparkSubmitOperator(**{**usual, **given})


drop_in = in_a_dag(drop_in_here)
spark_jdbc = in_a_dag(
    RecoverableSparkJDBCOperator, task_id="t", metastore_table="m", jdbc_table="j", save_mode="overwrite"
)
group = in_a_dag(SparkJobTaskGroup, group_id="g", job=DIAMOND)
region = in_a_dag(SparkRegionOperator, task_id="r", job=DIAMOND, region="left", group_id="g")
start_spark = in_a_dag(StartSparkOperator, task_id="start")
stop_spark = in_a_dag(StopSparkOperator, task_id="stop")
publish = in_a_dag(RecoveryPublishOperator, task_id="p", job=DIAMOND, group_id="g")
audit = in_a_dag(RecoveryAuditOperator, task_id="p", job=DIAMOND, group_id="g")
sensor = in_a_dag(RecoveryResultSensor, task_id="s", external_dag_id="d", group_id="g", vertex="v")
source = declared("source", lambda spark: spark)
vertex = declared("vertex", lambda a: a)
sink = declared("sink", lambda a: a)


def a_job(**given: Any) -> Job:
    return job(**{"name": "j", **given})


def table(**given: Any) -> PostgresTable:
    return PostgresTable(**{"conn_id": "w", "table": "t", **given})


def two_in_one(**given: Any) -> Any:
    return a_job().co_locate(*given["vertices"])


def locally(**given: Any) -> Any:
    return load_job(DIAMOND).run_local(None, **given)


def expanded(**given: Any) -> Any:
    with DAG("d", schedule=None):
        partial: Any = RecoverableSparkSubmitOperator.partial(task_id="t", application="a.py", outputs=["o"])
        return partial.expand(application_args=[["{output:o}"]])


def decorated(**given: Any) -> Any:
    return recoverable(task.python)(lambda out: out)


def expanded_function(how: str, **given: Any) -> Any:
    def write(day: str, out: str) -> None: ...

    with DAG("d", schedule=None):
        made = recoverable(task.python)(outputs=["o"])(write).override(task_id="t").partial(out="{output:o}")
        return made.expand(day=["a"]) if how == "expand" else made.expand_kwargs([{"day": "a"}])


def reads_an_operator(**given: Any) -> Any:
    with DAG("d", schedule=None):
        made = recoverable(task.bash)(task_id="made", outputs=["cleaned"])(lambda out: out)(out="{output:cleaned}")
        return drop_in_here(inputs={"i": made if given["what"] == "XCom" else made.operator})


def yields(a: Any) -> Any:
    yield a


async def awaits(a: Any) -> Any:
    return a


def in_a_mapped_group(**given: Any) -> Any:
    @task_group
    def days(day: str) -> None:
        drop_in()

    with DAG("d", schedule=None):
        days.expand(day=["a", "b"])


FAILURES = ("maximum_per_task_failures", "maximum_total_task_failures")
REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    # Once raised from the depth.
    (drop_in, {"outputs": None}, "outputs-unfit"),
    (drop_in, {"outputs": 3}, "outputs-unfit"),
    (drop_in, {"inputs": "s3://x"}, "inputs-unfit"),
    (drop_in, {"inputs": ["s3://x"]}, "inputs-unfit"),
    (drop_in, {"restart_strategy": "fixed"}, "argument-unfit"),
    (group, {"restart_strategy": "fixed"}, "argument-unfit"),
    (group, {"job": None}, "argument-unfit"),
    (group, {"job": 3}, "argument-unfit"),
    (group, {"start_timeout_s": "5"}, "argument-unfit"),
    (vertex, {"name": "x", "params": {3: "x"}}, "argument-unfit"),
    (vertex, {"name": "x", "params": ["x"]}, "argument-unfit"),
    (vertex, {"name": "x", "params": "x"}, "argument-unfit"),
    (vertex, {"name": "x", "spark_conf": "x"}, "argument-unfit"),
    (vertex, {"name": "x", "inputs": "a"}, "argument-unfit"),
    (a_job, {"packages": 3}, "packages-unfit"),
    (two_in_one, {"vertices": (3, [1])}, "co-location-too-few"),
    (locally, {"params": "x"}, "argument-unfit"),
    (locally, {"params": {"cleaned": 3}}, "argument-unfit"),
    (locally, {"splits": 3}, "argument-unfit"),
    (locally, {"results": ["x"]}, "argument-unfit"),
    (locally, {"conf": "x"}, "argument-unfit"),
    (locally, {"only": 3}, "argument-unfit"),
    (locally, {"logical_date": "yesterday"}, "logical-date-unfit"),
    # Once taken for another thing.
    (drop_in, {"idempotent": "no"}, "argument-unfit"),
    (drop_in, {"idempotent": 0}, "argument-unfit"),
    (sink, {"name": "x", "idempotent": "no"}, "argument-unfit"),
    (sink, {"name": "x", "idempotent": 0}, "argument-unfit"),
    (drop_in, {"allow_duplicates": "no"}, "argument-unfit"),
    (sink, {"name": "x", "allow_duplicates": "no"}, "argument-unfit"),
    (group, {"retention": "as_consumed"}, "retention-unfit"),
    (a_job, {"retention": "7days"}, "retention-unfit"),
    (a_job, {"retention": 7}, "retention-unfit"),
    (drop_in, {"maximum_per_task_failures": 0}, "limit-unfit"),
    (drop_in, {"maximum_total_task_failures": 0}, "limit-unfit"),
    (group, {"group_id": None}, "argument-unfit"),
    (group, {"group_id": ""}, "argument-unfit"),
    (region, {"group_id": None}, "argument-unfit"),
    (publish, {"group_id": None}, "job-without-group"),
    (drop_in, {"outputs": {"o": "/"}}, "location-names-unfit"),
    (drop_in, {"outputs": {"o": "file:///"}}, "location-names-unfit"),
    (DeltaTable, {"uri": "lake/x"}, "location-unfit"),
    (drop_in, {"application_args": "--out {output:o}"}, "argument-unfit"),
    # Once accepted, to fail in a task.
    (drop_in, {"application": None}, "argument-unfit"),
    (drop_in, {"application": " "}, "argument-unfit"),
    (drop_in, {"memory_policy": "2g"}, "argument-unfit"),
    (group, {"memory_policy": "2g"}, "argument-unfit"),
    (drop_in, {"conf": "x"}, "argument-unfit"),
    (expanded, {}, "expanded"),
    *[
        (expanded_function, {"how": how}, "expanded")
        for how in ("expand", "expand_kwargs")
    ],
    (decorated, {}, "recoverable-no-options"),
    (drop_in, {"application_args": ["{{output:o}}"]}, "placeholder-doubled"),
    (drop_in, {"application_args": ["a {{ input:o }}"]}, "placeholder-doubled"),
    *[
        (reads_an_operator, {"what": what}, "input-names-no-output")
        for what in ("operator", "XCom")
    ],
    *[
        (declared("vertex", function), {"name": "x"}, "function-not-called")
        for function, word in ((yields, "yield"), (awaits, "async"))
    ],
    (in_a_mapped_group, {}, "in-mapped-group"),
    *[
        (make, {"outputs": {"o": uri}} if make is drop_in else {"uri": uri}, "location-names-unfit")
        for make in (drop_in, DeltaTable)
        for uri in ("s3://", "s3:///x", "s3://b/../x", "s3://b//x", "s3a://b/./x")
    ],
    *[
        (drop_in, {"inputs": {"i": uri}}, "location-names-unfit")
        for uri in ("s3://", "s3:///x", "s3://b/../x")
    ],
    (drop_in, {"inputs": {"i": 3}}, "location-unfit"),
    (drop_in, {"outputs": {"o": "hdfs://b/{{ ds }}"}}, "location-unfit"),
    (files, {"pattern": "relative/*"}, "location-unfit"),
    (files, {"pattern": "relative/{{ ds }}/*"}, "location-unfit"),
    (files, {"pattern": "s3:///x"}, "location-names-unfit"),
    (files, {"pattern": ""}, "argument-unfit"),
    (DeltaTable, {"uri": "hdfs://"}, "location-unfit"),
    (DeltaTable, {"uri": "s3://lake/{{ ds }}"}, "location-is-template"),
    *[
        (table, {"table": name}, "table-name-unfit")
        for name in (".t", "t.", ".", "a.b.c")
    ],
    (table, {"table": "a\0b"}, "name-has-control-characters"),
    (table, {"table": ""}, "argument-unfit"),
    (table, {"conn_id": None}, "argument-unfit"),
    (sensor, {"logical_date": "yesterday"}, "logical-date-unfit"),
    (sensor, {"logical_date": "now"}, "logical-date-unfit"),
    (sensor, {"logical_date": datetime(2026, 1, 1)}, "argument-unfit"),
    (sensor, {"execution_delta": 3600}, "argument-unfit"),
    (sensor, {"vertex": ""}, "argument-unfit"),
    (sensor, {"group_id": OPERATORS_GROUP}, "sensor-without-group"),
    (sensor, {"external_dag_id": None}, "argument-unfit"),
    (sensor, {"execution_delta": timedelta(1), "partition_key": "x"}, "sensor-ways-exclude"),
    (a_job, {"name": None}, "argument-unfit"),
    (load_job, {"reference": None}, "job-reference-unfit"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "given", "code"), REFUSED, ids=[f"{make.__name__} {given}" for make, given, _ in REFUSED]
)
def test_what_is_mistyped_is_refused_where_it_is_written(make: Any, given: dict[str, Any], code: str) -> None:
    with fails_with(code) as refused:
        make(**given)
    assert code != "argument-unfit" or refused.value.argument in given
    expected, found, next_step = re.search(r"(?is)expected (.+)found (.+)[:.] (.+)", str(refused.value)).groups()
    assert all((expected, found, next_step))


def test_control_a_constructor_without_checks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the table's rows, those that only the one place refuses: each is accepted, or raises from the depth, then."""
    modules = ("recovering", "submitting", "drop_in", "spark_submit")
    for module in (*(f"operators.{name}" for name in modules), "sensors.result", "job.vertex_options"):
        found = importlib.import_module(f"airflow_recovery.{module}")
        monkeypatch.setattr(found, "check_arguments", lambda *_, **__: None)
    noticed = set()
    for make, given, code in REFUSED:
        try:
            with fails_with(code) as refused:
                make(**given)
            assert code != "argument-unfit" or refused.value.argument in given
        except (Exception, pytest.fail.Exception):  # noqa: PERF203
            noticed |= set(given)
    assert noticed >= {"restart_strategy", "memory_policy", "idempotent", "allow_duplicates", "params", "vertex"}
    assert drop_in(idempotent="no", allow_duplicates="no").outputs == {"o": None}


MEANT_OTHERWISE: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    *[(make, {name: 0}) for make in (drop_in, group) for name in FAILURES],
    *[(drop_in, {"idempotent": each}) for each in ("no", 0)],
    (drop_in, {"allow_duplicates": "no"}),
    *[(make, {"group_id": None}) for make in (group, region, publish)],
]


@pytest.mark.parametrize(("make", "given"), MEANT_OTHERWISE)
def test_what_would_mean_another_thing_is_refused(make: Callable[..., Any], given: dict[str, Any]) -> None:
    (name,) = given
    with fails_with("argument-unfit", "limit-unfit", "job-without-group") as refused:
        make(**given)
    assert name in (refused.value.fields.get("argument"), refused.value.fields.get("name"), "group_id")


def test_control_taken_for_another_thing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then an application is not looked at, no clear finds the group's keys, and fewer than no restarts are allowed."""
    for module in ("drop_in", "spark_submit", "region", "task_group"):
        monkeypatch.setattr(f"airflow_recovery.operators.{module}.check_arguments", lambda *_, **__: None)
    monkeypatch.setattr(RestartLimits, "__post_init__", lambda self: None)
    appending = drop_in(idempotent="no", outputs={"o": "s3://lake/o"}, application_args=[])
    assert appending.outputs == {"o": "s3://lake/o"}, "neither refused as False nor looked at"
    assert region(group_id=None).group_id is None
    assert drop_in(maximum_per_task_failures=0).restart_options.limits.max_restarts == -1


# --- what is known only when the task runs ------------------------------------------------------------------------


def test_what_airflow_puts_in_later_passes_and_makes_the_task_wait_for_it() -> None:
    with DAG("d", schedule=None):

        @task
        def place() -> str:
            return "s3://lake/x"

        found: Any = place()
        drop = RecoverableSparkSubmitOperator(
            task_id="t",
            application=found,
            application_args=found,
            conf=found,
            inputs={"i": found, "j": "{{ params.where }}", "k": "s3://lake/{{ ds }}"},
            outputs={"o": found},
        )
        wait = RecoveryResultSensor(
            task_id="s", external_dag_id=found, group_id="g", vertex="{{ params.v }}", logical_date="{{ ts }}"
        )
    assert drop.upstream_task_ids == wait.upstream_task_ids == {"place"}


@pytest.mark.parametrize(
    ("given", "params", "code"),
    [
        ({"outputs": {"o": "{{ params.x }}"}}, {"x": "lake/x"}, "location-unfit"),
        ({"inputs": {"i": "{{ params.x }}"}}, {"x": "s3://"}, "location-names-unfit"),
        (
            {"application": "{{ params.x }}"},
            {"x": ""},
            "argument-unfit",
        ),
    ],
)
@pytest.mark.parametrize("recovers", [True, False])
def test_what_a_template_comes_to_is_checked_before_the_claim(
    recovery: Path, given: dict[str, Any], params: dict[str, str], code: str, recovers: bool
) -> None:
    options = {"job_recovery": {"execution.batch.job-recovery.enabled": recovers}}
    with fails_with(code, by=(AirflowFailException, JobDefinitionError)):
        run_try(drop_in(**given, **options), params=params)
    assert [path for path in recovery.rglob("*") if path.is_file() and "journal" in str(path)] == []


def test_a_publish_in_a_dag_without_operators_is_refused(recovery: Path) -> None:
    with DAG("d", schedule=None):
        alone = RecoveryPublishOperator(task_id="p")
    with fails_with("nothing-to-publish", by=AirflowFailException, task="p"):
        run_try(alone)


def test_what_a_sensors_template_comes_to_is_checked_before_it_waits(recovery: Path) -> None:
    wait = sensor(logical_date="{{ params.day }}", vertex="{{ params.vertex }}")
    with fails_with("logical-date-unfit", found="'yesterday'"):
        run_try(wait, params={"day": "yesterday", "vertex": "v"})
    with fails_with("argument-unfit", where="s", argument="vertex", found="''"):
        run_try(wait, params={"day": "2026-01-01", "vertex": ""})


# --- the Job itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [group, region, publish])
def test_the_job_itself_is_as_good_as_its_name(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    diamond = load_job(DIAMOND)
    monkeypatch.setattr(diamond, "module_ref", None)
    made = make(job=diamond)
    tasks: Any = made.children.values() if isinstance(made, SparkJobTaskGroup) else [made]
    assert {candidate.job for candidate in tasks} == {DIAMOND}


def test_a_job_that_no_driver_can_import_says_where_to_put_it() -> None:
    here = job("here")
    here.source(name="a")(lambda spark: spark)
    here.sink(name="b")(lambda a: a)
    with fails_with("job-not-importable"):
        group(job=here)


@pytest.mark.parametrize("module", ["__main__", "unusual_prefix_0123_my_dag"])
def test_a_job_of_a_dag_file_or_a_script_is_not_importable(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    written = types.ModuleType(module)
    exec(
        "from airflow_recovery import job\nflights = job('flights')\n@flights.source\ndef a(spark): ...", vars(written)
    )
    monkeypatch.setitem(sys.modules, module, written)
    with fails_with("job-not-importable"):
        group(job=written.flights)


def test_a_job_whose_vertices_are_in_several_modules_names_one_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of them alone would be a part of the job: only a person knows which one imports the rest."""
    import sys
    import types

    whole = job("whole")
    for name in ("one", "two"):
        part = types.ModuleType(f"dagjobs.{name}")
        exec(
            f"@whole.source\ndef {name}(spark): ...",
            vars(part) | {"whole": whole, "__name__": part.__name__},
            vars(part),
        )
        vars(part)["whole"] = whole
        monkeypatch.setitem(sys.modules, part.__name__, part)
    with fails_with("job-in-several-modules", found=["dagjobs.one", "dagjobs.two"]):
        group(job=whole)


# --- every parameter of every public constructor ----------------------------------------------------------------------

NUMBERS = {"lower": 0, "upper": 9, "width": 1}
PUBLIC: dict[Callable[..., Any], Callable[..., Any]] = {
    SparkJobTaskGroup.__init__: group,
    SparkRegionOperator.__init__: region,
    RecoverableSparkSubmitOperator.__init__: drop_in,
    **{inspect.unwrap(base.__init__): drop_in for base in (RecoveringOperator, SubmittingOperator, DropInOperator)},
    recoverable: lambda **given: recoverable(**{"operator": BaseOperator, **given}),
    RecoverableSparkJDBCOperator.__init__: spark_jdbc,
    RecoveryPublishOperator.__init__: publish,
    StartSparkOperator.__init__: start_spark,
    StopSparkOperator.__init__: stop_spark,
    RecoveryResultSensor.__init__: sensor,
    OutputReference.__init__: lambda **given: OutputReference(**{"task_id": "t", "name": "o", **given}),
    RecoveryResultHook.get_result: lambda **given: RecoveryResultHook().get_result(
        **{"dag_id": "d", "vertex": "v", "group_id": "g", "run_id": "r", **given}
    ),
    RecoveryApiHook.__init__: RecoveryApiHook,
    RecoveredNotifier.__init__: lambda **given: RecoveredNotifier(**{"notifier": print, **given}),
    Job.__init__: a_job,
    SourceOptions: lambda **given: source(**{"name": "a", **given}),
    VertexOptions: lambda **given: vertex(**{"name": "b", **given}),
    SinkOptions: lambda **given: sink(**{"name": "b", **given}),
    run_local: locally,
    Streaming.__init__: Streaming,
    type(APPROXIMATE).__init__: type(APPROXIMATE),
    files: lambda **given: files(**{"pattern": "s3://lake/*", **given}),
    key_ranges: lambda **given: key_ranges(**{"table": "t", "column": "c", **NUMBERS, **given}),
    dates: dates,
    Version: lambda **given: Version(**{"text": "{{ ds }}", **given}),
    published: lambda **given: published(**{"dag_id": "d", "result": "t.o", **given}),
    enumerated_by: lambda **given: enumerated_by(**{"enumerator": a_job, **given}),
    same_as: same_as,
    load_job: load_job,
    Split.of: lambda **given: Split.of(**{"name": "s", **given}),
    Retention.__init__: lambda **given: Retention(**{"policy": ReleasePolicy.KEEP, "grace_s": 1, **given}),
    Retention.keep: Retention.keep,
    ResultType.__init__: lambda **given: ResultType(**{"name": "TOY", "consume": Consume.AFTER_FINISH, **given}),
    Retention.as_consumed: Retention.as_consumed,
    Retention.on_run_success: Retention.on_run_success,
    Retention.parse: Retention.parse,
    RaiseMemory.__init__: lambda **given: RaiseMemory(**{"max_driver_memory": "4g", **given}),
    FixedDelay.__init__: FixedDelay,
    FailureRate.__init__: FailureRate,
    ExponentialDelay.__init__: ExponentialDelay,
    PostgresTable.__init__: table,
    DeltaTable.__init__: lambda **given: DeltaTable(**{"uri": "s3://lake/x", **given}),
    IcebergTable.__init__: lambda **given: IcebergTable(**{"uri": "iceberg://lake/db.t", **given}),
    ProbedSink.__init__: lambda **given: ProbedSink(**{"apply": a_job, "is_applied": a_job, **given}),
}
OF_A_DAG_FILE = [f"airflow_recovery.{room}" for room in ("operators", "sensors", "sinks", "notifications", "streaming")]
NOT_MADE_BY_USERS = (
    *(
        "ChecksRows",
        "CommitSpec",
        "CommitToken",
        "Committable",
        "Committer",
        "DatabaseAddress",
        "FoundRows",
        "SinkResources",
        "sink_of",
        "spec_of",
    ),
    *("FileSplit", "FileSplits", "ForgetsAttempts", "Held", "RegionContext", "RemembersAttempts", "Subtask"),
    *("CommittingSink", "FilePattern", "NoRestart", "Split"),  # by a subclass, files(), nothing to give, Split.of()
)
WRONG = (None, 3, -1, 2.5, True, "x", "", b"x", object(), ["x"], [3], {"x": 3}, {3: "x"}, ("x",), int)
TAKES_ANYTHING = {"self", "function", "return", "kwargs", "operator_args", "subtask", "payload", "job", "spark"}


def annotated(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters with their types; what is imported for type checkers alone is any type."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            hints = typing.get_type_hints(function, localns=unknown)
        except NameError as error:  # noqa: PERF203
            unknown[str(error.name)] = Any
        else:
            return {name: hint for name, hint in hints.items() if name not in TAKES_ANYTHING}


def is_of_type(value: object, hint: Any) -> bool:
    """Pydantic's opinion, so that the checks are not measured by themselves."""
    config = pydantic.ConfigDict(strict=True, arbitrary_types_allowed=True)
    try:
        pydantic.TypeAdapter(hint, config=config).validate_python(value)
    except pydantic.ValidationError:
        return False
    return True


def walked(function: Callable[..., Any], make: Callable[..., Any]) -> list[str]:
    """What is wrong: a value that was taken and is of another type, and an error that is neither ours nor Airflow's."""
    found = []
    for name, hint in annotated(function).items():
        for value in WRONG:
            try:
                make(**{name: value})
            except RecoveryError:  # noqa: PERF203
                continue
            except Exception as error:
                *_, (frame, _) = traceback.walk_tb(error.__traceback__)
                if not frame.f_globals["__name__"].startswith("airflow."):
                    found.append(f"{name}={value!r}: {error!r} in {frame.f_globals['__name__']}")
            else:
                if not is_of_type(value, hint):
                    found.append(f"{name}={value!r}: taken for {hint}")
    return found


@pytest.mark.parametrize("function", PUBLIC, ids=lambda each: each.__qualname__)
def test_no_parameter_takes_another_type_or_fails_in_the_depth(function: Callable[..., Any]) -> None:
    assert walked(function, PUBLIC[function]) == []


def test_control_a_parameter_that_nobody_checks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for base in (SubmittingOperator, RecoveringOperator):
        monkeypatch.setattr(f"{base.__module__}.check_arguments", lambda *_, **__: None)
    found = [
        each
        for base in (SubmittingOperator, RecoveringOperator)
        for each in walked(inspect.unwrap(base.__init__), drop_in)
    ]
    assert any(each.startswith("memory_policy='x': taken for") for each in found)
    assert any(each.startswith("restart_strategy='x': AttributeError") for each in found), "raised from the depth"


def test_every_public_constructor_is_walked() -> None:
    """What a job's module or a DAG file can call of ours, but for what is handed in or raised."""
    rooms = [airflow_recovery, *map(importlib.import_module, OF_A_DAG_FILE)]
    public = {getattr(room, name) for room in rooms for name in room.__all__}
    walked_there = {inspect.unwrap(each) for each in PUBLIC} | {Job, job}
    missing = {
        each.__name__
        for each in public
        if inspect.isfunction(each) or (inspect.isclass(each) and not issubclass(each, (Exception, Enum)))
        if not {each, each.__init__, inspect.unwrap(each.__init__)} & walked_there
    }
    assert missing == set(NOT_MADE_BY_USERS)
