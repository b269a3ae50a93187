"""What one of a job's decorators is given for a vertex, and the vertex that it declares, or why it can't."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.appends import how_it_appends
from airflow_recovery.job.json_values import plain_json
from airflow_recovery.job.parallelism import ParallelismLike, checked_parallelism
from airflow_recovery.job.signature import RESERVED, Signature, read_signature
from airflow_recovery.job.sources import FilePattern
from airflow_recovery.job.templates import check_templates
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.sinks.declaration import CommittingSink, checked_sink
from airflow_recovery.source.coordinator import OperatorCoordinator, checked_coordinator
from airflow_recovery.topology.determinism import Determinism, DeterminismLike
from airflow_recovery.topology.result_type import (
    BLOCKING,
    BLOCKING_PERSISTENT,
    CACHED,
    CACHED_MEMORY_ONLY,
    PIPELINED,
    ResultType,
)

RUNNABLE = (PIPELINED, BLOCKING, BLOCKING_PERSISTENT, CACHED, CACHED_MEMORY_ONLY)
"""The result types that a region's application can make and read today."""

MAX_VERTEX_NAME_LENGTH = 80
# ASCII, since names become Airflow task ids. No underscore in front: Spark takes such folders for hidden ones.
_VERTEX_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{MAX_VERTEX_NAME_LENGTH - 1}}}")
# A part of the names of regions with many results (`airflow_recovery.topology.regions.region_name`).
_RESERVED_NAME = re.compile(r"and-[0-9]+-more")


@dataclass(frozen=True, kw_only=True)
class VertexOptions:
    """As they were given, unchecked: what they mean is said where they are given (`airflow_recovery.job.Job`)."""

    name: str | None
    params: Mapping[str, Any] | None
    inputs: Mapping[str, str] | None = None
    spark_conf: Mapping[str, Any] | None
    result: ResultType
    deterministic: DeterminismLike | None
    version: str | None
    splits: FilePattern | None = None
    parallelism: ParallelismLike | None
    idempotent: bool | None = None
    allow_duplicates: bool = False
    coordinator: type[OperatorCoordinator] | None = None
    commit: CommittingSink | None = None


def declared_vertex(
    job: str, function: Callable[..., Any], kind: VertexKind, options: VertexOptions, determinism: Determinism
) -> tuple[Vertex, Signature]:
    """The vertex, and what its function's parameters are. ``determinism`` is the job's. Raises `JobDefinitionError`."""
    _check_function(job, function, kind)
    name = function.__name__ if options.name is None else options.name
    where = f"job {job!r}, vertex {name!r}"
    _check_name(name, where)
    result = _checked_result(options.result, where)
    splits = options.splits
    if splits is not None and not isinstance(splits, FilePattern):
        raise JobDefinitionError(f"{where}: expected splits=files('...'), found {splits!r}: wrap it in files()")
    subtasks = checked_parallelism(options.parallelism, vertex=name, splits=splits, where=where)
    params = _checked_params(options.params or {}, where, is_parallel=subtasks is not None)
    if splits is not None:
        check_templates({"splits": splits.pattern}, where=where, is_parallel=subtasks is not None)
    if not options.allow_duplicates:
        _check_idempotent(function, kind, options.idempotent, where)
    signature = read_signature(function, params=params, renamed=options.inputs or {}, where=where)
    _check_splits(signature, kind, splits, where)
    if kind is VertexKind.SOURCE:
        signature = _without_inputs(signature, where)
    vertex = Vertex(
        job=job,
        name=name,
        function=function,
        kind=kind,
        inputs=signature.inputs,
        params=params,
        spark_conf=_checked_spark_conf(options.spark_conf or {}, where),
        result=result,
        determinism=checked_determinism(options.deterministic, where, determinism),
        version=checked_version(options.version, where),
        splits=splits,
        wants_spark=signature.wants_spark,
        wants_context=signature.wants_context,
        wants_splits=signature.wants_splits,
        parallelism=subtasks,
        allow_duplicates=options.allow_duplicates,
        coordinator=_checked_coordinator(options.coordinator, result, where),
        sink=checked_sink(options.commit, where, is_parallel=subtasks is not None),
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
    runnable = ", ".join(each.value for each in RUNNABLE)
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
    """An attempt that has written elsewhere and then dies is run again (PROMISES, fault 80)."""
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


def _check_splits(signature: Signature, kind: VertexKind, splits: FilePattern | None, where: str) -> None:
    if signature.wants_splits and splits is None:
        advice = "add splits=files('...')" if kind is VertexKind.SOURCE else "only a @source has splits; rename it"
        raise JobDefinitionError(f"{where}: the function has a parameter 'splits' and no files are declared: {advice}")
    if splits is not None and not signature.wants_splits:
        raise JobDefinitionError(
            f"{where}: splits= is declared and the function has no parameter 'splits': add it and read exactly "
            "splits.paths, else what it reads and what recovery checks would differ"
        )


def _without_inputs(signature: Signature, where: str) -> Signature:
    for each in signature.inputs:
        if each.parameter not in signature.defaulted:
            raise JobDefinitionError(
                f"{where}: a source has no inputs, and its parameter {each.parameter!r} would be one: give it a value "
                f"with params={{{each.parameter!r}: ...}} or a default, or declare the function with @vertex"
            )
    return replace(signature, inputs=(), defaulted=frozenset())


def _checked_coordinator(
    coordinator: type[OperatorCoordinator] | None, result: ResultType, where: str
) -> type[OperatorCoordinator] | None:
    checked = checked_coordinator(coordinator, where)
    if checked is not None and result is BLOCKING_PERSISTENT:
        raise JobDefinitionError(
            f"{where}: expected a source with coordinator= to keep its result in the run, found BLOCKING_PERSISTENT: "
            "what a coordinator has handed out is known in its own run alone. Declare it with result=BLOCKING"
        )
    return checked
