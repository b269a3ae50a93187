"""What one of a job's decorators is given for a vertex, and the vertex that it declares, or why it can't."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypedDict

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.appends import how_it_appends
from airflow_recovery.job.parallelism import (
    FixedParallelism,
    Parallelism,
    ParallelismLike,
    SameAs,
    checked_parallelism,
)
from airflow_recovery.job.signature import RESERVED, Signature, read_signature
from airflow_recovery.job.sources import EnumeratedBy, SplitSource
from airflow_recovery.job.templates import check_templates, plain_json, uses_subtask
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.model.determinism import Determinism, DeterminismLike
from airflow_recovery.sinks.declaration import CommittingSink, checked_sink
from airflow_recovery.source.coordinator import checked_coordinator
from airflow_recovery.source.matching import Vanished
from airflow_recovery.splits.declaration import (
    DEFAULT_READING,
    SPLIT,
    SplitAssignment,
    SplitReading,
    checked_commit,
    checked_reading,
)
from airflow_recovery.streaming.options import APPROXIMATE, ApproximateResult, Streaming
from airflow_recovery.topology.graph import did_you_mean
from airflow_recovery.topology.result_type import (
    BLOCKING,
    BLOCKING_PERSISTENT,
    CACHED,
    CACHED_MEMORY_ONLY,
    PIPELINED,
    PIPELINED_APPROXIMATE,
    ResultType,
)

RUNNABLE = (PIPELINED, BLOCKING, BLOCKING_PERSISTENT, CACHED, CACHED_MEMORY_ONLY)
"""The result types that a region's application can make and read today."""

MAX_VERTEX_NAME_LENGTH = 80
# ASCII, since names become Airflow task ids. No underscore in front: Spark takes such folders for hidden ones.
_VERTEX_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_VERTEX_NAME_LENGTH - 1}}}")
# A part of the names of regions with many results (`airflow_recovery.topology.regions.region_name`).
_RESERVED_NAME = re.compile(r"and-[0-9]+-more")


class CommonOptions(TypedDict, total=False):
    """What every decorator takes. What each means: `airflow_recovery.job.Job.vertex`."""

    name: str | None
    params: Mapping[str, Any] | None
    spark_conf: Mapping[str, Any] | None
    deterministic: DeterminismLike | None
    version: str | None
    parallelism: ParallelismLike | None
    streaming: Streaming | None


class SourceOptions(CommonOptions, total=False):
    """The options of ``@job.source``."""

    result: ResultType | ApproximateResult
    splits: SplitSource | None
    coordinator: type[Any] | None
    commit: Literal["split"] | None
    batch_bytes: int
    loss_budget: int
    assignment: SplitAssignment | Literal["static", "dynamic"]


class VertexOptions(CommonOptions, total=False):
    """The options of ``@job.vertex``."""

    result: ResultType | ApproximateResult
    inputs: Mapping[str, str] | None
    commit: Literal["split"] | None


class SinkOptions(CommonOptions, total=False):
    """The options of ``@job.sink``."""

    inputs: Mapping[str, str] | None
    idempotent: bool | None
    allow_duplicates: bool
    commit: CommittingSink | None


OPTIONS: Mapping[VertexKind, type] = {
    VertexKind.SOURCE: SourceOptions,
    VertexKind.VERTEX: VertexOptions,
    VertexKind.SINK: SinkOptions,
}


def check_option_names(job: str, kind: VertexKind, options: Mapping[str, object]) -> None:
    """Raise `TypeError`, as Python does for an unknown keyword, where the decorator of ``kind`` has no such option."""
    known = OPTIONS[kind].__annotations__
    for name in options:
        if name not in known:
            raise TypeError(
                f"job {job!r}: expected options of @{kind.value.lower()} among {', '.join(known)}, found "
                f"{name!r}{did_you_mean(name, known)}"
            )


def declared_vertex(
    job: str, function: Callable[..., Any], kind: VertexKind, options: Mapping[str, Any], determinism: Determinism
) -> tuple[Vertex, Signature]:
    """The vertex, and what its function's parameters are.

    ``options`` are as they were given, unchecked but for their names; ``determinism`` is the job's. Raises
    `JobDefinitionError`.
    """
    _check_function(job, function, kind)
    given_name = options.get("name")
    name = function.__name__ if given_name is None else given_name
    where = f"job {job!r}, vertex {name!r}"
    _check_name(name, where)
    typed = ("params", "inputs", "spark_conf", "idempotent", "allow_duplicates")
    check_arguments(OPTIONS[kind], {each: options[each] for each in typed if each in options}, where)
    result = BLOCKING if kind is VertexKind.SINK else _checked_result(options.get("result", PIPELINED), where)
    splits = _checked_splits(options.get("splits"), where)
    subtasks = checked_parallelism(options.get("parallelism"), vertex=name, splits=splits, where=where)
    params = _checked_params(options.get("params") or {}, where, is_parallel=subtasks is not None)
    if splits is not None:
        check_templates(splits.declared, where=where, is_parallel=subtasks is not None)
    allow_duplicates = options.get("allow_duplicates", False)
    if not allow_duplicates:
        _check_idempotent(function, kind, options.get("idempotent"), where)
    signature = read_signature(function, params=params, renamed=options.get("inputs") or {}, where=where)
    _check_splits(signature, kind, splits, where)
    if kind is VertexKind.SOURCE:
        signature = _without_inputs(signature, where)
    is_split_wise, reading = _declared_splits(kind, options, splits, subtasks, where)
    vertex = Vertex(
        job=job,
        name=name,
        function=function,
        kind=kind,
        inputs=signature.inputs,
        params=params,
        spark_conf=_checked_spark_conf(options.get("spark_conf") or {}, where),
        result=result,
        determinism=checked_determinism(options.get("deterministic"), where, determinism),
        version=checked_version(options.get("version"), where),
        splits=splits,
        wants_spark=signature.wants_spark,
        wants_context=signature.wants_context,
        wants_splits=signature.wants_splits,
        parallelism=subtasks,
        allow_duplicates=allow_duplicates,
        coordinator=_checked_coordinator(options.get("coordinator"), result, where),
        sink=checked_sink(options.get("commit"), where, is_parallel=subtasks is not None)
        if kind is VertexKind.SINK
        else None,
        is_split_wise=is_split_wise,
        reading=reading,
        channel=_checked_channel(options.get("result")),
        streaming=_checked_streaming(options.get("streaming"), where),
    )
    return vertex, signature


def _check_function(job: str, function: object, kind: VertexKind) -> None:
    if not inspect.isfunction(function):
        decorator = f"@{kind.value.lower()}"
        raise JobDefinitionError(
            f"job {job!r}: expected {decorator} above a function, found {function!r}: "
            f"write {decorator} or {decorator}(option=...), and a function below"
        )


def _check_name(name: object, where: str) -> None:
    if name in RESERVED or (isinstance(name, str) and _RESERVED_NAME.fullmatch(name)):
        raise JobDefinitionError(f"{where}: the name {name!r} is reserved: choose another, with name= if need be")
    if not isinstance(name, str) or not _VERTEX_NAME.fullmatch(name):
        raise JobDefinitionError(
            f"{where}: expected a name of at most {MAX_VERTEX_NAME_LENGTH} letters (a-z), digits, '_' and '-' that "
            f"begins with a letter, found {name!r}: it becomes a task id and a folder; choose another with name="
        )


def _checked_result(given: object, where: str) -> ResultType:
    if _checked_channel(given) is not None:
        return PIPELINED_APPROXIMATE
    runnable = ", ".join([*(each.value for each in RUNNABLE), "APPROXIMATE"])
    try:
        result = ResultType(given)
    except ValueError:
        raise JobDefinitionError(f"{where}: expected result= as one of {runnable}, found {given!r}") from None
    if result not in RUNNABLE:
        raise JobDefinitionError(
            f"{where}: expected result= as one of {runnable}, found {result.value!r}, which recovery can reason about "
            "but nothing can run yet: declare it with result=BLOCKING"
        )
    return result


def _checked_channel(given: object) -> ApproximateResult | None:
    """What is declared of a channel: `APPROXIMATE`, or Flink's name of it; `None` for another result."""
    if isinstance(given, ApproximateResult):
        return given
    return APPROXIMATE if given == PIPELINED_APPROXIMATE else None


def _checked_streaming(given: object, where: str) -> Streaming | None:
    if given is None or isinstance(given, Streaming):
        return given
    raise JobDefinitionError(f"{where}: expected streaming=Streaming(...), found {given!r}")


def _checked_params(params: Mapping[str, Any], where: str, *, is_parallel: bool) -> dict[str, Any]:
    plain = {name: plain_json(value, where=f"{where}, parameter {name!r} of params=") for name, value in params.items()}
    check_templates(plain, where=where, is_parallel=is_parallel)
    return plain


def _checked_spark_conf(spark_conf: Mapping[str, Any], where: str) -> dict[str, str]:
    checked: dict[str, str] = {}
    for key, value in spark_conf.items():
        if not isinstance(key, str) or not isinstance(value, (str, int, float)):
            raise JobDefinitionError(
                f"{where}: expected spark_conf= as texts such as {{'spark.sql.shuffle.partitions': '8'}}, "
                f"found {key!r}: {value!r}"
            )
        checked[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return checked


def checked_version(version: str | None, where: str) -> str | None:
    """``version`` itself, of a job or a vertex. Raises `JobDefinitionError`."""
    if version is not None and not isinstance(version, str):
        raise JobDefinitionError(f"{where}: expected version= as a text, found {version!r}: write {str(version)!r}")
    return version


def checked_determinism(given: object, where: str, default: Determinism) -> Determinism:
    """``deterministic=`` of a job or a vertex. Raises `JobDefinitionError`."""
    try:
        return default if given is None else Determinism(given)
    except ValueError:
        raise JobDefinitionError(
            f"{where}: expected deterministic= as 'always', 'verify' or 'assume', found {given!r}: 'verify' checks "
            "that the rows are the same, 'assume' takes your word for it"
        ) from None


def _check_idempotent(function: Callable[..., Any], kind: VertexKind, idempotent: bool | None, where: str) -> None:
    """An attempt that has written elsewhere and then dies is run again (fault 80)."""
    code = getattr(inspect.unwrap(function), "__code__", function.__code__)
    seen = how_it_appends(code) if idempotent is None else None
    if idempotent is False or seen is not None:
        advice = (
            "say idempotent=True where a second time changes nothing, or allow_duplicates=True where its readers can "
            "live with both"
            if kind is VertexKind.SINK
            else "declare what writes by itself as a @sink, which can say what a second time does"
        )
        raise JobDefinitionError(
            f"{where}: expected a vertex that can run again, found {seen or 'idempotent=False'}: an attempt that dies "
            "after it has written is run again, and writes once more. Return the DataFrame instead, which recovery "
            f"writes so that one attempt counts; or overwrite a place of the run's own; or {advice}"
        )


def _check_splits(signature: Signature, kind: VertexKind, splits: SplitSource | None, where: str) -> None:
    if signature.wants_splits and splits is None:
        advice = "add splits=files('...')" if kind is VertexKind.SOURCE else "only a @source has splits; rename it"
        raise JobDefinitionError(f"{where}: the function has a parameter 'splits' and no files are declared: {advice}")
    if splits is not None and not signature.wants_splits:
        raise JobDefinitionError(
            f"{where}: splits= is declared and the function has no parameter 'splits': add it and read exactly what "
            "it names (splits.paths of files), else what it reads and what recovery checks would differ"
        )


def _checked_splits(given: object, where: str) -> SplitSource | None:
    if given is None or isinstance(given, SplitSource):
        return given
    raise JobDefinitionError(
        f"{where}: expected splits=files('...'), key_ranges(...), dates(...) or enumerated_by(...), found "
        f"{given!r}: wrap it in files() or another of them"
    )


def _declared_splits(
    kind: VertexKind,
    options: Mapping[str, Any],
    splits: SplitSource | None,
    subtasks: Parallelism | SameAs | None,
    where: str,
) -> tuple[bool, SplitReading]:
    """Whether ``commit="split"`` is declared, and how a source's splits are handed out and committed."""
    commit = options.get("commit")
    if kind is VertexKind.SINK and commit == SPLIT:
        raise JobDefinitionError(
            f"{where}: a sink ends as a whole, found commit='split': declare a vertex with result=BLOCKING and "
            "commit='split' before it"
        )
    is_split_wise = kind is not VertexKind.SINK and checked_commit(commit, where)
    reading = checked_reading(
        assignment=options.get("assignment", DEFAULT_READING.assignment),
        batch_bytes=options.get("batch_bytes", DEFAULT_READING.batch_bytes),
        loss_budget=options.get("loss_budget", DEFAULT_READING.loss_budget),
        is_split_wise=is_split_wise,
        where=where,
    )
    if kind is VertexKind.SOURCE:
        _check_reading(options, splits, subtasks, reading, where, is_split_wise=is_split_wise)
    return is_split_wise, reading


def _check_reading(
    options: Mapping[str, Any],
    splits: SplitSource | None,
    subtasks: Parallelism | SameAs | None,
    reading: SplitReading,
    where: str,
    *,
    is_split_wise: bool,
) -> None:
    if is_split_wise and splits is None:
        raise JobDefinitionError(
            f"{where}: commit='split' is for a source that declares its splits, found none: add splits=files('...'), "
            "or leave commit= out"
        )
    if is_split_wise and options.get("coordinator") is not None:
        raise JobDefinitionError(
            f"{where}: expected either commit='split' or coordinator=, found both: a coordinator is told of an "
            "attempt as a whole, and what is adopted of an earlier one it would not know"
        )
    if splits is None:
        return
    has_own = uses_subtask(splits.declared)
    if reading.assignment is SplitAssignment.DYNAMIC and (has_own or not isinstance(subtasks, FixedParallelism)):
        raise JobDefinitionError(
            f"{where}: expected assignment='dynamic' with a number of subtasks that pull from one listing, found "
            f"parallelism={options.get('parallelism')!r}" + (" and splits of each subtask's own" if has_own else "")
        )
    if splits.vanished is Vanished.KEEP and not is_split_wise:
        raise JobDefinitionError(
            f"{where}: expected vanished='keep' of a source with commit='split', found none: what was read of a split "
            "that is gone is kept in the parts that were committed. Declare commit='split', or vanished='drop'"
        )
    is_shared = not has_own and (subtasks is None or isinstance(subtasks, FixedParallelism))
    if isinstance(splits, EnumeratedBy) and splits.takes_snapshots and not is_shared:
        raise JobDefinitionError(
            f"{where}: expected an enumerator with snapshot_state() and restore() of a source that is not parallel, or "
            "has a number of subtasks and one listing for all of them, found subtasks that each have their own: give "
            "it a function, or a class without the two"
        )
    if splits.vanished is not Vanished.DROP and not is_shared:
        raise JobDefinitionError(
            f"{where}: expected vanished={splits.vanished.value!r} of a source that is not parallel, or has a number "
            "of subtasks and one listing for all of them, found subtasks that each have their own: leave vanished= out"
        )


def _without_inputs(signature: Signature, where: str) -> Signature:
    for each in signature.inputs:
        if each.parameter not in signature.defaulted:
            raise JobDefinitionError(
                f"{where}: a source has no inputs, and its parameter {each.parameter!r} would be one: give it a value "
                f"with params={{{each.parameter!r}: ...}} or a default, or declare the function with @vertex"
            )
    return replace(signature, inputs=(), defaulted=frozenset())


def _checked_coordinator(coordinator: type[Any] | None, result: ResultType, where: str) -> type[Any] | None:
    checked = checked_coordinator(coordinator, where)
    if checked is not None and result is BLOCKING_PERSISTENT:
        raise JobDefinitionError(
            f"{where}: expected a source with coordinator= to keep its result in the run, found BLOCKING_PERSISTENT: "
            "what a coordinator has handed out is known in its own run alone. Declare it with result=BLOCKING"
        )
    return checked
