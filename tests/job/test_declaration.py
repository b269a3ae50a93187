from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import BLOCKING, PIPELINED, FilePattern, Job, JobDefinitionError, ResultType, files, job
from airflow_recovery.job import VertexInput, VertexKind
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.planning.graph import JobVertex


def make_flights() -> Job:
    flights = job("flights")

    @flights.source(splits=files("s3://lake/{{ ds }}/*.csv"), spark_conf={"spark.x": 1})
    def raw(spark: Any, splits: Any) -> Any:
        return spark.read.csv(splits.paths)

    @flights.source
    def airports(spark: Any) -> Any:
        return spark.range(1)

    @flights.vertex
    def cleaned(raw: Any) -> Any:
        return raw

    @flights.vertex(result=BLOCKING, params={"day": "{{ ds }}"}, inputs={"left": "cleaned"}, version="2")
    def by_route(left: Any, airports: Any, day: str, context: Any, limit: int = 3) -> Any:
        return left, airports, day, context, limit

    @flights.sink
    def delays(by_route: Any) -> Any:
        return by_route

    return flights


def anything(**_: Any) -> Any:
    return None


def test_a_declared_job_can_be_read() -> None:
    flights = make_flights()
    flights.validate()
    assert list(flights.vertices) == ["raw", "airports", "cleaned", "by_route", "delays"]

    raw = flights.vertices["raw"]
    assert (raw.kind, raw.result, raw.splits) == (VertexKind.SOURCE, PIPELINED, FilePattern("s3://lake/{{ ds }}/*.csv"))
    assert (raw.wants_spark, raw.wants_splits, raw.wants_context) == (True, True, False)
    assert raw.spark_conf == {"spark.x": "1"}

    by_route = flights.vertices["by_route"]
    assert by_route.inputs == (VertexInput("left", "cleaned"), VertexInput("airports", "airports"))
    assert (by_route.params, by_route.version, by_route.wants_context) == ({"day": "{{ ds }}"}, "2", True)
    assert (flights.vertices["delays"].kind, flights.vertices["delays"].result) == (VertexKind.SINK, BLOCKING)


def test_the_graph_and_the_regions_follow_from_it() -> None:
    flights = make_flights()
    assert flights.graph().vertices[3] == JobVertex("by_route", ("cleaned", "airports"), BLOCKING)
    assert flights.graph().vertices[4] == JobVertex("delays", ("by_route",), BLOCKING, is_sink=True)
    assert flights.regions().names == ("by_route", "delays")
    assert flights.regions() is flights.regions()


def test_decorators_return_the_function_itself() -> None:
    flights = job("flights")

    def raw(spark: Any) -> Any:
        return spark

    assert flights.source(raw) is raw
    assert flights.source(name="again")(raw) is raw


def test_a_later_vertex_makes_the_job_new() -> None:
    flights = make_flights()
    before = flights.regions()
    flights.sink(name="days")(lambda cleaned: cleaned)
    assert flights.regions().names != before.names


def test_a_parameter_with_a_default_is_an_input_only_if_there_is_such_a_vertex() -> None:
    flights = job("flights")
    flights.source(name="a")(lambda spark: spark)
    flights.sink(name="c")(lambda a, b=1: (a, b))
    assert flights.vertices["c"].inputs == (VertexInput("a", "a"),)
    flights.source(name="b")(lambda spark: spark)
    assert flights.vertices["c"].inputs == (VertexInput("a", "a"), VertexInput("b", "b"))
    flights.validate()


def test_one_vertex_may_be_read_twice() -> None:
    flights = job("flights")
    flights.source(name="a")(lambda spark: spark)
    flights.sink(name="c", inputs={"left": "a", "right": "a"})(lambda left, right: (left, right))
    assert flights.graph().vertices[1].inputs == ("a",)


def test_a_region_gets_the_spark_settings_of_all_its_vertices() -> None:
    flights = job("flights")
    flights.source(name="a", spark_conf={"spark.a": True, "spark.both": 1})(lambda spark: spark)
    flights.sink(name="b", spark_conf={"spark.b": "x", "spark.both": "1"})(lambda a: a)
    assert flights.region_spark_conf("b") == {"spark.a": "true", "spark.both": "1", "spark.b": "x"}


def refused(declare: Callable[[Job], object], *texts: str) -> None:
    flights = make_flights()
    with pytest.raises(JobDefinitionError) as error:
        declare(flights)
    assert str(error.value).startswith("job 'flights'")
    for text in texts:
        assert text in str(error.value)


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_a_job_has_a_name(name: Any) -> None:
    with fails_with("argument-unfit", argument="name"):
        job(name)


@pytest.mark.parametrize("packages", ["common", ["a.b"], [1]])
def test_packages_are_top_level_packages(packages: Any) -> None:
    with fails_with("packages-unfit"):
        job("flights", packages=packages)


@pytest.mark.parametrize("name", ["spark", "splits", "context", "and-3-more"])
def test_reserved_names(name: str) -> None:
    refused(lambda j: j.source(name=name)(lambda spark: spark), repr(name), "is reserved")


@pytest.mark.parametrize("name", ["a.b", "a b", "1a", "_a", "", "ä", "a/b", "x" * 81, 3])
def test_names_are_task_ids_and_folders(name: Any) -> None:
    refused(lambda j: j.source(name=name)(lambda spark: spark), repr(name), "begins with a letter", "name=")


def test_a_lambda_needs_a_name() -> None:
    refused(lambda j: j.source(lambda spark: spark), "'<lambda>'")


@pytest.mark.parametrize("function", [functools.partial(anything), print, int, "raw"])
def test_a_vertex_is_a_function(function: Any) -> None:
    refused(lambda j: j.source(function), "expected @source above a function")


def test_the_file_pattern_is_no_function_of_the_vertex() -> None:
    refused(lambda j: j.source(files("/x")), "expected @source above a function")  # type: ignore[call-overload]


def positional(a: Any, /) -> Any:
    return a


@pytest.mark.parametrize("function", [lambda *a: a, lambda **a: a, positional])
def test_parameters_have_names(function: Any) -> None:
    refused(lambda j: j.vertex(name="x")(function), "vertex 'x'", "parameters with names of their own")


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, object(), b"x", {"a": [math.nan]}])
def test_fault_79_a_parameter_that_json_cannot_hold_is_refused(value: Any) -> None:
    refused(lambda j: j.vertex(name="x", params={"p": value})(lambda raw, p: raw), "vertex 'x', parameter 'p'", "JSON")


@pytest.mark.parametrize("value", [(1, 2), {1: "a"}, {"a": (1,)}])
def test_a_parameter_that_json_changes_is_refused(value: Any) -> None:
    refused(lambda j: j.vertex(name="x", params={"p": value})(lambda raw, p: raw), "parameter 'p'", "unchanged")


def test_a_parameter_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    refused(lambda j: j.vertex(name="x", params={"p": ring})(lambda raw, p: raw), "parameter 'p'", "JSON")


def test_templates_are_checked_at_the_decorator() -> None:
    refused(
        lambda j: j.vertex(name="x", params={"p": "{{ ti.run_id }}"})(lambda raw, p: raw),
        "vertex 'x', parameter 'p'",
        "'ti'",
        "logical_date",
    )
    refused(
        lambda j: j.source(name="x", splits=files("s3://{{ run_id }}/*"))(lambda splits: splits),
        "vertex 'x', parameter 'splits'",
    )


@pytest.mark.parametrize(("kind", "wrong", "meant"), [("source", "resutl", "result"), ("vertex", "input", "inputs")])
def test_an_option_that_a_decorator_does_not_have_is_refused(kind: str, wrong: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"job 'j': expected options of @{kind} among .* found '{wrong}'.*{meant!r}"):
        getattr(job("j"), kind)(**{wrong: None})


def test_options_that_name_no_parameter_are_refused() -> None:
    refused(
        lambda j: j.vertex(name="x", params={"dya": 1})(lambda raw, day: raw),
        "params= names 'dya'",
        "did you mean 'day'",
    )
    refused(lambda j: j.vertex(name="x", inputs={"left": "raw"})(lambda raw: raw), "inputs= names 'left'")
    refused(lambda j: j.vertex(name="x", params={"spark": 1})(lambda raw, spark: raw), "'spark' in params= is reserved")
    refused(
        lambda j: j.vertex(name="x", params={"a": 1}, inputs={"a": "raw"})(lambda a: a), "in params= and in inputs="
    )


def test_splits_are_for_sources_that_read_them() -> None:
    refused(lambda j: j.source(name="x")(lambda splits: splits), "add splits=files('...')")
    refused(lambda j: j.source(name="x", splits=files("/a"))(lambda spark: spark), "splits.paths")
    refused(lambda j: j.source(lambda splits: splits, name="x", splits="a"), "wrap it in files()")  # type: ignore[call-overload]
    refused(lambda j: j.vertex(name="x")(lambda raw, splits: raw), "only a @source has splits")


def test_a_source_has_no_inputs() -> None:
    refused(lambda j: j.source(name="x")(lambda spark, raw: raw), "a source has no inputs", "'raw'", "@vertex")


def test_a_result_type_is_one_that_something_can_run() -> None:
    refused(lambda j: j.vertex(lambda raw: raw, name="x", result="HYBRID_FULL"), "'HYBRID_FULL'", "PIPELINED, BLOCKING")  # type: ignore[call-overload]
    flights = make_flights()
    flights.vertex(lambda raw: raw, name="x", result="BLOCKING")  # type: ignore[call-overload]
    assert flights.vertices["x"].result is ResultType.BLOCKING


def test_determinism_is_declared_on_a_vertex_and_its_default_on_the_job() -> None:
    flights = job("flights", deterministic="verify")
    flights.source(name="raw", result=BLOCKING)(lambda spark: spark)
    flights.vertex(name="guessed", deterministic="assume")(lambda raw: raw)
    flights.vertex(name="drawn", deterministic=Determinism.ALWAYS)(lambda raw: raw)
    flights.sink(name="told", deterministic="assume")(lambda guessed, drawn: guessed)
    assert {name: each.determinism for name, each in flights.vertices.items()} == {
        "raw": Determinism.VERIFY,
        "guessed": Determinism.ASSUME,
        "drawn": Determinism.ALWAYS,
        "told": Determinism.ASSUME,
    }
    assert job("other").determinism is Determinism.ALWAYS


@pytest.mark.parametrize("given", ["sometimes", True, False, 1])
def test_a_determinism_is_one_of_three(given: Any) -> None:
    refused(
        lambda j: j.vertex(name="x", deterministic=given)(lambda raw: raw),
        "expected deterministic= as 'always', 'verify' or 'assume'",
        repr(given),
    )
    with fails_with("determinism-unfit", where="job 'x'"):
        job("x", deterministic=given)


def test_a_version_is_a_text() -> None:
    refused(lambda j: j.vertex(lambda raw: raw, name="x", version=2), "expected version= as a text", "'2'")  # type: ignore[call-overload]


@pytest.mark.parametrize("conf", [{1: "a"}, {"spark.a": None}, {"spark.a": ["x"]}])
def test_spark_settings_are_texts(conf: Any) -> None:
    refused(lambda j: j.vertex(name="x", spark_conf=conf)(lambda raw: raw), "expected spark_conf= as")


def test_spark_settings_in_conflict_inside_a_region_are_refused() -> None:
    def declare(flights: Job) -> None:
        flights.sink(name="x", spark_conf={"spark.x": 2})(lambda cleaned: cleaned)
        flights.validate()

    refused(declare, "vertex 'x'", "spark.x='2'", "'raw'", "'1'", "result=BLOCKING")


def test_spark_settings_may_differ_between_regions() -> None:
    flights = make_flights()
    flights.sink(name="x", spark_conf={"spark.x": 2})(lambda by_route: by_route)
    flights.validate()


def test_fault_79_duplicate_vertex_is_refused_at_the_decorator() -> None:
    refused(lambda j: j.source(name="raw")(lambda spark: spark), "vertex 'raw'", "a second time", "name=")


def test_fault_79_cycle_is_refused_by_name() -> None:
    def declare(flights: Job) -> None:
        flights.vertex(name="a")(lambda c: c)
        flights.vertex(name="b")(lambda a: a)
        flights.vertex(name="c")(lambda b: b)
        flights.validate()

    refused(declare, "a -> b -> c -> a")


def test_fault_79_an_input_that_nobody_makes_is_refused_with_advice() -> None:
    def declare(flights: Job) -> None:
        flights.sink(name="x")(lambda cleand: cleand)
        flights.validate()

    refused(declare, "vertex 'x'", "'cleand'", "did you mean 'cleaned'", "inputs=", "params=")


def test_fault_79_a_result_that_nobody_reads_is_refused() -> None:
    def declare(flights: Job) -> None:
        flights.vertex(name="x")(lambda raw: raw)
        flights.validate()

    refused(declare, "vertex 'x'", "nobody reads its result", "sink")


def test_fault_79_empty_job_is_refused() -> None:
    with fails_with("job-without-vertex", job="empty"):
        job("empty").validate()


def test_a_vertex_without_inputs_is_told_to_be_a_source() -> None:
    def declare(flights: Job) -> None:
        flights.sink(name="x")(lambda spark: spark)
        flights.validate()

    refused(declare, "vertex 'x'", "at least one input", "@source")


@pytest.mark.slow
def test_fault_79_twenty_thousand_vertices_are_declared_and_cut_fast() -> None:
    wide = job("wide")
    began = time.process_time()
    wide.source(name="v0")(lambda spark: spark)
    for number in range(1, 20_000):
        last = number == 19_999
        options = {"name": f"v{number}", "inputs": {"before": f"v{number - 1}"}}
        if last:
            wide.sink(**options)(lambda before: before)  # type: ignore[call-overload]
        else:
            wide.vertex(**options, result=BLOCKING if number % 5 == 0 else PIPELINED)(lambda before: before)  # type: ignore[call-overload]
    assert len(wide.regions().regions) == 4_000
    assert time.process_time() - began < 20


def test_the_name_job_stays_the_function() -> None:
    import airflow_recovery
    import airflow_recovery.job.local

    assert airflow_recovery.job is job
    assert callable(airflow_recovery.job)
