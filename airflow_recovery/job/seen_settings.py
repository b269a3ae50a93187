"""What is seen of a job's settings: in the arguments of its operator, and in its Python file.

- A checkpoint of Structured Streaming at a location of its own: it outlives the attempts, so that a second attempt goes
  on behind what the first one has read.
- Dynamic partition overwriting: a write replaces its own partitions of a folder, and leaves those of other dates.
- Whether any setting of a name is written anywhere that a driver on this machine reads.

Nothing is run. But for the last, nothing is opened but the file: what a helper or a connection sets, nobody sees there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

_CHECKPOINT = r"[\w.\-]*check[-_]?point[\w.\-]*"
_LOCATION = r"(?:[a-z][a-z0-9+.\-]*://?|/)[^\s\"',;]*"
# From the begin of a word alone: else an argument of 200,000 letters is looked through once for each of them.
_OPTION = re.compile(
    rf"(?<![\w.\-])(?P<name>{_CHECKPOINT})[\"']?\s*[=:,\s]\s*[\"']?(?P<place>{_LOCATION})", re.IGNORECASE
)
_PATH = re.compile(
    rf"(?:^|[\s\"'=,])(?P<place>(?=[^\s\"',;]*/[._]?check[-_]?points?(?:/|\b)){_LOCATION})", re.IGNORECASE
)
_BOOKMARK = re.compile(r"job-bookmark-enable\b")
_DYNAMIC = re.compile(r"partitionOverwriteMode[\"']?\s*[=:,\s]\s*[\"']?dynamic\b", re.IGNORECASE)
_WORTH_READING = re.compile(rb"checkpoint|partitionOverwriteMode", re.IGNORECASE)
_MOST_MODULES = 200
OF_OURS = re.compile(r"\{(?:checkpoint|output|input):")


def fixed_checkpoint(fields: Any, application: Path | None = None) -> str | None:
    """Which argument, setting or line keeps a checkpoint outside of the attempts; `None` where none is seen.

    ``fields``: texts, lists and mappings, as an operator is given them. ``application``: the job's Python file.
    """
    text = _flat(fields)
    for match in (*_OPTION.finditer(text), *_PATH.finditer(text)):
        if not OF_OURS.search(match["place"]):
            return match[0].strip(" \t\n\"'=,")
    bookmark = _BOOKMARK.search(text)
    if bookmark is not None:
        return bookmark[0]
    for name, value in _settings_in(application):
        if re.fullmatch(_CHECKPOINT, name, re.IGNORECASE) and re.fullmatch(_LOCATION, value, re.IGNORECASE):
            return f"{name}={value} in {application}"
    return None


def dynamic_overwrite(fields: Any, application: Path | None = None) -> str | None:
    """Which argument, setting or line replaces partitions one by one; `None` where none is seen. As above."""
    match = _DYNAMIC.search(_flat(fields))
    if match is not None:
        return match[0]
    for name, value in _settings_in(application):
        if name.lower().endswith("partitionoverwritemode") and value.lower() == "dynamic":
            return f"{name}={value} in {application}"
    return None


def may_set(name: re.Pattern[str], application: Path, folders: Iterable[Path]) -> bool:
    """Whether a setting of this ``name`` may be set by a Python application, or by the files of these ``folders``.

    True also if that can't be seen: the application has another language or more modules than are read, or a file
    can't be read.
    """
    if application.suffix != ".py" or not application.is_file():
        return True
    modules = list(islice(application.parent.rglob("*.py"), _MOST_MODULES + 1))
    files = [*modules, *(path for folder in folders for path in (*folder.glob("*.xml"), *folder.glob("*.conf")))]
    try:
        return len(modules) > _MOST_MODULES or any(name.search(path.read_text(errors="replace")) for path in files)
    except OSError:
        return True


def _flat(value: Any) -> str:
    """All texts in one: a mapping's as ``name=value``, a list's one after the other."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}={_flat(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(_flat(item) for item in value)
    return ""


def _settings_in(application: Path | None) -> Iterator[tuple[str, str]]:
    """The names and values that are written out in a Python file: of calls, keyword arguments and mappings."""
    if application is None or application.suffix != ".py":
        return
    try:
        source = application.read_bytes()
        tree = ast.parse(source) if _WORTH_READING.search(source) else None
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call):
            yield from _texts(node.args[-2:-1], node.args[-1:])
            for keyword in node.keywords:
                if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
                    yield keyword.arg or "", keyword.value.value
        elif isinstance(node, ast.Dict):
            yield from _texts(node.keys, node.values)


def _texts(names: list[Any], values: list[Any]) -> Iterator[tuple[str, str]]:
    for name, value in zip(names, values, strict=False):
        if all(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in (name, value)):
            yield name.value, value.value
