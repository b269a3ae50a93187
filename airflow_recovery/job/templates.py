"""The values of ``params=``: they travel as JSON, and templates in them are over the run alone.

What an attempt computes must not depend on when or where the attempt runs.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow_recovery.checks import check_no_address, is_template, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.context import RunLike

if TYPE_CHECKING:
    from datetime import datetime

    from jinja2 import Template
    from jinja2.sandbox import SandboxedEnvironment
    from pendulum import DateTime

ALLOWED = ("conf", "data_interval_end", "data_interval_start", "ds", "ds_nodash", "logical_date", "params", "ts")
SUBTASK = "subtask"
_HARMLESS_GLOBALS = ("dict", "namespace", "range")
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_TEXT = re.compile(r"""'[^']*'|"[^"]*\"""")
_SUBTASK_NAME = re.compile(rf"(?<![\w.]){SUBTASK}\b")
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_CLOCK_METHODS = frozenset(
    {
        *("age", "average", "diff", "diff_for_humans", "is_anniversary", "is_birthday", "is_future", "is_past"),
        *("now", "today", "tomorrow", "utcnow", "yesterday"),
    }
)


def plain_json(value: Any, *, where: str) -> Any:
    """Return the value from JSON. Raises `JobDefinitionError` where it cannot be written or comes back changed.

    NaN and infinity are not JSON; a tuple would come back as a list, and a number as a key as a text.
    """
    try:
        returned = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise JobDefinitionError(
            f"{where}: expected a value that can be written as JSON, found {value!r} ({error}): "
            "use texts, numbers, booleans, None, lists and dicts, and build anything else inside the function",
            code="value-not-json",
            where=where,
        ) from error
    if returned != value:
        raise JobDefinitionError(
            f"{where}: expected a value that JSON gives back unchanged, found {value!r}, which comes back as "
            f"{returned!r}: write it like that (lists for tuples, texts for keys)"
        )
    return returned


def check_templates(values: Mapping[str, Any], *, where: str, is_parallel: bool = False) -> None:
    """Raise `JobDefinitionError` for a template that is not valid, or that uses more than the run.

    ``where`` begins the message, such as ``job 'flights', vertex 'cleaned'``. A parallel vertex may also use
    ``subtask``, its subtask's key. Called at declaration. Where there is no Jinja, as in the Python of a stock Spark
    image, nothing is checked: whoever made the plan that a driver runs has done so.
    """
    if _has_jinja():
        _map_strings(values, lambda path, text: _check(text, f"{where}, parameter {path}", is_parallel))


def uses_subtask(values: Mapping[str, Any]) -> bool:
    """Whether a template in the values names ``subtask``: they then differ from subtask to subtask."""
    uses: list[bool] = []

    def look(_: str, text: str) -> str:
        uses.append(_names_subtask(text) if _has_jinja() else _seems_to_name_subtask(text))
        return text

    _map_strings(values, look)
    return any(uses)


def names_used(values: Mapping[str, Any]) -> frozenset[str]:
    """The names that templates in the values use. Of a template that is not valid: none."""
    from jinja2 import TemplateSyntaxError

    names: set[str] = set()

    def look(_: str, text: str) -> str:
        with suppress(TemplateSyntaxError):  # `check_templates` reports it
            names.update(_used(text)[0])
        return text

    _map_strings(values, look)
    return frozenset(names)


@cache
def _has_jinja() -> bool:
    return find_spec("jinja2") is not None


def _names_subtask(text: str) -> bool:
    from jinja2 import TemplateSyntaxError

    with suppress(TemplateSyntaxError):  # `check_templates` reports it
        return SUBTASK in _used(text)[0]
    return False


def _seems_to_name_subtask(text: str) -> bool:
    """`_names_subtask` of a template that was checked: outside of comments and of texts, and no attribute's name."""
    expressions = " ".join(match[0] for match in _EXPRESSION.finditer(_COMMENT.sub("", text)))
    return _SUBTASK_NAME.search(_TEXT.sub("", expressions)) is not None


def render(values: Mapping[str, Any], run: RunLike, *, where: str, subtask: str | None = None) -> dict[str, Any]:
    """Return the values with every template in them, however deep in lists and dicts, rendered for this run.

    ``subtask`` is the key of the subtask that they are rendered for.

    A rendered template is always a text, as in Airflow: ``"{{ conf.n }}"`` gives ``"3"``. Keys are not rendered. Raises
    `JobDefinitionError` where a name is not allowed or has no value in this run.
    """
    if not values:
        return {}
    names: list[dict[str, Any]] = []

    def render_one(path: str, text: str) -> str:
        if not names:
            names.append(_names(run) if subtask is None else {**_names(run), SUBTASK: subtask})
        return _render(text, names[0], f"{where}, parameter {path}")

    rendered = _map_strings(values, render_one)
    assert isinstance(rendered, dict)
    check_no_address(rendered, where)
    return rendered


def checked_moment(moment: datetime | str, where: str) -> DateTime:
    """A logical date, with its time zone. Raises `JobDefinitionError`, which is a `ValueError`, for anything else."""
    import pendulum

    try:
        # "now" and a time of day mean something to pendulum, and another moment each time.
        is_date = not isinstance(moment, str) or _DATE.match(moment)
        parsed = pendulum.parse(moment) if isinstance(moment, str) else pendulum.instance(moment)
    except (ValueError, AttributeError, OverflowError):
        is_date = parsed = None
    if not is_date or not isinstance(parsed, pendulum.DateTime):
        raise JobDefinitionError(
            f"{where}: expected logical_date as a moment in ISO 8601, found {shown(moment)}: write it as "
            "'2026-01-31T00:00:00+00:00'",
            code="logical-date-unfit",
            found=shown(moment),
        )
    return parsed


def _map_strings(value: Any, change: Callable[[str, str], str], path: str = "") -> Any:
    if isinstance(value, str):
        return change(path, value) if is_template(value) else value
    if isinstance(value, Mapping):
        return {
            key: _map_strings(inner, change, f"{path}[{key!r}]" if path else repr(key)) for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_map_strings(item, change, f"{path}[{index}]") for index, item in enumerate(value)]
    return copy.copy(value)


def _check(text: str, where: str, is_parallel: bool = False) -> str:
    from jinja2 import TemplateSyntaxError

    try:
        names, clock = _used(text)
    except TemplateSyntaxError as error:
        raise JobDefinitionError(
            f"{where}: {text!r} is not a valid template: {error}. Correct it", code="template-invalid", where=where
        ) from error
    strangers = sorted(names.difference(ALLOWED, _HARMLESS_GLOBALS, (SUBTASK,) if is_parallel else ()))
    if strangers == [SUBTASK]:
        raise JobDefinitionError(
            f"{where}: {text!r} names the subtask, and the vertex has no parallelism=: declare it",
            code="template-names-subtask",
        )
    if strangers or clock:
        raise _not_allowed(where, text, strangers[0] if strangers else clock)
    return text


# Each of a thousand subtasks renders the same texts.
@lru_cache(maxsize=1024)
def _used(text: str) -> tuple[frozenset[str], str]:
    """The names that a template uses, and the first method of a date in it that reads the clock ("" for none)."""
    from jinja2 import meta, nodes

    tree = _environment().parse(text)
    methods = (
        lookup for lookup in tree.find_all(nodes.Getattr) if lookup.attr in _CLOCK_METHODS and _is_a_date(lookup.node)
    )
    return frozenset(meta.find_undeclared_variables(tree)), next((method.attr for method in methods), "")


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Template:
    return _environment().from_string(text)


def _is_a_date(node: object) -> bool:
    # Only `conf` and `params` hold names of the user's own choice: `conf.today` reads no clock.
    from jinja2 import nodes

    while isinstance(node, (nodes.Getattr, nodes.Getitem, nodes.Call)):
        node = node.node
    return not (isinstance(node, nodes.Name) and node.name in ("conf", "params"))


def _render(text: str, names: Mapping[str, Any], where: str) -> str:
    from jinja2 import UndefinedError

    _check(text, where, SUBTASK in names)
    try:
        return _compiled(text).render(names)
    except UndefinedError as error:
        advice = ". This run has no logical date: trigger it with one, or use conf or params instead"
        hint = "" if "logical_date" in names else advice
        raise JobDefinitionError(
            f"{where}: {text!r} has no value in this run: {error}{hint}", code="template-without-value", where=where
        ) from error
    except Exception as error:
        raise JobDefinitionError(
            f"{where}: {text!r} cannot be rendered: {type(error).__name__}: {error}", code="template-fails", where=where
        ) from error


def _not_allowed(where: str, text: str, name: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"{where}: expected a template over the run alone ({', '.join(ALLOWED)}), found {name!r} in {text!r}: an "
        "attempt must not depend on when or where it runs, else its result could not be kept. Take the value from conf "
        "or params",
        code="template-reads-more",
        where=where,
    )


def _names(run: RunLike) -> dict[str, Any]:
    import pendulum

    names: dict[str, Any] = {"conf": run.conf, "params": run.params}
    if run.logical_date is not None:
        logical_date = pendulum.parse(run.logical_date)
        assert isinstance(logical_date, pendulum.DateTime)
        names |= {
            "logical_date": logical_date,
            "ds": logical_date.strftime("%Y-%m-%d"),
            "ds_nodash": logical_date.strftime("%Y%m%d"),
            "ts": logical_date.isoformat(),
        }
    if run.data_interval_start is not None:
        names["data_interval_start"] = pendulum.parse(run.data_interval_start)
    if run.data_interval_end is not None:
        names["data_interval_end"] = pendulum.parse(run.data_interval_end)
    return names


@cache
def _environment() -> SandboxedEnvironment:
    from datetime import date

    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class RunOnly(ImmutableSandboxedEnvironment):
        """A date of the run is a value: its methods that read the clock are not there."""

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            reads_clock = isinstance(obj, date) and attr in _CLOCK_METHODS
            return not reads_clock and super().is_safe_attribute(obj, attr, value)

    environment = RunOnly(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.globals = {name: environment.globals[name] for name in _HARMLESS_GLOBALS}
    del environment.filters["random"]
    return environment
