"""Tables of a page of docs that the code draws: each stands between two marks, ``begin`` and ``end`` of its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def drawn_into(text: str, tables: Mapping[str, str]) -> str:
    """Return ``text`` with these tables between their marks. Raises `ValueError` if a mark is missing."""
    for name, drawn in tables.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, rest = text.split(begin)
        text = f"{before}{begin}{drawn}{end}{rest.split(end)[1]}"
    return text


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
