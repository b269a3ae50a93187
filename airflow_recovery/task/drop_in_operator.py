"""A drop-in's job by any operator: what its placeholders stand in, what it is told of a place, and its fingerprint."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.checks import check_no_address
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.job.fingerprint import class_code, function_code, value_digest
from airflow_recovery.job.row_settings import defaults_of, settings_of
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.code_places import Place, places_of_operator, places_of_settings, places_of_shell
from airflow_recovery.task.drop_in import DropInApplication, code_document, drop_in_document
from airflow_recovery.task.operator_components import arguments_that_count, context_document, fields_that_count
from airflow_recovery.task.operator_submission import OperatorSubmission
from airflow_recovery.task.references import filled

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_recovery.attempt.application import ClaimedAttempt
    from airflow_recovery.task.open_run import OpenRun
    from airflow_recovery.task.references import DropIn, PathStyle

_MOST_PATH_CHARS = 1024


class DropInOperatorJob(DropInApplication, OperatorSubmission):
    """A drop-in whose job is ``operator`` without its recovery, an ``operator_class``.

    ``fields``: the attributes whose placeholders are filled. ``paths``: how a place is written there.
    """

    def __init__(
        self,
        drop_in: DropIn,
        opened: OpenRun,
        operator: BaseOperator,
        operator_class: type[BaseOperator],
        *,
        fields: Sequence[str],
        paths: PathStyle,
        context: Context,
        is_killed: Callable[[], bool],
    ) -> None:
        DropInApplication.__init__(self, drop_in, opened, context)
        OperatorSubmission.__init__(self, operator, operator_class, context, is_killed=is_killed)
        self._fields = fields
        self._paths = paths

    def new_job(self, attempt: ClaimedAttempt) -> Any:
        """As `OperatorSubmission.copy_for`."""
        return self.copy_for(attempt.claim.tag)

    def fill(self, job: Any, locations: Mapping[tuple[str, str], str]) -> None:
        """Replace the placeholders in its fields."""
        for field in self._fields:
            setattr(job, field, filled(getattr(job, field), locations))

    def submit(self, job: Any, name: str) -> Any:
        """As `OperatorSubmission.submit`."""
        return OperatorSubmission.submit(self, job, name)

    def _submit_remembered(self, job: Any, name: str, context: Context) -> Any:
        """As `OperatorSubmission._submit_remembered`; and look whether the code was replaced before."""
        external_id = super()._submit_remembered(job, name, context)
        self.look_at_code(has_loaded=False)
        return external_id

    def end_previous(self, name: str) -> Any:
        """As `OperatorSubmission.end_previous`."""
        return OperatorSubmission.end_previous(self, name)

    def path_of(self, uri: str) -> str:
        """``spark``: as Hadoop's file systems name it; ``plain``: ``s3://``, and a folder by its path."""
        return spark_path(uri) if self._paths == "spark" else uri.removeprefix("file://")


def operator_document(
    operator: BaseOperator,
    operator_class: type[BaseOperator],
    fields: Sequence[str],
    drop_in: DropIn,
    code: ApplicationCode | None = None,
) -> dict[str, Any]:
    """What the operator's job computes, as far as it can be told: its class, ``fields`` as rendered, its function.

    The code of a class that is not Airflow's counts, and so do arguments that Airflow does not render
    (`airflow_recovery.task.operator_components.arguments_that_count`).
    A text that is the absolute path of a file on this machine stands for that file's content. ``code``: what
    `places_of_operator` names, wherever it lies (`code_document`). A ``python_callable``
    stands for its code, and for what that uses in its own package.
    """
    function = getattr(operator, "python_callable", None)
    code = code or ApplicationCode(operator)
    places = places_of_operator(operator, operator_class, fields)
    places += [*_places_of_shell(operator, places), *places_of_settings(defaults_of(operator))]
    declared = {field: getattr(operator, field) for field in fields}
    for field, value in declared.items():
        check_no_address(value, f"{operator.task_id}, {field}")
    counting = fields_that_count(operator_class, declared)
    settings = settings_of(operator)
    of_class = class_code(operator_class)
    arguments = arguments_that_count(operator, operator_class, declared)
    document = {
        "operator": f"{operator_class.__module__}.{operator_class.__qualname__}",
        "fields": {field: _described(value, code) for field, value in counting.items()},
        "code": code_document(code, places),
        **({"class": of_class} if of_class else {}),
        **({"given": {name: _described(value, code) for name, value in arguments.items()}} if arguments else {}),
        **({"function": _code_of(function), "bound": _arguments_of(operator)} if callable(function) else {}),
        **({"settings": settings} if settings else {}),
    }
    return drop_in_document(document, drop_in)


def _places_of_shell(operator: BaseOperator, known: Sequence[Place]) -> list[Place]:
    """What the operator's command runs by a relative path, by a variable or as a module, but for what is ``known``."""
    command = getattr(operator, "bash_command", None)
    if not isinstance(command, str):
        return []
    given = getattr(operator, "env", None)
    env = {str(name): str(value) for name, value in {**os.environ, **(given or {})}.items()}
    uris = {place.uri for place in known}
    in_shell = places_of_shell(command, getattr(operator, "cwd", None), env)
    return [place for place in in_shell if place.uri not in uris]


def context_of(operator: BaseOperator, context: Context) -> dict[str, Any]:
    """Return what the operator's function takes from Airflow's context by name, as plain values."""
    return context_document(operator, context, partial(_described, code=ApplicationCode()))


def _arguments_of(operator: BaseOperator) -> str:
    """The arguments of its function, with their types and their order."""
    return value_digest([getattr(operator, name, None) for name in ("op_args", "op_kwargs")])


def _described(value: Any, code: ApplicationCode) -> Any:
    """As plain values: what two processes write alike. ``code`` reads the files that texts name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has none
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        is_path = value.startswith(("/", "file:/")) and len(value) <= _MOST_PATH_CHARS and "\n" not in value
        return code.file_digest(value) if is_path else value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _described(item, code) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_described(item, code) for item in value]
    if inspect.isfunction(value):
        return _code_of_function(value)
    return value_digest(value)


def _code_of(function: Callable[..., Any]) -> Any:
    """The code of what can be called, and what is bound in it: arguments of a partial, attributes of an object."""
    if isinstance(function, partial):
        bound = value_digest([function.args, function.keywords])
        return {"function": _code_of(function.func), "bound": bound}
    if inspect.ismethod(function):
        return _code_of_method(function.__func__, function.__self__)
    call = getattr(type(function), "__call__", None)  # noqa: B004 - a base class may have it
    return _code_of_method(call, function) if inspect.isfunction(call) else _code_of_function(function)


def _code_of_method(function: Callable[..., Any], owner: Any) -> Any:
    if inspect.isclass(owner):
        return _code_of_function(function, owner)
    return {"function": _code_of_function(function, type(owner)), "bound": value_digest(owner)}


def _code_of_function(function: Callable[..., Any], method_of: type | None = None) -> Any:
    return [[f"{module} {name}".strip(), digest] for module, name, digest in function_code(function, method_of)]
