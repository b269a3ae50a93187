"""A drop-in's job by any operator: what its placeholders stand in, what it is told of a place, and its fingerprint."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from airflow_recovery.checks import check_no_address
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.hooks.code_sources import local_path
from airflow_recovery.job.bound_values import is_path
from airflow_recovery.job.fingerprint import FilesFound, class_code, function_code, value_digest
from airflow_recovery.job.row_settings import defaults_of, settings_files, settings_of
from airflow_recovery.task.application_code import ApplicationCode, is_local
from airflow_recovery.task.code_places import (
    Place,
    PlaceKind,
    files_of_shell,
    folders_of_shell,
    places_of_operator,
    places_of_settings,
    places_of_shell,
    value_in,
)
from airflow_recovery.task.drop_in import (
    DropInApplication,
    code_document,
    drop_in_document,
    places_of_configuration,
    settings_document,
)
from airflow_recovery.task.operator_components import arguments_that_count, context_document, fields_that_count
from airflow_recovery.task.operator_submission import OperatorSubmission
from airflow_recovery.task.references import filled

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_recovery.attempt.application import ClaimedAttempt
    from airflow_recovery.task.open_run import OpenRun
    from airflow_recovery.task.references import DropIn, PathStyle


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
    code.watch_settings(settings_files(operator), lambda: settings_of(operator))
    places = places_of_operator(operator, operator_class, fields)
    places += [*_places_of_shell(operator, places), *places_of_settings(defaults_of(operator))]
    places += places_of_configuration(operator)
    declared = {field: getattr(operator, field) for field in fields}
    for field, value in declared.items():
        check_no_address(value, f"{operator.task_id}, {field}")
    counting = fields_that_count(operator_class, declared)
    settings = settings_document(operator, code)
    of_class = class_code(operator_class, code.found)
    command = _files_of_command(operator, places, code)
    arguments = arguments_that_count(operator, operator_class, declared)
    document = {
        "operator": f"{operator_class.__module__}.{operator_class.__qualname__}",
        "fields": {field: _described(value, code) for field, value in counting.items()},
        "code": code_document(code, places),
        **({"class": of_class} if of_class else {}),
        **({"given": {name: _described(value, code) for name, value in arguments.items()}} if arguments else {}),
        **(
            {"function": _code_of(function, code.found), "bound": _arguments_of(operator, code.found)}
            if callable(function)
            else {}
        ),
        **({"files": command} if command else {}),
        **({"settings": settings} if settings else {}),
    }
    return drop_in_document(document, drop_in, code)


def _places_of_shell(operator: BaseOperator, known: Sequence[Place]) -> list[Place]:
    """What the operator's command runs by a relative path, by a variable or as a module, but for what is ``known``."""
    uris = {place.uri for place in known}
    in_shell = [place for place in places_of_shell(*_command_of(operator)) if place.uri not in uris]
    outside = [path for path in folders_of_shell(*_command_of(operator)) if not _is_declared(operator, path)]
    return [*in_shell, *(Place("folder", path, PlaceKind.ELSEWHERE) for path in outside)]


def _is_declared(operator: BaseOperator, path: str) -> bool:
    """Whether a folder lies in a declared input or output, or in a place that the user has said not to count."""
    places = (getattr(operator, name, None) for name in ("inputs", "outputs"))
    uris = [uri for each in places if isinstance(each, Mapping) for uri in each.values() if isinstance(uri, str)]
    folders = [local_path(re.split(r"[*?\[{]", uri)[0]) for uri in uris if is_local(uri)]
    ignored = getattr(operator, "ignore_changes_in", ())
    return any(map(Path(path).is_relative_to, folders)) or any(fnmatchcase(path, each) for each in ignored)


def _files_of_command(operator: BaseOperator, known: Sequence[Place], code: ApplicationCode) -> list[str]:
    """The digests of the files that the operator's command is given, but for what is ``known``."""
    uris = {place.uri for place in known}
    paths = [path for path in files_of_shell(*_command_of(operator)) if path not in uris]
    return [digest for path in paths if (digest := code.file_digest(path)) != path]


def _command_of(operator: BaseOperator) -> tuple[str, str | None, dict[str, str]]:
    """The command of a shell, the folder in which it runs, and its environment."""
    command, given = getattr(operator, "bash_command", None), getattr(operator, "env", None)
    env = {str(name): str(value) for name, value in {**os.environ, **(given or {})}.items()}
    return command if isinstance(command, str) else "", getattr(operator, "cwd", None), env


def context_of(operator: BaseOperator, context: Context, code: ApplicationCode | None = None) -> dict[str, Any]:
    """Return what the operator's function takes from Airflow's context by name, as plain values."""
    return context_document(operator, context, partial(_described, code=code or ApplicationCode(operator)))


def _arguments_of(operator: BaseOperator, found: FilesFound) -> str:
    """The arguments of its function, with their types and their order."""
    return value_digest([getattr(operator, name, None) for name in ("op_args", "op_kwargs")], found)


def _described(value: Any, code: ApplicationCode) -> Any:
    """As plain values: what two processes write alike. ``code`` reads the files that texts and paths name."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has none
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _described_text(value, code)
    if isinstance(value, PurePath):
        return [type(value).__name__, _described_text(str(value), code)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _described(item, code) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_described(item, code) for item in value]
    return _code_of_function(value, code.found) if inspect.isfunction(value) else value_digest(value, code.found)


def _described_text(text: str, code: ApplicationCode) -> Any:
    """A text; for the path of a file its content; for ``--name=path`` both."""
    path = value_in(text)
    if not is_path(path):
        return text
    digest = code.file_digest(path)
    return digest if path == text else [text, digest] if digest != path else text


def _code_of(function: Callable[..., Any], found: FilesFound) -> Any:
    """The code of what can be called, and what is bound in it: arguments of a partial, attributes of an object.

    ``found`` gets the files of it.
    """
    if isinstance(function, partial):
        bound = value_digest([function.args, function.keywords], found)
        return {"function": _code_of(function.func, found), "bound": bound}
    if inspect.ismethod(function):
        return _code_of_method(function.__func__, function.__self__, found)
    call = getattr(type(function), "__call__", None)  # noqa: B004 - a base class may have it
    if inspect.isfunction(call):
        return _code_of_method(call, function, found)
    return _code_of_function(function, found)


def _code_of_method(function: Callable[..., Any], owner: Any, found: FilesFound) -> Any:
    if inspect.isclass(owner):
        return _code_of_function(function, found, owner)
    return {"function": _code_of_function(function, found, type(owner)), "bound": value_digest(owner, found)}


def _code_of_function(function: Callable[..., Any], found: FilesFound, method_of: type | None = None) -> Any:
    return [[f"{module} {name}".strip(), digest] for module, name, digest in function_code(function, method_of, found)]
