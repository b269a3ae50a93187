"""What one of a job's decorators is given for a vertex, and the vertex that it declares, or why it can't."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, Literal, TypedDict

from airflow_recovery.checks import check_arguments, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.appends import how_it_appends
from airflow_recovery.job.coordinator import checked_coordinator
from airflow_recovery.job.mode import MODE_OF_RESULT, ModeOption, ModeResult, declared_modes, modes_in
from airflow_recovery.job.parallelism import FixedParallelism, ParallelismLike, checked_parallelism
from airflow_recovery.job.signature import RESERVED, Signature, read_signature
from airflow_recovery.job.sources import EnumeratedBy, SplitSource
from airflow_recovery.job.tables import checked_table
from airflow_recovery.job.templates import check_templates, plain_json, uses_subtask
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.locations import VERSION, is_version
from airflow_recovery.model.determinism import Determinism, DeterminismLike
from airflow_recovery.model.result_type import (
    BLOCKING,
    BLOCKING_PERSISTENT,
    PIPELINED,
    RESULT_TYPES,
    ResultType,
)
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.sinks.declaration import CommittingSink, checked_sink

MAX_VERTEX_NAME_LENGTH = 80
# ASCII, since names become Airflow task ids. No underscore in front: Spark takes such folders for hidden ones.
_VERTEX_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_VERTEX_NAME_LENGTH - 1}}}")
# A part of the names of regions with many results (`airflow_recovery.planning.regions.region_name`).
_RESERVED_NAME = re.compile(r"and-[0-9]+-more")


class CommonOptions(TypedDict, total=False):
    """What every decorator takes. What each means: `airflow_recovery.job.Job.vertex`."""

    name: str | None
    params: Mapping[str, Any] | None
    spark_conf: Mapping[str, Any] | None
    deterministic: DeterminismLike | None
    version: str | None
    ignore_changes_in: Sequence[str]
    parallelism: ParallelismLike | None
    streaming: ModeOption | None
    table: str | None


class SourceOptions(CommonOptions, total=False):
    """The options of ``@job.source`` beside the common ones. What each means: `airflow_recovery.job.Job.source`."""

    result: ResultType | ModeResult
    inputs: Mapping[str, str] | None
    splits: SplitSource | None
    coordinator: type[Any] | None
    commit: Literal["split"] | None
    batch_bytes: int
    loss_budget: int
    assignment: Literal["static", "dynamic"] | ModeOption


class VertexOptions(CommonOptions, total=False):
    """The options of ``@job.vertex`` beside the common ones. What each means: `airflow_recovery.job.Job.vertex`."""

    result: ResultType | ModeResult
    inputs: Mapping[str, str] | None
    commit: Literal["split"] | None


class SinkOptions(CommonOptions, total=False):
    """The options of ``@job.sink`` beside the common ones. What each means: `airflow_recovery.job.Job.sink`."""

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
    _check_returns(function, where)
    typed = ("params", "inputs", "spark_conf", "idempotent", "allow_duplicates")
    check_arguments(OPTIONS[kind], {name: options[name] for name in typed if name in options}, where)
    table = checked_table(options.get("table"), where)
    usual = PIPELINED if table is None else BLOCKING
    result = BLOCKING if kind is VertexKind.SINK else _checked_result(options.get("result", usual), where)
    splits = _checked_splits(options.get("splits"), where)
    subtasks = checked_parallelism(options.get("parallelism"), vertex=name, splits=splits, where=where)
    params = _checked_params(options.get("params") or {}, where, is_parallel=subtasks is not None)
    if splits is not None:
        check_templates(splits.declared, where=where, is_parallel=subtasks is not None)
    allow_duplicates = options.get("allow_duplicates", False)
    if not allow_duplicates:
        _check_idempotent(function, kind, options.get("idempotent"), where)
    renamed = options.get("inputs") or {}
    versions = _checked_versions(kind, renamed, params, where)
    known = {**params, **{name: versions[name] for name in versions if name in inspect.signature(function).parameters}}
    renamed = {name: read for name, read in renamed.items() if name not in versions}
    signature = read_signature(function, params=known, renamed=renamed, where=where)
    _check_splits(signature, kind, splits, where)
    if kind is VertexKind.SOURCE:
        signature = _without_inputs(signature, where)
    commit = options.get("commit") if kind is VertexKind.SINK else None
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
        ignore_changes_in=checked_ignored(options.get("ignore_changes_in", ()), where),
        splits=splits,
        wants_spark=signature.wants_spark,
        wants_context=signature.wants_context,
        wants_splits=signature.wants_splits,
        parallelism=subtasks,
        allow_duplicates=allow_duplicates,
        coordinator=_checked_coordinator(options.get("coordinator"), result, where),
        sink=None if commit == "split" else checked_sink(commit, where, is_parallel=subtasks is not None),
        table=table,
        versions=versions,
    )
    vertex = replace(vertex, modes=declared_modes(vertex, options))
    if splits is not None:
        _check_shared_splits(vertex, splits)
    return vertex, signature


def _check_function(job: str, function: object, kind: VertexKind) -> None:
    if not inspect.isfunction(function):
        decorator = f"@{kind.value.lower()}"
        raise JobDefinitionError(
            f"job {job!r}: expected {decorator} above a function, found {function!r}: "
            f"write {decorator} or {decorator}(option=...), and a function below"
        )


def _check_returns(function: Callable[..., Any], where: str) -> None:
    """A call of such a function runs none of its lines."""
    found = "yield" if inspect.isgeneratorfunction(function) else "async"
    if found == "yield" or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise JobDefinitionError(
            f"{where}: expected a function that returns a DataFrame, found one with {found!r}: nobody would run its "
            "lines. Return the DataFrame itself",
            code="function-not-called",
        )


def _check_name(name: object, where: str) -> None:
    if name in RESERVED or (isinstance(name, str) and _RESERVED_NAME.fullmatch(name)):
        raise JobDefinitionError(f"{where}: the name {name!r} is reserved: choose another, with name= if need be")
    if not isinstance(name, str) or not _VERTEX_NAME.fullmatch(name):
        raise JobDefinitionError(
            f"{where}: expected a name of at most {MAX_VERTEX_NAME_LENGTH} letters (a-z), digits, '_' and '-' that "
            f"begins with a letter, found {name!r}: it becomes a task id and a folder; choose another with name="
        )


def _checked_result(value: object, where: str) -> ResultType:
    if isinstance(value, ModeResult):
        return value.result_type
    runnable = ", ".join([*(name for name, known in RESULT_TYPES.items() if known.is_runnable), "APPROXIMATE"])
    result = value if isinstance(value, ResultType) else RESULT_TYPES.get(value) if isinstance(value, str) else None
    if result is None or RESULT_TYPES.get(result.name) != result:
        raise JobDefinitionError(f"{where}: expected result= as one of {runnable}, found {value!r}")
    if not result.is_runnable and result not in MODE_OF_RESULT:
        raise JobDefinitionError(
            f"{where}: expected result= as one of {runnable}, found {result.name!r}, which recovery can reason about "
            "but nothing can run yet: declare it with result=BLOCKING",
            code="result-type-cannot-run",
            where=where,
        )
    return result


def _checked_params(params: Mapping[str, Any], where: str, *, is_parallel: bool) -> dict[str, Any]:
    plain = {name: plain_json(value, where=f"{where}, parameter {name!r} of params=") for name, value in params.items()}
    check_templates(plain, where=where, is_parallel=is_parallel)
    return plain


def _checked_versions(
    kind: VertexKind, inputs: Mapping[str, str], params: Mapping[str, Any], where: str
) -> dict[str, str]:
    """The templates of the inputs that are known by a text, by name: a source has no others."""
    versions = {name: read.removeprefix(VERSION) for name, read in inputs.items() if is_version(read)}
    is_source = kind is VertexKind.SOURCE
    unfit = next((name for name in inputs if (name in versions) is not is_source), None)
    if unfit is not None:
        expected = "Version(...) in inputs= of a source" if is_source else "the name of a vertex"
        advice = "what a source reads is declared with splits=" if is_source else "only a source reads from outside"
        raise JobDefinitionError(
            f"{where}: expected {expected}, found {unfit!r}: {shown(inputs[unfit])}: {advice}", code="input-unfit"
        )
    for name in versions:
        if not name.isidentifier() or name in (*RESERVED, *params):
            raise JobDefinitionError(
                f"{where}: expected a name in inputs= that is no parameter of params= and none of "
                f"{', '.join(RESERVED)}, found {name!r}: rename it",
                code="input-name-taken",
            )
    return versions


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


def checked_ignored(ignored: object, where: str) -> tuple[str, ...]:
    """``ignore_changes_in=`` of a job or a vertex. Raises `JobDefinitionError`."""
    if not isinstance(ignored, (list, tuple)) or not all(isinstance(each, str) and each.strip() for each in ignored):
        raise JobDefinitionError(
            f"{where}: expected ignore_changes_in= as a list of modules such as 'shop.logs', or of files such as "
            f"'shop/*.md', found {shown(ignored)}: name them so, or leave it out",
            code="ignored-changes-unfit",
        )
    return tuple(ignored)


def checked_determinism(value: object, where: str, default: Determinism) -> Determinism:
    """``deterministic=`` of a job or a vertex. Raises `JobDefinitionError`."""
    try:
        return default if value is None else Determinism(value)
    except ValueError:
        raise JobDefinitionError(
            f"{where}: expected deterministic= as 'always', 'verify' or 'assume', found {value!r}: 'verify' checks "
            "that the rows are the same, 'assume' takes your word for it",
            code="determinism-unfit",
            where=where,
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
            f"writes so that one attempt counts; or overwrite a place of the run's own; or {advice}",
            code="vertex-cannot-run-again",
            where=where,
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


def _checked_splits(value: object, where: str) -> SplitSource | None:
    if value is None or isinstance(value, SplitSource):
        return value
    raise JobDefinitionError(
        f"{where}: expected splits=files('...'), key_ranges(...), dates(...) or enumerated_by(...), found "
        f"{value!r}: wrap it in files() or another of them"
    )


def _check_shared_splits(vertex: Vertex, splits: SplitSource) -> None:
    """What needs one listing for all subtasks, or a mode that keeps what was read."""
    where = vertex.where
    if splits.vanished is Vanished.KEEP and not any(mode.keeps_vanished_splits for mode in modes_in([vertex])):
        raise JobDefinitionError(
            f"{where}: expected vanished='keep' of a source with commit='split', found none: what was read of a split "
            "that is gone is kept in the parts that were committed. Declare commit='split', or vanished='drop'"
        )
    is_shared = not uses_subtask(splits.declared) and isinstance(vertex.parallelism, (FixedParallelism, NoneType))
    if isinstance(splits, EnumeratedBy) and splits.takes_snapshots and not is_shared:
        raise JobDefinitionError(
            f"{where}: expected an enumerator with snapshot_state() and restore() of a source that is not parallel, or "
            "has a number of subtasks and one listing for all of them, found subtasks that each have their own: give "
            "it a function, or a class without the two",
            code="enumerator-for-each-subtask",
            where=where,
        )
    if splits.vanished is not Vanished.DROP and not is_shared:
        raise JobDefinitionError(
            f"{where}: expected vanished={splits.vanished.value!r} of a source that is not parallel, or has a number "
            "of subtasks and one listing for all of them, found subtasks that each have their own: leave vanished= out"
        )


def _without_inputs(signature: Signature, where: str) -> Signature:
    for edge in signature.inputs:
        if edge.parameter not in signature.defaulted:
            raise JobDefinitionError(
                f"{where}: a source has no inputs, and its parameter {edge.parameter!r} would be one: give it a value "
                f"with params={{{edge.parameter!r}: ...}} or a default, or declare the function with @vertex"
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
