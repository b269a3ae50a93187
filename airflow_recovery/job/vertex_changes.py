"""Two versions of a vertex: what is different of what its fingerprint is taken of, in words.

A description is made where the code of one version is imported, and travels as JSON to where two are compared. Its
parameters are as they were declared: a template stands for itself, whatever it comes to in a run.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_recovery.job.code_closure import ORDER
from airflow_recovery.job.declaration import Job
from airflow_recovery.job.fingerprint import JobCode, vertex_document
from airflow_recovery.job.templates import names_used

KNOWN_OF_A_RUN = frozenset({"ds", "ds_nodash", "logical_date", "ts", "subtask", "dict", "namespace", "range"})
"""The names in a template whose values the name of a run's journal tells."""

_NOT_TOLD = frozenset({"code", "vertex"})
_WORDS = {
    "assignment": "assignment=",
    "commit": "commit=",
    "coordinator": "coordinator=",
    "inputs": "inputs=",
    "job_version": "the job's version=",
    "kind": "kind",
    "parallelism": "parallelism=",
    "result": "result=",
    "split_wise": 'commit="split"',
    "splits": "splits=",
    "version": "version=",
}


def describe_vertex(job: Job, vertex: str, code_of: JobCode, lines: dict[str, Any]) -> dict[str, Any]:
    """JSON values: ``document``, what the fingerprint is of; ``units``, the code; ``unknown``, see `unknown_names`.

    ``code_of``: the code of the whole job. ``lines``: takes the lines of units, which vertices share; `with_lines` puts
    them back. Raises `FingerprintError` as `vertex_fingerprint`.
    """
    units = code_of.units(vertex)
    code = [[unit.module, unit.name, unit.digest] for unit in units]
    declared = job.vertex_named(vertex)
    for unit in units:
        if (key := _lines_key(unit.path, unit.name, unit.digest)) not in lines:
            lines[key] = [list(line) for line in unit.lines]
    return {
        "document": vertex_document(job, vertex, declared.params, code=code),
        "unknown": unknown_names(declared.params),
        "function": declared.function.__name__,
        "units": [
            {
                "module": unit.module,
                "name": unit.name,
                "digest": unit.digest,
                "path": unit.path,
                "used_by": None if unit.used_by is None else list(unit.used_by),
            }
            for unit in units
        ],
    }


def with_lines(described: Mapping[str, Any], lines: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `describe_vertex` has returned, with the lines of each unit."""
    units = [
        {"lines": lines.get(_lines_key(unit["path"], unit["name"], unit["digest"]), []), **unit}
        for unit in described.get("units", ())
    ]
    return {**described, "units": units}


def _lines_key(path: str, name: str, digest: str) -> str:
    return f"{path} {name} {digest}"


def unknown_names(params: Mapping[str, Any]) -> list[str]:
    """What templates in ``params`` name whose values a run's journal does not tell: ``conf``, ``params``, intervals."""
    return sorted(names_used(params) - KNOWN_OF_A_RUN)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the two descriptions of one vertex have other fingerprints, the vertex's function first; nothing: equal."""
    before, after = old["document"], new["document"]
    reasons = list(_code_differences(old, new)) if before.get("code") != after.get("code") else []
    for key in sorted({*before, *after} - _NOT_TOLD):
        was, has = before.get(key), after.get(key)
        if was == has:
            continue
        if isinstance(was, Mapping) and isinstance(has, Mapping):
            what = "parameter" if key == "params" else key
            reasons += [
                f"{what} {name} was {_shown(was, name)}, now {_shown(has, name)}"
                for name in sorted({*was, *has})
                if was.get(name, ...) != has.get(name, ...)
            ]
        else:
            reasons.append(f"{_WORDS.get(key, key)} was {_value(was)}, now {_value(has)}")
    return tuple(reasons)


def _code_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    if "fingerprint" in new:  # an operator, whose code is files
        was, has = ({name: value for name, value, _ in each["document"].get("code", ())} for each in (old, new))
        for name in sorted({*was, *has}):
            if was.get(name) != has.get(name):
                yield f"{name} was {_value(was.get(name))}, now {_value(has.get(name))}"
        return
    before = {(unit["module"], unit["name"]): unit for unit in old["units"]}
    after = {(unit["module"], unit["name"]): unit for unit in new["units"]}
    changed = [
        key for key in after if key in before and before[key]["digest"] != after[key]["digest"] and key[1] != ORDER
    ]
    root = f"{new['function']}()"
    # What a changed piece now uses, or does not any more, follows from its own change.
    followed = [key for key in {**before, **after} if (key in before) is not (key in after)]
    ordered = sorted(changed, key=lambda key: (after[key]["used_by"] is not None, key))
    for key in ordered:
        yield f"{_route(root, after, key)} {_where(before[key], after[key])}"
    if not ordered:
        for key in sorted(followed):
            how = "uses" if key in after else "does not use"
            yield f"{root} now {how} {_name(key)}{_at((after if key in after else before)[key])}"
        if not followed:
            yield f"{root}: definitions or imports of its modules are in another order"


def _route(root: str, units: Mapping[tuple[str, str], Any], key: tuple[str, str]) -> str:
    """``clean() calls tidy(), which calls normalise(), which``: from the vertex's function down to the piece."""
    path = [key]
    while (used_by := units[path[-1]]["used_by"]) is not None and (above := (used_by[0], used_by[1])) in units:
        if above in path:
            break
        path.append(above)
    names = [_name(piece) for piece in reversed(path)]
    if len(names) == 1:
        return names[0] if names[0] == root or not names[0].endswith("()") else f"{root}: {names[0]}"
    return f"{names[0]} uses " + ", which uses ".join(names[1:]) + ", which"


def _name(key: tuple[str, str]) -> str:
    module, name = key
    if not name:
        is_file = "/" in module
        return f"the {'file' if is_file else 'module'} {module}" if module else "the other code of its module"
    if name.endswith(" ->"):
        return f"{module}.{name.removesuffix(' ->')}"
    return name


def _where(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    lines = changed_lines(old["lines"], new["lines"])
    if not new["lines"]:
        return "changed"
    if not lines:
        return f"changed{_at(new)}, in what it imports or how it is decorated"
    return f"changed at {new['path']}:{_ranges(lines)}"


def _at(unit: Mapping[str, Any]) -> str:
    return f" at {unit['path']}:{unit['lines'][0][0]}" if unit["lines"] else ""


def changed_lines(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> list[int]:
    """The numbers of ``new``'s lines that differ, comments and empty lines aside; of what is gone, where it was."""
    was, now = [line[1] for line in old], [line[1] for line in new]
    numbers: list[int] = []
    for kind, first, last, start, end in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if all(_says_nothing(text) for text in (*was[first:last], *now[start:end])):
            continue
        numbers += [new[at][0] for at in range(start, end) if not _says_nothing(now[at])] or [
            new[min(start, len(new) - 1)][0]
        ]
    return numbers


def _says_nothing(line: str) -> bool:
    return not line.strip() or line.strip().startswith("#")


def _ranges(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _shown(values: Mapping[str, Any], name: str) -> str:
    return _value(values[name]) if name in values else "none"


def _value(value: Any) -> str:
    text = "none" if value is None else json.dumps(value, sort_keys=True)
    return text if len(text) <= 120 else f"{text[:117]}..."
