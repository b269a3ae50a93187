"""Which paths a pattern of files matches: the grammar of Hadoop's ``FileSystem.globStatus``, by which Spark reads.

See docs/patterns.md. Held against Hadoop itself by ``tests/task/test_hadoop_globs.py``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

MOST_ALTERNATIVES = 1000
"""Each pair of braces multiplies them, and a user who triggers a DAG may choose a part of the pattern."""
_SPECIAL = re.compile(r"[*?\[{\\]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_NOT_IN_CLASS = frozenset("*?[{},\\/")
_MAY_BE_ESCAPED = tuple("*?[]{},\\")
_PLACEHOLDER = "x"
_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def is_glob(text: str) -> bool:
    """Whether ``text`` may match other names than itself, or is written with ``\\``."""
    return _SPECIAL.search(text) is not None


def escaped(text: str) -> str:
    """The pattern that matches ``text`` alone."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", text)


def literal_start(segment: str) -> str:
    """What every name begins with that ``segment`` matches."""
    return _SPECIAL.split(segment, maxsplit=1)[0]


def alternatives(pattern: str) -> list[str]:
    """``pattern`` as patterns without a ``/`` inside of braces: ``{a/b,c}/*`` is ``a/b/*`` and ``c/*``.

    Raises `ValueError` for a brace without its other half, and for more than `MOST_ALTERNATIVES`.
    """
    found: list[str] = []
    left = [pattern]
    while left:
        each = left.pop()
        braces = _braces_with_slash(each)
        if braces is not None:
            start, end, pieces = braces
            left += [f"{each[:start]}{piece}{each[end + 1 :]}" for piece in reversed(pieces)]
        elif len(found) < MOST_ALTERNATIVES:
            found.append(each)
        else:
            raise ValueError(f"expected braces with at most {MOST_ALTERNATIVES} alternatives in all, found more")
    return list(dict.fromkeys(found))


@lru_cache(maxsize=1024)
def matcher(segment: str) -> re.Pattern[str]:
    """A regular expression of all names that ``segment``, which lies between two slashes, matches as a whole.

    Raises `ValueError` for what Hadoop refuses, and for what it reads in a way that nobody would expect.
    """
    _check_escapes(segment)
    if not _SPECIAL.search(_ESCAPED.sub("", segment)):
        return re.compile(re.escape(_ESCAPED.sub(r"\1", segment)))
    out, depth, at = [], 0, 0
    while at < len(segment):
        char = segment[at]
        if char == "\\":
            at += 1
            out.append(re.escape(segment[at]))
        elif char == "[":
            end = segment.find("]", at + 1)
            out.append(_character_class(segment[at : end + 1] if end > 0 else segment[at:]))
            at = end
        elif char == "{":
            depth += 1
            out.append("(?:")
        elif char == "}" and depth:
            depth -= 1
            out.append(")")
        elif char == "," and depth:
            out.append("|")
        else:
            out.append({"*": ".*", "?": "."}.get(char) or re.escape(char))
        at += 1
    if depth:
        raise ValueError(f"expected a '}}' for each '{{', found {segment!r}")
    return re.compile("".join(out), re.DOTALL)


def check_glob(pattern: str) -> None:
    """Raise `ValueError` where `alternatives` or `matcher` would for ``pattern``, a location without a scheme.

    A template stands for some name.
    """
    if "{%" in pattern:
        return
    for each in alternatives(_TEMPLATE.sub(_PLACEHOLDER, pattern)):
        for segment in each.split("/"):
            matcher(segment)


def _check_escapes(text: str) -> None:
    for escape in re.findall(r"\\.?", text, re.DOTALL):
        if escape[1:] not in _MAY_BE_ESCAPED:
            raise ValueError(
                f"expected a '\\' before one of {' '.join(_MAY_BE_ESCAPED)} alone, found {escape!r} in {text!r}: write "
                "'\\\\' for a backslash"
            )


def _character_class(text: str) -> str:
    """The class ``text``, from its ``[`` to its ``]``, as a regular expression."""
    is_negated = text[1:2] in ("!", "^")
    inner = text[2 if is_negated else 1 : -1]
    if not text.endswith("]") or not inner:
        raise ValueError(f"expected characters between '[' and ']', found {text!r}: write '\\[' for a bracket")
    if unfit := sorted(_NOT_IN_CLASS.intersection(inner)):
        raise ValueError(
            f"expected a class without any of {' '.join(sorted(_NOT_IN_CLASS))}, found {unfit[0]!r} in {text!r}: "
            "Hadoop gives them another meaning there. Write alternatives: {\\[,a}"
        )
    try:
        return re.compile(f"[{'^' if is_negated else ''}{_regex_class(inner)}]").pattern
    except re.error:
        raise ValueError(f"expected a range from the lower character to the higher one, found {text!r}") from None


def _regex_class(inner: str) -> str:
    """``-`` between two characters is a range, any other character stands for itself."""
    return re.sub(r"[\^&~|]", r"\\\g<0>", inner)


def _braces_with_slash(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first outermost braces in which there is a ``/``: where they begin and end, and what lies between commas."""
    depth, start, has_slash, at = 0, 0, False, 0
    commas: list[int] = []
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "{":
            if not depth:
                start, has_slash, commas = at, False, []
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if not depth and has_slash:
                if "\\" in pattern[start:at]:
                    raise ValueError(
                        f"expected braces without a '\\' or without a '/', found {pattern[start : at + 1]!r}"
                    )
                edges = [start, *commas, at]
                return start, at, [pattern[one + 1 : other] for one, other in pairwise(edges)]
        elif char == "/" and depth:
            has_slash = True
        elif char == "," and depth == 1:
            commas.append(at)
        at += 1
    if depth:
        raise ValueError(f"expected a '}}' for each '{{', found {pattern!r}")
    return None
