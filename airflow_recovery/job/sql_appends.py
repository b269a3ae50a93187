"""Whether a text of SQL appends to a table. Run a second time, it writes a second time (fault 80).

Texts are taken apart into words, strings and signs, so that comments and strings decide nothing. This is no parser: a
statement is known by its first words and by what it sets. The texts may be the pieces of an f-string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

_TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))"
    r"|(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|`(?P<quoted>(?:[^`]|``)*)`"
    r"|(?P<open>['\"`].*)"
    r"|(?P<word>\w+)"
    r"|(?P<sign>\|\||[^\w\s])",
    re.DOTALL,
)
_WORTH_IT = re.compile(r"\b(?:insert|load|merge|update|copy|set)\b", re.IGNORECASE)
_READS_ONLY = frozenset({"explain", "describe", "desc", "set", "reset"})
_BEFORE_A_STATEMENT = frozenset({"begin", "then", "else", "do", "loop", "repeat"})
"""Words of SQL scripts after which a statement begins. MERGE and CASE have ``then`` or ``else`` too: `_is_of_merge`."""
_OF_ROWS = frozenset({"select", "values", "table", "from", "with", "("})
_SIGNS = frozenset({"+", "-", "*", "/", "%", "||", "^", "~", "!", "not", "div"})
_COMBINES = re.compile(r"concat\w*|array_\w+|map_\w+|list_append")
_ADDS = "MERGE or UPDATE that adds to what is there"

Tokens = Sequence[str]
"""Words in small letters, strings with their quotes, and signs."""


def how_sql_appends(texts: Iterable[str]) -> str | None:
    """Return how ``texts`` append, as words for a message; `None` if no append is seen."""
    pieces = [tokens for text in texts if _WORTH_IT.search(text) for tokens in _readings(text)]
    statements = [statement for piece in pieces for statement in _statements(piece)]
    for statement in statements:
        if found := _how_it_appends(statement):
            return found
    changing = [targets for statement in statements if (targets := _changed(statement)) is not None]
    # The names of the table may be in another piece than what is set.
    if any(_adds_to_itself(piece, targets) for targets in changing for piece in pieces):
        return _ADDS
    return None


def _readings(text: str) -> Iterator[Tokens]:
    """The tokens of ``text``. If a quote is left over, also those behind it, for pieces of f-strings."""
    for start in (0, 1 + min((at for at in map(text.find, "'\"") if at >= 0), default=-1)):
        tokens, is_whole = _tokens(text[start:])
        yield tokens
        if is_whole:
            return


def _tokens(text: str) -> tuple[Tokens, bool]:
    """The tokens, and whether every quote is closed."""
    found: list[str] = []
    is_whole, at = True, 0
    while match := _TOKEN.match(text, at):
        at = match.end()
        if match.group().startswith("/*"):
            at = _end_of_comment(text, match.start())
        elif match["open"]:
            is_whole = False
        elif not match["skip"]:
            is_string = match["string"] is not None
            found.append(match.group() if is_string else (match["quoted"] or match.group()).lower())
    return found, is_whole


def _end_of_comment(text: str, start: int) -> int:
    """Comments of Spark may hold comments."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return start + mark.end()
    return len(text)


def _statements(tokens: Tokens) -> Iterator[Tokens]:
    """Cut at semicolons, and within a script where another statement may begin."""
    start = 0
    for at, token in enumerate((*tokens, ";")):
        begins = token in _BEFORE_A_STATEMENT and tokens[at + 1 : at + 2] != ["set"] and not _is_of_merge(tokens, at)
        if token == ";" or begins:
            yield tokens[start:at]
            start = at + 1


def _is_of_merge(tokens: Tokens, at: int) -> bool:
    """``then`` of a MERGE or of a CASE, and ``else`` of a CASE, begin nothing."""
    following = tokens[at + 1 : at + 3]
    starts = following[:1] in (["update"], ["merge"], ["insert"], ["load"], ["copy"], ["begin"], ["with"])
    return not starts or following[1:] in (["set"], ["*"], ["("])


def _how_it_appends(statement: Tokens) -> str | None:
    first = statement[:2]
    if not first or first[0] in _READS_ONLY:
        return None
    if first == ["execute", "immediate"]:
        return how_sql_appends(token[1:-1] for token in statement if token[0] in "'\"")
    if first == ["load", "data"] and "overwrite" not in statement:
        return "LOAD DATA"
    if first == ["copy", "into"] and re.search(r"'?force'?\s*=\s*'?true", " ".join(statement), re.IGNORECASE):
        return "COPY INTO with force, which loads files again"
    if first[0] == "copy" and ("from", "stdin") in pairwise(statement):
        return "COPY FROM STDIN"
    for at in range(len(statement) - 1):
        if statement[at] == "insert" and statement[at + 1] == "into" and not _replaces(statement[at + 2 :]):
            return "INSERT INTO"
    if _is_merge(statement) and _matches_nothing(statement):
        return "MERGE that matches nothing, and inserts"
    return None


def _replaces(tokens: Tokens) -> bool:
    """``REPLACE WHERE`` and its kin stand before the rows; ``ON CONFLICT`` of other databases stands after them."""
    depth = 0
    for at, token in enumerate(tokens):
        following = tokens[at + 1 : at + 2]
        if not depth and token == "replace" and following[:1] in (["where"], ["using"], ["on"]):
            return True
        if not depth and token in _OF_ROWS - {"("} and at:
            break
        depth += (token == "(") - (token == ")")
    text = " ".join(tokens)
    return " on conflict " in text or " on duplicate key " in text


def _is_merge(statement: Tokens) -> bool:
    return "merge" in statement and "into" in statement[statement.index("merge") :]


def _matches_nothing(statement: Tokens) -> bool:
    condition = statement[statement.index("on") + 1 :] if "on" in statement else []
    if condition[:1] == ["false"]:
        return True
    return (
        condition[1:2] == ["="] and condition[0].isdigit() and condition[2].isdigit() and condition[0] != condition[2]
    )


def _changed(statement: Tokens) -> frozenset[str] | None:
    """The names of the table that MERGE or UPDATE changes; `None` for other statements."""
    if statement[:1] == ["update"]:
        named = statement[1:]
    elif _is_merge(statement):
        named = statement[statement.index("into", statement.index("merge")) + 1 :]
    elif statement[:1] == ["insert"] and "conflict" in statement:
        named = statement[2:]
    else:
        return None
    until = next((at for at, token in enumerate(named) if token in ("using", "set", "(")), len(named))
    names = [token for token in named[:until] if token.isidentifier() and token != "as"]
    return frozenset(names[-2:])


def _adds_to_itself(tokens: Tokens, targets: frozenset[str]) -> bool:
    """Whether a column is set to what it was before, combined with something: ``n = t.n + s.n``."""
    return any(
        _combines(column, value, targets)
        for at, token in enumerate(tokens)
        if token == "set"
        for column, value in _assignments(tokens[at + 1 :])
    )


def _assignments(tokens: Tokens) -> Iterator[tuple[Tokens, Tokens]]:
    assigned: list[str] = []
    depth = 0
    for token in (*tokens, ";"):
        depth += (token in ("(", "case")) - (token in (")", "end"))
        is_end = not depth and token in ("when", "where", ";")
        if is_end or (not depth and token == ","):
            if "=" in assigned:
                at = assigned.index("=")
                yield assigned[:at], assigned[at + 1 :]
            assigned = []
        else:
            assigned.append(token)
        if is_end:
            return


def _combines(column: Tokens, value: Tokens, targets: frozenset[str]) -> bool:
    if not column:
        return False
    name, qualifier = column[-1], column[-3] if column[-2:-1] == ["."] else ""
    read = {
        value[at - 2] if value[at - 1 : at] == ["."] and at > 1 else ""
        for at, token in enumerate(value)
        if token == name and value[at + 1 : at + 2] != ["("]
    }
    is_itself = any(not one or one == qualifier or one in targets for one in read) or len(read) > 1
    return is_itself and any(token in _SIGNS or _COMBINES.fullmatch(token) for token in value)
