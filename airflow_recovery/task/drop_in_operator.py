"""A drop-in's job by any operator: what its placeholders stand in, what it is told of a place, and its fingerprint."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow_recovery.checks import check_no_address
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.errors import FingerprintError
from airflow_recovery.job.fingerprint import function_code
from airflow_recovery.job.row_settings import settings_of
from airflow_recovery.model.codec import digest_of
from airflow_recovery.task.drop_in import DropInApplication, drop_in_document, file_digest
from airflow_recovery.task.operator_components import (
    context_document,
    fields_that_count,
    services_of,
)
from airflow_recovery.task.operator_submission import OperatorSubmission
from airflow_recovery.task.references import filled

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_recovery.attempt.application import ClaimedAttempt
    from airflow_recovery.task.open_run import OpenRun
    from airflow_recovery.task.references import DropIn, PathStyle

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
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

    def end_previous(self, name: str) -> Any:
        """As `OperatorSubmission.end_previous`."""
        return OperatorSubmission.end_previous(self, name)

    def path_of(self, uri: str) -> str:
        """``spark``: as Hadoop's file systems name it; ``plain``: ``s3://``, and a folder by its path."""
        return spark_path(uri) if self._paths == "spark" else uri.removeprefix("file://")


def operator_document(
    operator: BaseOperator, operator_class: type[BaseOperator], fields: Sequence[str], drop_in: DropIn
) -> dict[str, Any]:
    """What the operator's job computes, as far as it can be told: its class, ``fields`` as rendered, its function.

    A text that is the absolute path of a file on this machine stands for that file's content. A ``python_callable``
    stands for its code, and for what that uses in its own package.
    """
    function = getattr(operator, "python_callable", None)
    declared = {field: getattr(operator, field) for field in fields}
    for field, value in declared.items():
        check_no_address(value, f"{operator.task_id}, {field}")
    described = {field: _described(value) for field, value in fields_that_count(operator_class, declared).items()}
    services = services_of(operator_class, {field: described.get(field) for field in fields})
    settings = settings_of(operator)
    document = {
        "operator": f"{operator_class.__module__}.{operator_class.__qualname__}",
        "fields": described,
        **({"function": _code_of(function)} if callable(function) else {}),
        **({"services": services} if services else {}),
        **({"settings": settings} if settings else {}),
    }
    return drop_in_document(document, drop_in)


def context_of(operator: BaseOperator, context: Context) -> dict[str, Any]:
    """Return what the operator's function takes from Airflow's context by name, as plain values."""
    return context_document(operator, context, _plain)


def _described(value: Any) -> Any:
    """As plain values: what two processes write alike."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has none
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        is_path = value.startswith(("/", "file://")) and len(value) <= _MOST_PATH_CHARS and "\n" not in value
        return file_digest(value) if is_path else value
    if isinstance(value, Mapping):
        return {str(key): _described(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_described(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(_described(item)) for item in value)
    if inspect.isfunction(value):
        return _code_of_function(value)
    if isinstance(value, partial):
        return _described([value.func, value.args, value.keywords])
    return _text_of(value)


def _text_of(value: Any) -> Any:
    """Describe any object so that two processes write it alike: by its fields, or by its text if that shows them."""
    if inspect.isfunction(value):
        return _source_of(value)
    state = _state_of(value)
    if state is not None:
        return [type(value).__qualname__, _plain(state)]
    return f"{type(value).__qualname__}: {_ADDRESS.sub('', str(value))}"


def _state_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, of its like, or of an object whose text is only an address."""
    if inspect.isclass(value):
        return None
    names = getattr(value, "__dataclass_fields__", None) or {
        field.name: field for field in getattr(value, "__attrs_attrs__", ())
    }
    if names:
        return {name: getattr(value, name, None) for name in names}
    is_model, kind = hasattr(value, "__pydantic_fields__"), cast("Any", type(value))
    if is_model or (kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__):
        return vars(value) if hasattr(value, "__dict__") else None
    return None


def _plain(value: Any) -> Any:
    """What JSON can hold of any value, with whatever keys, and what two processes write alike."""
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_plain(item)) for item in value)
    if isinstance(value, dict):
        return sorted([json.dumps(_plain(key)), _plain(item)] for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else _text_of(value)


def _code_of(function: Callable[..., Any]) -> Any:
    """The code of what can be called, and what is bound in it: arguments of a partial, attributes of an object."""
    if isinstance(function, partial):
        return {"function": _code_of(function.func), "bound": _described([function.args, function.keywords])}
    if inspect.ismethod(function):
        return _code_of_method(function.__func__, function.__self__)
    call = vars(type(function)).get("__call__")
    return _code_of_method(call, function) if inspect.isfunction(call) else _code_of_function(function)


def _code_of_method(function: Callable[..., Any], owner: Any) -> Any:
    if inspect.isclass(owner):
        return _code_of_function(function, owner)
    state = _described(getattr(owner, "__dict__", owner))
    return {"function": _code_of_function(function, type(owner)), "bound": state}


def _code_of_function(function: Callable[..., Any], method_of: type | None = None) -> Any:
    try:
        return [[name, digest] for _, name, digest in function_code(function, _plain, method_of)]
    except FingerprintError:
        return _source_of(function)


def _source_of(function: Callable[..., Any]) -> str:
    try:
        return digest_of({"source": inspect.getsource(function)})
    except (OSError, TypeError):
        return str(getattr(function, "__qualname__", type(function).__qualname__))
