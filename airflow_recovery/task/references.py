"""Outputs and inputs of a drop-in operator, and the placeholders that stand for them in what it is given."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow_recovery.checks import check_arguments, check_location, is_known_later, is_template, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.globs import alternatives, escaped, matcher
from airflow_recovery.job.seen_settings import dynamic_overwrite, fixed_checkpoint
from airflow_recovery.locations import (
    DELTA,
    ICEBERG,
    AssetLocation,
    TableLocation,
    comparable,
    is_published,
    is_stated,
    is_table,
    scheme_of,
    split_uri,
)
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.results.finished_write import OnUnfinished
from airflow_recovery.results.prober import OnAltered
from airflow_recovery.sinks.declaration import CommittingSink, spec_of
from airflow_recovery.task.inventory import may_list

if TYPE_CHECKING:
    from airflow_recovery.model.committing import CommitSpec
    from airflow_recovery.results.stored_rows import ReadLimits

_PLACEHOLDER = re.compile(r"\{(input|output|version|token|checkpoint):([^{}]*)\}")
_DOUBLE_BRACES = re.compile(r"\{\{\s*((?:input|output|version|token|checkpoint):[^{}\s]*)\s*\}\}")
_OF_THE_DEPLOYMENT = re.compile(r"\{\{\s*(?:var|conn)\.[^{}]*\}\}")
_OF_OTHER_RUNS = re.compile(
    r"\b(?:prev_(?:data_interval_start|data_interval_end|start_date|end_date)_success|triggering_asset_events|"
    r"inlet_events|include_prior_dates|get_previous_\w+)\b"
)
_DAG_MODULE = re.compile("unusual_prefix_[0-9a-f]{40}_")
"""What Airflow puts before the name of a DAG file's module: a hash of the file's path."""
_NAME = re.compile(r"[A-Za-z_][\w-]*")
PathStyle = Literal["spark", "plain"]
"""How a place is written for a job: as Hadoop's file systems name it, or as EMR's and a shell do."""
ALL = "*"
"""``{output:*}``: the folder in which all managed outputs of an attempt lie, each below its name."""


@dataclass(frozen=True)
class OutputReference:
    """Output ``name`` of the operator ``task_id``, as another operator's input.

    ``optional``: it may be absent. Where the DAG run has skipped its operator, or that has failed, and the trigger rule
    of the reader starts it all the same, the reader runs without it.
    """

    task_id: str
    name: str
    optional: bool = False

    def __post_init__(self) -> None:
        check_arguments(OutputReference.__init__, vars(self), "OutputReference")


@dataclass(frozen=True)
class DropIn:
    """What a drop-in operator declares besides its job.

    ``outputs`` by name: the user's own URI, or `None` for one that is managed. ``inputs`` by name: another operator's
    output, or a URI. ``declared_outputs``: before Airflow has rendered them, in the operator's own task alone.
    ``read_limits``: how much of what it has written is read to compare rows; `None`: no rows are compared.
    ``told``: the placeholders that its job has, as `placeholders` finds them. ``pushes_return_value``: Airflow pushes
    what the operator returns. ``require_success_file``: whether a folder without a ``_SUCCESS`` counts as unfinished;
    `None`: if its writer is known to leave one. ``on_unfinished``: what happens if work of a writer lies in a folder.
    """

    task_id: str
    outputs: Mapping[str, str | None]
    inputs: Mapping[str, OutputReference | str]
    declared_outputs: Mapping[str, str | None]
    commit: CommittingSink | None = None
    on_altered: OnAltered = OnAltered.STOP
    require_success_file: bool | None = None
    on_unfinished: OnUnfinished = OnUnfinished.STOP
    determinism: Determinism = Determinism.VERIFY
    read_limits: ReadLimits | None = None
    allow_duplicates: bool = False
    recovers: bool = True
    told: Collection[tuple[str, str]] = ()
    pushes_return_value: bool = True

    @property
    def references(self) -> dict[str, OutputReference]:
        """The inputs that are outputs of other operators, by name."""
        return {name: declared for name, declared in self.inputs.items() if isinstance(declared, OutputReference)}

    @property
    def optional_producers(self) -> tuple[str, ...]:
        """The operators all of whose outputs among the inputs are optional."""
        references = self.references.values()
        required = {reference.task_id for reference in references if not reference.optional}
        return tuple(dict.fromkeys(each.task_id for each in references if each.task_id not in required))

    @property
    def tables(self) -> dict[str, str]:
        """The outputs that are tables, by name."""
        return {name: uri for name, uri in self.outputs.items() if uri is not None and is_table(uri)}

    @property
    def pinned(self) -> frozenset[str]:
        """The inputs that are tables which the operator itself writes: read at the version before its own commits."""
        written = {place_of(uri, resolve=True) for uri in self.tables.values()}
        target = None if self.commit is None else self.commit.table_uri()
        if target is not None:
            written.add(place_of(target, resolve=True))
        return frozenset(
            name
            for name, read in self.inputs.items()
            if is_table(read) and not TableLocation.parse(read).as_of and place_of(read, resolve=True) in written
        )

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


def as_written(value: Any) -> Any:
    """``value`` of an operator's field as two processes see it alike, before Airflow renders it.

    An object that Airflow renders in place stands for its class, since the operator's own task has it rendered.
    """
    if isinstance(value, OutputReference):
        return value
    if isinstance(value, Mapping):
        return {key: as_written(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(as_written(item) for item in value)
    return type(value).__qualname__ if hasattr(value, "template_fields") else value


def without_folder(document: Any, root: str) -> Any:
    """``document``, JSON values, without the folder of the DAG bundle, and without its hash in a module's name."""
    text = json.dumps(document)
    if root not in ("", "/"):
        text = re.sub(re.escape(json.dumps(root.rstrip("/"))[1:-1]) + r"(?![\w.-])/?", "", text)
    return json.loads(_DAG_MODULE.sub("", text))


def checked_outputs(
    task_id: str, outputs: Sequence[str] | Mapping[str, str | None], *, may_be_none: bool = False
) -> dict[str, str | None]:
    """Outputs by name: the user's own fixed URI, or `None` for one that is managed. Raises `JobDefinitionError`.

    ``may_be_none``: what the job makes may lie where it can't be registered.
    """
    if not isinstance(outputs, (list, tuple, Mapping)):
        raise JobDefinitionError(
            f"{task_id}: expected outputs= as a list of names or a mapping from names to URIs, found {shown(outputs)}: "
            "write outputs=['cleaned']",
            code="outputs-unfit",
        )
    if unfit := [output for output in outputs if not isinstance(output, str) or not _NAME.fullmatch(output)]:
        raise JobDefinitionError(
            f"{task_id}: expected an output name like 'cleaned', found {shown(unfit[0])}: rename it",
            code="output-name-unfit",
        )
    checked = dict(outputs) if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    if not checked and not may_be_none:
        raise JobDefinitionError(
            f"{task_id}: expected at least one output, found none. Without one nothing can be registered: use "
            "the operator that is not recoverable.",
            code="no-outputs",
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
            "clean.result('cleaned')}",
            code="inputs-unfit",
        )
    inputs = {name: _without_asset(task_id, name, declared) for name, declared in inputs.items()}
    for name, declared in inputs.items():
        # A recoverable operator, or its `.output`: that is what recovery did, and no place.
        producer: Any = getattr(declared, "operator", declared)
        if hasattr(producer, "drop_in") and getattr(declared, "key", "return_value") == "return_value":
            raise JobDefinitionError(
                f"{task_id}: input {name!r}: expected an output of {producer.task_id}, found {shown(declared)}: say "
                f"which one with .result({next(iter(producer.outputs), name)!r})",
                code="input-names-no-output",
            )
    return {
        name: declared
        if isinstance(declared, OutputReference)
        else check_location(declared, f"{task_id}: input {name!r}", to_read=True, tables=True)
        for name, declared in inputs.items()
    }


def assets_in(inputs: object) -> list[Any]:
    """The assets of Airflow among declared inputs, which are the task's inlets."""
    from airflow_recovery.airflow_compat import Asset, AssetRef

    declared = inputs.values() if isinstance(inputs, Mapping) else ()
    return [each for each in declared if isinstance(each, (Asset, AssetRef))]


def _without_asset(task_id: str, name: str, declared: object) -> object:
    """An asset of Airflow, or a reference to one, as the text that stands for it; any other input as it is."""
    from airflow_recovery.airflow_compat import Asset, AssetRef, BaseAsset

    if isinstance(declared, (Asset, AssetRef)):
        return AssetLocation(getattr(declared, "name", ""), getattr(declared, "uri", "")).uri
    if isinstance(declared, BaseAsset):
        raise JobDefinitionError(
            f"{task_id}: input {name!r}: expected one asset, as Asset(...) or Asset.ref(...), found {shown(declared)}: "
            "declare each asset as an input of its own",
            code="input-of-several-assets",
            input=name,
        )
    return declared


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
            place, other_place = place_of(uri), place_of(other_uri)
            if place.startswith(other_place) or other_place.startswith(place):
                raise JobDefinitionError(
                    f"{task_id}: output {name!r} at {uri} overlaps with output {other_name!r} of {other} at "
                    f"{other_uri}: each would take what the other writes for an alteration, and one would overwrite "
                    "the other. Give them folders beside each other, or no URI: each attempt then gets its own.",
                    code="outputs-overlap",
                    task=task_id,
                    output=name,
                    other_task=other,
                    other_output=other_name,
                )


def check_read_and_written(
    task_id: str,
    inputs: Mapping[str, OutputReference | str],
    outputs: Mapping[str, str | None],
    commit: CommittingSink | None,
    made_at: Mapping[str, str | None],
    *,
    is_rendered: bool,
) -> None:
    """Raise `JobDefinitionError` if the task reads what it writes, and the state before its writing can't be pinned.

    A table can be: its version before the task's own commits is read. A folder has no versions. ``made_at``: where the
    producers of the inputs declare what is read, by input. Before ``is_rendered``, templates are compared as written.
    """
    written = {f"output {name!r}": uri for name, uri in outputs.items() if isinstance(uri, str)}
    target = None if commit is None else commit.table_uri()
    if target is not None:
        written["commit="] = target
    for name, declared in inputs.items():
        is_reference = isinstance(declared, OutputReference)
        read = made_at.get(name) if isinstance(declared, OutputReference) else declared
        for what, uri in written.items():
            if not isinstance(read, str) or is_stated(read) or not _overlap(read, uri, is_rendered=is_rendered):
                continue
            if is_reference:
                raise JobDefinitionError(
                    f"{task_id}: input {name!r} is made at {read}, and {what} writes to {uri}: two tasks would write "
                    "to one place, and each would replace the other's data. Write to another place, or let one task "
                    "do both"
                )
            if is_table(read) and is_table(uri) and place_of(read) == place_of(uri):
                continue
            raise JobDefinitionError(
                f"{task_id}: reads {read} as input {name!r}, and writes to {uri} ({what}): expected two places apart, "
                "or one Delta or Iceberg table as both. A folder keeps no versions, so a second attempt would read "
                "what the first one has written, and apply itself twice. Give each date a folder of its own "
                "(.../day={{ ds }}) and read that of the date before, or declare both as the table "
                "(delta+<folder>): then the version before the task's own commits is read",
                code="reads-what-it-writes",
                task=task_id,
                input=name,
            )


def _overlap(read: str, written: str, *, is_rendered: bool) -> bool:
    """Whether one lies inside the other, or a glob that is read may list what is written."""
    place, other = place_of(read, resolve=is_rendered), place_of(written, resolve=is_rendered)
    is_template = is_known_later(read) or is_known_later(written)
    if is_template or is_table(read) or other.startswith(ICEBERG):
        return place.startswith(other) or other.startswith(place)
    return may_list(place, other)


def place_of(uri: str, *, resolve: bool = False) -> str:
    """The folder of a location, or an Iceberg table's branch, in one spelling that ends with a slash.

    A Delta table is where its folder is. ``resolve``: follow symbolic links of this machine; else no I/O.
    """
    if uri.startswith(ICEBERG) and not is_known_later(uri):
        table = TableLocation.parse(uri)
        return f"{ICEBERG}{table.catalog}/{table.name}?branch={table.branch_name}/"
    folder = uri.removeprefix(DELTA)
    if uri.startswith(DELTA) and not is_known_later(uri):
        folder = TableLocation.parse(uri).name
    root, path = split_uri(folder) if scheme_of(folder) is not None else ("file:", comparable(folder))
    if root == "file:" and not path.startswith("file:"):
        return f"{folder}/"  # a template from its first letter
    path = "/".join(piece for piece in path.removeprefix("file:").split("/") if piece)
    if resolve and root == "file:":
        path = os.path.realpath(f"/{path}").lstrip("/")
    return f"{root}/{path}/" if path else f"{root}/"


def written_by(inputs: Mapping[str, OutputReference | str], others: Mapping[str, Collection[str]]) -> set[str]:
    """The tasks of the DAG that write where one of ``inputs`` is read by its URI.

    ``others``: by task id, the places that a task writes to. An input may be a glob; one ``as_of`` is older than what
    is written. Templates are compared as they are written.
    """
    read = [
        each.split("/")
        for declared in inputs.values()
        if isinstance(declared, str)
        and not is_published(declared)
        and not is_stated(declared)
        and not (is_table(declared) and "as_of=" in declared)
        for each in _patterns(declared)
    ]
    return {
        task_id
        for task_id, places in others.items()
        for place in places
        if any(_may_meet(segments, _place(place).rstrip("/").split("/")) for segments in read)
    }


def _patterns(declared: str) -> list[str]:
    """What is read, without alternatives that have slashes. A table's folder is no pattern."""
    if is_table(declared):
        return [escaped(_place(declared.partition("?")[0]).rstrip("/"))]
    place = _place(declared).rstrip("/")
    return [place] if is_template(place) else alternatives(place)


def _may_meet(read: Sequence[str], written: Sequence[str]) -> bool:
    """Whether one of the two places, of which ``read`` may be a glob, may lie in the other."""
    return all(
        one == other or ("{{" not in one and matcher(one).fullmatch(other) is not None)
        for one, other in zip(read, written, strict=False)
    )


def outputs_of(dag: Any, but: str = "") -> dict[str, dict[str, str | None]]:
    """Where the DAG's operators and declared jobs so far write at places of the user's own: by task or vertex, by name.

    ``but``: not those of that task, or of that task group.
    """
    if dag is None:
        return {}
    found = {
        task.task_id: task.outputs
        for task in dag.task_dict.values()
        if task.task_id != but and hasattr(task, "declared_outputs")
    }
    for group in dag.task_group.get_task_group_dict().values():
        if group.group_id != but:
            found.update({where: {"table=": table} for where, table in getattr(group, "tables", {}).items()})
    return found


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


def over_other_runs(value: Any) -> list[str]:
    """What in the templates of ``value`` is known by the states of other runs: Airflow's names, sorted."""
    return sorted({match[0] for text in _texts(value) if is_template(text) for match in _OF_OTHER_RUNS.finditer(text)})


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
            raise JobDefinitionError(
                f"argument {match.string!r}: {match[0]} is not declared; there are {known}.",
                code="placeholder-unknown",
                found=match[0],
            )
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
    known |= {("checkpoint", name) for name in managed}
    every = {("output", ALL)} if managed else set()
    for kind, name in sorted(used):
        if kind == "checkpoint" and outputs.get(name) is not None:
            raise JobDefinitionError(
                f"{task_id}: {{checkpoint:{name}}} is a folder of the attempt, and output {name!r} stays at "
                f"{outputs[name]}: a second attempt would begin the stream anew and write its rows again. Keep both: "
                "give the query a checkpoint at a location of its own; or keep neither: name the output without a URI",
                code="checkpoint-without-output",
                output=name,
            )
    unknown = sorted(f"{{{kind}:{name}}}" for kind, name in used - known - every)
    where = " or ".join(fields)
    doubled = None if is_rendered else _first_doubled(fields)
    if doubled is not None:
        raise JobDefinitionError(
            f"{task_id}: expected {{{doubled[1]}}} in {where}, found {doubled[0]}: two braces are a template of "
            "Airflow's, which knows no such name. Write it with one",
            code="placeholder-doubled",
        )
    if unknown:
        raise JobDefinitionError(
            f"{task_id}: {', '.join(unknown)} in {where} stands for nothing; declared are "
            f"{', '.join(sorted(f'{{{kind}:{name}}}' for kind, name in known))}.",
            code="placeholder-in-vain",
            task=task_id,
        )
    if not is_rendered and any(_comes_later(value, tuple(template_files)) for value in fields.values()):
        return
    for name in sorted(managed):
        if not used & {("output", name), *every}:
            raise JobDefinitionError(
                f"{task_id}: output {name!r} is managed, and the application is never told where to write "
                f"it: put {{output:{name}}} into {where}, or give its own URI in outputs.",
                code="output-never-told",
                task=task_id,
                output=name,
            )
    for name in sorted(tables_read):
        if ("version", name) not in used:
            raise no_version(task_id, name, where)
    if written and not marks_commits and not any(kind == "token" for kind, _ in used):
        name = min(written)
        raise JobDefinitionError(
            f"{task_id}: output {name!r} is a table, and the application is never told with which token to commit: put "
            f"{{token:{name}}} into {where}, and have its commit carry it (docs/tables.md).",
            code="token-never-told",
        )


def check_settings(
    task_id: str,
    fields: Mapping[str, Any],
    outputs: Mapping[str, str | None],
    application: Path | None,
) -> None:
    """Raise `JobDefinitionError` if settings are seen that can't go with the outputs as they are declared.

    ``fields``: all that the job is given. ``outputs`` as declared, before Airflow has rendered them. ``application``:
    the job's Python file, if it is one of this machine.

    - A checkpoint at a location of its own, and a managed output without ``{checkpoint:name}``: the checkpoint goes on
      behind what an earlier attempt has read, and the output begins anew.
    - Partitions that are replaced one by one in a folder that is the same for all dates: each date alters the result
      of all others.
    """
    told = placeholders(list(fields.values()))
    managed = [name for name, uri in outputs.items() if uri is None and ("checkpoint", name) not in told]
    seen = fixed_checkpoint(fields, application) if managed else None
    if seen is not None:
        name = managed[0]
        raise JobDefinitionError(
            f"{task_id}: expected the checkpoint of a stream at {{checkpoint:{name}}}, since output {name!r} is "
            f"managed, found {seen}: the checkpoint goes on behind what an earlier attempt has read, and each attempt "
            f"writes to a new folder, so rows would be missing there. Give the query {{checkpoint:{name}}} as its "
            "checkpoint; or give the output a URI of its own, which the checkpoint belongs to; or say idempotent=True "
            "if this is no such checkpoint",
            code="checkpoint-not-of-attempt",
            task=task_id,
            output=name,
        )
    shared = [(name, uri) for name, uri in outputs.items() if uri is not None and _is_for_all_dates(uri)]
    seen = dynamic_overwrite(fields, application) if shared else None
    if seen is not None:
        name, uri = shared[0]
        raise JobDefinitionError(
            f"{task_id}: expected a folder for each date as output {name!r}, since its partitions are replaced one by "
            f"one ({seen}), found {uri}, to which all dates write: each date would alter what the others have "
            f"registered, and none could run again. Declare the date's own partition, {date_folder(uri)}, and let the "
            "application write there; or declare a Delta or Iceberg table; or say idempotent=True if only one run ever "
            "writes there",
            code="partitions-of-all-dates",
            task=task_id,
        )


def _is_for_all_dates(uri: str) -> bool:
    """A folder in whose location nothing depends on the run: no template but for variables and connections."""
    return not (is_table(uri) or may_become_table(uri) or is_template(_OF_THE_DEPLOYMENT.sub("", uri)))


def date_folder(uri: str) -> str:
    """How a folder of each date is written, below one that all dates share."""
    return f"{uri.rstrip('/')}/day={{{{ ds }}}}"


def may_become_table(uri: object) -> bool:
    """Whether nobody knows of a location, before Airflow has put something in, that it is no table."""
    return is_known_later(uri) and not (isinstance(uri, str) and uri.partition("{")[0])


def no_version(task_id: str, name: str, where: str) -> JobDefinitionError:
    """The error for a job that would read whatever is the newest snapshot of its input ``name``."""
    return JobDefinitionError(
        f"{task_id}: input {name!r} is a table, and the application is never told which snapshot to read: put "
        f"{{version:{name}}} into {where}, and have it read that one, whatever is newer.",
        code="version-never-told",
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
