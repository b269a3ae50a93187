"""Outputs and inputs of a drop-in operator, and the placeholders that stand for them in what it is given."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_recovery.checks import check_arguments, check_location, is_known_later, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.locations import DELTA, comparable, is_table
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.sinks.declaration import CommittingSink, spec_of

if TYPE_CHECKING:
    from airflow_recovery.model.committing import CommitSpec
    from airflow_recovery.results.stored_rows import ReadLimits

_PLACEHOLDER = re.compile(r"\{(input|output|version|token):([^{}]*)\}")
_DOUBLE_BRACES = re.compile(r"\{\{\s*((?:input|output|version|token):[^{}\s]*)\s*\}\}")
_NAME = re.compile(r"[A-Za-z_][\w-]*")
PathStyle = Literal["spark", "plain"]
"""How a place is written for a job: as Hadoop's file systems name it, or as EMR's and a shell do."""
ALL = "*"
"""``{output:*}``: the folder in which all managed outputs of an attempt lie, each below its name."""


@dataclass(frozen=True)
class OutputReference:
    """Output ``name`` of the operator ``task_id``, as another operator's input."""

    task_id: str
    name: str

    def __post_init__(self) -> None:
        check_arguments(OutputReference.__init__, vars(self), "OutputReference")


@dataclass(frozen=True)
class DropIn:
    """What a drop-in operator declares besides its job.

    ``outputs`` by name: the user's own URI, or `None` for one that is managed. ``inputs`` by name: another operator's
    output, or a URI. ``declared_outputs``: before Airflow has rendered them, in the operator's own task alone.
    ``read_limits``: how much of what it has written is read to compare rows; `None`: no rows are compared.
    ``told``: the placeholders that its job has, as `placeholders` finds them.
    """

    task_id: str
    outputs: Mapping[str, str | None]
    inputs: Mapping[str, OutputReference | str]
    declared_outputs: Mapping[str, str | None]
    commit: CommittingSink | None = None
    on_altered: OnAltered = OnAltered.STOP
    determinism: Determinism = Determinism.VERIFY
    read_limits: ReadLimits | None = None
    allow_duplicates: bool = False
    recovers: bool = True
    told: Collection[tuple[str, str]] = ()

    @property
    def references(self) -> dict[str, OutputReference]:
        """The inputs that are outputs of other operators, by name."""
        return {name: declared for name, declared in self.inputs.items() if isinstance(declared, OutputReference)}

    @property
    def tables(self) -> dict[str, str]:
        """The outputs that are tables, by name."""
        return {name: uri for name, uri in self.outputs.items() if uri is not None and is_table(uri)}

    @property
    def commit_spec(self) -> CommitSpec | None:
        """What a finish is prepared for, as plans hold it."""
        if self.commit is None:
            return None
        (name,) = self.outputs
        return spec_of(self.commit, qualified(self.task_id, name))


def qualified(task_id: str, name: str) -> str:
    """The name of an operator's output among the results of the whole DAG."""
    return f"{task_id}.{name}"


def checked_outputs(
    task_id: str, outputs: Sequence[str] | Mapping[str, str | None], *, may_be_none: bool = False
) -> dict[str, str | None]:
    """Outputs by name: the user's own fixed URI, or `None` for one that is managed. Raises `JobDefinitionError`.

    ``may_be_none``: what the job makes may lie where it can't be registered.
    """
    if not isinstance(outputs, (list, tuple, Mapping)):
        raise JobDefinitionError(
            f"{task_id}: expected outputs= as a list of names or a mapping from names to URIs, found {shown(outputs)}: "
            "write outputs=['cleaned']"
        )
    if unfit := [output for output in outputs if not isinstance(output, str) or not _NAME.fullmatch(output)]:
        raise JobDefinitionError(
            f"{task_id}: expected an output name like 'cleaned', found {shown(unfit[0])}: rename it"
        )
    checked = dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    if not checked and not may_be_none:
        raise JobDefinitionError(
            f"{task_id}: expected at least one output, found none. Without one nothing can be registered: use "
            "the operator that is not recoverable."
        )
    for name, uri in checked.items():
        if uri is not None:
            checked[name] = check_location(uri, f"{task_id}: output {name!r}", tables=True)
    return checked


def checked_inputs(task_id: str, inputs: object) -> dict[str, OutputReference | str]:
    """Inputs by name: another operator's output, or a URI. Raises `JobDefinitionError`."""
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping) or not all(isinstance(name, str) and name for name in inputs):
        raise JobDefinitionError(
            f"{task_id}: expected inputs= as a mapping from names to URIs or to outputs of other operators, found "
            f"{shown(inputs)}: write inputs={{'flights': 's3://lake/flights/'}} or inputs={{'cleaned': "
            "clean.result('cleaned')}"
        )
    for name, declared in inputs.items():
        # A recoverable operator, or its `.output`: that is what recovery did, and no place.
        producer: Any = getattr(declared, "operator", declared)
        if hasattr(producer, "drop_in") and getattr(declared, "key", "return_value") == "return_value":
            raise JobDefinitionError(
                f"{task_id}: input {name!r}: expected an output of {producer.task_id}, found {shown(declared)}: say "
                f"which one with .result({next(iter(producer.outputs), name)!r})"
            )
    return {
        name: declared
        if isinstance(declared, OutputReference)
        else check_location(declared, f"{task_id}: input {name!r}", to_read=True, tables=True)
        for name, declared in inputs.items()
    }


def check_targets(
    task_id: str, outputs: Mapping[str, str | None], others: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Raise `JobDefinitionError` where two fixed outputs are the same place, or one lies inside the other.

    ``others`` are the outputs of the DAG's other operators, by task id. Templates are compared as they are written.
    """
    fixed = [(task_id, name, uri) for name, uri in outputs.items() if isinstance(uri, str)]
    known = [
        (other, name, uri)
        for other, declared in others.items()
        for name, uri in declared.items()
        if isinstance(uri, str)
    ]
    for at, (_, name, uri) in enumerate(fixed):
        for other, other_name, other_uri in (*fixed[:at], *known):
            place, other_place = _place(uri), _place(other_uri)
            if place.startswith(other_place) or other_place.startswith(place):
                raise JobDefinitionError(
                    f"{task_id}: output {name!r} at {uri} overlaps with output {other_name!r} of {other} at "
                    f"{other_uri}: each would take what the other writes for an alteration, and one would overwrite "
                    "the other. Give them folders beside each other, or no URI: each attempt then gets its own."
                )


def sinks_of(dag: Any) -> Iterator[tuple[str, CommittingSink]]:
    """The sinks of a DAG's operators and task groups so far, each with the task or vertex that declares it."""
    for task in dag.task_dict.values():
        sink = getattr(task, "commit", None)
        if isinstance(sink, CommittingSink):
            yield task.task_id, sink
    for group in dag.task_group.get_task_group_dict().values():
        yield from getattr(group, "sinks", ())


def _place(uri: str) -> str:
    """A Delta table is where its folder is."""
    return f"{comparable(uri.removeprefix(DELTA)).rstrip('/')}/"


def placeholders(value: Any) -> set[tuple[str, str]]:
    """All ``(input | output | version | token, name)`` in ``value``: a text, or texts in lists, sets and mappings."""
    return {(match[1], match[2]) for text in _texts(value) for match in _PLACEHOLDER.finditer(text)}


def filled(value: Any, locations: Mapping[tuple[str, str], str]) -> Any:
    """``value`` with every placeholder in its texts replaced; whatever holds no text of ours stays as it is.

    Raises `JobDefinitionError` for a placeholder that stands for nothing.
    """

    def locate(match: re.Match[str]) -> str:
        key = (match[1], match[2])
        if key not in locations:
            known = ", ".join(sorted(f"{{{kind}:{name}}}" for kind, name in locations))
            raise JobDefinitionError(f"argument {match.string!r}: {match[0]} is not declared; there are {known}.")
        return locations[key]

    if isinstance(value, str):
        return _PLACEHOLDER.sub(locate, value)
    if isinstance(value, Mapping):
        return {filled(key, locations): filled(item, locations) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)) and not hasattr(value, "_fields"):
        return type(value)(filled(item, locations) for item in value)
    return value


def check_placeholders(  # noqa: PLR0913 - what is declared, and what is known of it
    task_id: str,
    fields: Mapping[str, Any],
    outputs: Mapping[str, str | None],
    inputs: Collection[str],
    *,
    is_rendered: bool,
    template_files: Collection[str] = (),
    tables_read: Collection[str] = (),
    perhaps_read: Collection[str] = (),
    marks_commits: bool = False,
) -> None:
    """Raise `JobDefinitionError` where a placeholder stands for nothing, or a managed output has none.

    So it is where the job is not told which snapshot of ``tables_read`` (inputs) it is to read, or with which token it
    is to commit to a table, unless the operator ``marks_commits`` by itself. Of ``perhaps_read`` nobody knows by now
    whether they are tables.

    ``fields`` by name: where they may stand. Of what Airflow puts in before the task runs (an ``XComArg``, a text that
    is a template from end to end, a file that ends with one of ``template_files``) nothing is known until then:
    ``is_rendered``.
    """
    used = placeholders(list(fields.values()))
    managed = {name for name, uri in outputs.items() if uri is None}
    written = {name for name, uri in outputs.items() if is_table(uri)}
    known = {("output", name) for name in outputs} | {("input", name) for name in inputs}
    perhaps_written = () if is_rendered else [name for name, uri in outputs.items() if may_become_table(uri)]
    known |= {("token", name) for name in (*written, *perhaps_written)}
    known |= {("version", name) for name in (*tables_read, *perhaps_read)}
    every = {("output", ALL)} if managed else set()
    unknown = sorted(f"{{{kind}:{name}}}" for kind, name in used - known - every)
    where = " or ".join(fields)
    doubled = None if is_rendered else _first_doubled(fields)
    if doubled is not None:
        raise JobDefinitionError(
            f"{task_id}: expected {{{doubled[1]}}} in {where}, found {doubled[0]}: two braces are a template of "
            "Airflow's, which knows no such name. Write it with one"
        )
    if unknown:
        raise JobDefinitionError(
            f"{task_id}: {', '.join(unknown)} in {where} stands for nothing; declared are "
            f"{', '.join(sorted(f'{{{kind}:{name}}}' for kind, name in known))}."
        )
    if not is_rendered and any(_comes_later(value, tuple(template_files)) for value in fields.values()):
        return
    for name in sorted(managed):
        if not used & {("output", name), *every}:
            raise JobDefinitionError(
                f"{task_id}: output {name!r} is managed, and the application is never told where to write "
                f"it: put {{output:{name}}} into {where}, or give its own URI in outputs."
            )
    for name in sorted(tables_read):
        if ("version", name) not in used:
            raise no_version(task_id, name, where)
    if written and not marks_commits and not any(kind == "token" for kind, _ in used):
        name = min(written)
        raise JobDefinitionError(
            f"{task_id}: output {name!r} is a table, and the application is never told with which token to commit: put "
            f"{{token:{name}}} into {where}, and have its commit carry it (docs/tables.md)."
        )


def may_become_table(uri: object) -> bool:
    """Whether nobody knows of a location, before Airflow has put something in, that it is no table."""
    return is_known_later(uri) and not (isinstance(uri, str) and uri.partition("{")[0])


def no_version(task_id: str, name: str, where: str) -> JobDefinitionError:
    """The error for a job that would read whatever is the newest snapshot of its input ``name``."""
    return JobDefinitionError(
        f"{task_id}: input {name!r} is a table, and the application is never told which snapshot to read: put "
        f"{{version:{name}}} into {where}, and have it read that one, whatever is newer."
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _texts(item)


def _first_doubled(fields: Mapping[str, Any]) -> re.Match[str] | None:
    found = (_DOUBLE_BRACES.search(text) for text in _texts(list(fields.values())))
    return next((match for match in found if match is not None), None)


def _comes_later(value: Any, template_files: tuple[str, ...]) -> bool:
    if isinstance(value, str):
        text = value.strip()
        return (text.startswith("{{") and text.endswith("}}")) or (
            bool(template_files) and text.endswith(template_files)
        )
    if isinstance(value, Mapping):
        return any(_comes_later(item, template_files) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_comes_later(item, template_files) for item in value)
    return is_known_later(value)
