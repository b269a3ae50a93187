"""Which buckets, containers, catalogs and web servers a DAG file names itself.

A user who triggers the DAG may give any location. A location in the DAG file is the choice of the file's author. So
this module reads the texts of all operators and of the job as they are before Airflow renders them. If a template makes
the bucket, the bucket counts only if the deployment and the schedule alone decide the rendered value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.checks import is_template
from airflow_recovery.store.allowed import place_of

if TYPE_CHECKING:
    from airflow_recovery.job import Job

OF_THE_DEPLOYMENT = frozenset(
    (
        *("conn", "data_interval_end", "data_interval_start", "ds", "ds_nodash", "logical_date", "macros"),
        *("ts", "ts_nodash", "ts_nodash_with_tz", "var"),
    )
)
"""Variables that the deployment or the schedule decides. Not ``conf``, ``params``, ``run_id`` and XComs."""

_ROOT = re.compile(r"[a-z][a-z0-9]*://[^\s/'\"`,;|&<>(){}?#]+")
_SERVER = "(?:endpoint|ur[il]|host|proxy|authority)"
_VARIABLE = rf"(?:(?:AWS|AZURE|GCE|GOOGLE|IDENTITY|MSI|STORAGE)_.*{_SERVER}.*|.*_proxy)"
_VARIABLES_IN_CONF = r"spark\.(?:executorEnv|yarn\.appMasterEnv|kubernetes\.driverEnv)\."
_NAMES_SERVER = {
    "conf": re.compile(
        rf"(?:spark\.hadoop|fs|spark\.sql\.catalog)\..*{_SERVER}.*|{_VARIABLES_IN_CONF}{_VARIABLE}", re.IGNORECASE
    ),
    "env_vars": re.compile(_VARIABLE, re.IGNORECASE),
}
"""Names of settings and variables that choose a server to which Spark, a driver or an SDK sends credentials."""
_ADDRESS = re.compile(r"(?:k8s://)?(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_BLANKS = "".join(map(chr, range(33)))
"""Java's and Hadoop's programs remove these characters around a setting before they use it."""
_ENDS_ROOT = re.compile(r"[\s/'\"`,;|&<>()?#]")
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_NOT_WRITTEN = re.compile(r"_?dag|_?task_group|params|doc(?:_\w+)?|.*__init_kwargs|_as_written")
"""Attributes of an operator that are other objects of the DAG, texts for people, or params with the values of a run.

The defaults of params are in ``_params_as_written``.
"""
_OURS = "airflow_recovery."


def written_places(context: Mapping[str, Any], dag: Any, job: Job | None = None) -> Callable[[], frozenset[str]]:
    """Return a function that finds the roots (`airflow_recovery.store.allowed.Place`) which the DAG file names.

    ``context``: Airflow's context of this task. ``job``: the job of a task group, whose texts are in its own module.
    The function reads the DAG when it is first called. It caches its result.
    """

    @lru_cache(maxsize=1)
    def find() -> frozenset[str]:
        rendered = context.get("task")
        found: set[str] = set()
        macros = getattr(dag, "user_defined_macros", None) or {}
        constants = frozenset(name for name, value in macros.items() if not callable(value))
        for task in getattr(dag, "tasks", ()):
            render = partial(_rendered_of_task, task, context)
            for text in _texts_of_task(task, is_rendered=task is rendered):
                found |= roots_in(text, render, constants)
        if job is not None:
            for text in _texts(job, set()):
                found |= roots_in(text, partial(_rendered_of_job, context))
        return frozenset(found)

    return find


def check_settings(task: Any, check: Callable[[str], object]) -> None:
    """Call ``check`` for each server that a run has chosen in ``conf`` and ``env_vars`` of an operator.

    Spark, our driver and the SDKs would send credentials there (`_NAMES_SERVER`). ``task``: an operator of ours that
    Airflow has rendered.
    """
    for field, written in getattr(task, "_settings_as_written", {}).items():
        rendered = getattr(task, field, None)
        for name, text in written.items():
            is_chosen = isinstance(text, str) and is_template(text) and not _is_of_deployment(text, frozenset())
            if is_chosen and _NAMES_SERVER[field].fullmatch(str(name)) and isinstance(rendered, Mapping):
                for address in _addresses(str(rendered.get(name) or "")):
                    check(address)


def _addresses(text: str) -> Iterator[str]:
    """Each server in the value of a setting, as a web address: only the host counts, whatever scheme is in front."""
    for each in text.split(","):
        found = _ADDRESS.fullmatch(each.strip(_BLANKS))
        if found is not None and found["rest"]:
            yield f"{'http' if (found['scheme'] or '').lower() == 'http' else 'https'}://{found['rest']}"


def roots_in(text: str, render: Callable[[str], str], constants: Iterable[str] = ()) -> set[str]:
    """Return the roots that ``text`` names before it is rendered, and those that only the deployment decides.

    ``render`` renders a template. ``constants``: names besides `OF_THE_DEPLOYMENT` that no run changes.
    """
    if not is_template(text):
        return set(_roots(text, is_whole=True))
    *pieces, last = _EXPRESSION.split(text)
    found = {root for piece in pieces for root in _roots(piece, is_whole=False)} | set(_roots(last, is_whole=True))
    known = "" if found else _known_part(text, frozenset(constants))
    try:
        return found or set(_roots(render(known), is_whole=known == text))
    except Exception:  # a variable or a connection that is missing: nothing is known, and nothing is allowed
        return set()


def _roots(text: str, *, is_whole: bool) -> Iterator[str]:
    """``is_whole``: nothing is put behind the end of ``text``."""
    for match in _ROOT.finditer(text):
        end = match.end()
        if _ENDS_ROOT.match(text, end) or (is_whole and end == len(text)):
            try:
                place = place_of(match[0])
            except ValueError:
                continue
            if place.kind:
                yield place.root


def _known_part(text: str, constants: frozenset[str]) -> str:
    """Return ``text`` up to the first expression whose value a run decides. The location begins with this part."""
    if _is_of_deployment(text, constants):
        return text
    chosen = (each for each in _EXPRESSION.finditer(text) if not _is_of_deployment(each[0], constants))
    return text[: next(chosen).start()]


@lru_cache(maxsize=1024)
def _is_of_deployment(text: str, constants: frozenset[str]) -> bool:
    from jinja2 import Environment, TemplateSyntaxError, meta, nodes

    try:
        tree = Environment(autoescape=False).parse(text)
    except TemplateSyntaxError:
        return False
    if next(tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)), None) is not None:
        return False
    return meta.find_undeclared_variables(tree) <= OF_THE_DEPLOYMENT | constants


def _rendered_of_task(task: Any, context: Mapping[str, Any], text: str) -> str:
    return str(task.render_template(text, context))


def _rendered_of_job(context: Mapping[str, Any], text: str) -> str:
    from airflow_recovery.job.templates import render
    from airflow_recovery.task.run_context import run_facts

    return str(render({"text": text}, run_facts(context), where="a location")["text"])


def _texts_of_task(task: Any, *, is_rendered: bool) -> Iterator[str]:
    """``is_rendered``: Airflow has rendered the fields of this object; ``_as_written`` has what they were, if known."""
    templated = set(getattr(task, "template_fields", ()))
    written: Mapping[str, Any] = getattr(task, "_as_written", {})
    seen: set[int] = set()
    for name, value in vars(task).items():
        is_known = name in written or not (name in templated and is_rendered)
        if is_known and not _NOT_WRITTEN.fullmatch(name):
            yield from _texts(written.get(name, value) if name in templated else value, seen)


def _texts(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        return
    if id(value) in seen or isinstance(value, type) or hasattr(value, "template_fields"):
        return  # an operator, or an object that Airflow renders in place
    seen.add(id(value))
    if hasattr(value, "table_uri"):
        yield str(value.table_uri() or "")
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _texts(item, seen)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _texts(getattr(value, each.name, None), seen)
    elif type(value).__module__.startswith(_OURS):
        yield from _texts(vars(value) if hasattr(value, "__dict__") else {}, seen)
