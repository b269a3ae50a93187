"""Draws the tables of docs/fingerprint.md from the code of fingerprints: `python -m scripts.fingerprint_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from airflow_recovery.job.row_settings import DO_NOT_CHANGE_ROWS, IMAGES
from airflow_recovery.task.code_places import ELSEWHERE_FIELDS
from airflow_recovery.task.operator_components import NOT_ROWS, PLACES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fingerprint.md"


def tables() -> dict[str, str]:
    """The generated part between each pair of marks, by the name in the marks."""
    settings = [(_names(names), reason) for reason, names in DO_NOT_CHANGE_ROWS]
    return {
        "settings": _table(("settings", "why they do not change rows"), settings),
        "images": f"{_names(IMAGES)}\n",
        "places": _table(("operator", "fields that do not count"), _by_operator(PLACES)),
        "arguments": f"{_names(sorted(NOT_ROWS))}\n",
        "services": f"{_names(ELSEWHERE_FIELDS)}\n",
    }


def drawn_into(text: str) -> str:
    """``text`` with all tables as the code has them today. Raises `ValueError` if a mark is missing."""
    for name, table in tables().items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, rest = text.split(begin)
        text = f"{before}{begin}{table}{end}{rest.split(end)[1]}"
    return text


def _by_operator(fields: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(f"`{path.rpartition('.')[2]}`", _names(names)) for path, names in sorted(fields.items())]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}*`" if name.endswith(".") else f"`{name}`" for name in names)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> int:
    """Draw the tables into the page."""
    PAGE.write_text(drawn_into(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
