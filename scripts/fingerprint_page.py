"""Draws the tables of docs/fingerprint.md from the code of fingerprints: `python -m scripts.fingerprint_page`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from airflow_recovery.job.configuration_files import FILES_THAT_DO_NOT_CHANGE_ROWS
from airflow_recovery.job.row_settings import DO_NOT_CHANGE_ROWS, IMAGES
from airflow_recovery.task.code_places import ELSEWHERE_FIELDS
from airflow_recovery.task.operator_components import NOT_ROWS, PLACES
from scripts.generated_tables import drawn_into, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fingerprint.md"


def tables() -> dict[str, str]:
    """The generated part between each pair of marks, by the name in the marks."""
    settings = [(_names(names), reason) for reason, names in DO_NOT_CHANGE_ROWS]
    return {
        "settings": table(("settings", "why they do not change rows"), settings),
        "files": table(
            ("files", "why they do not count"),
            [(_names(names), reason) for reason, names in FILES_THAT_DO_NOT_CHANGE_ROWS],
        ),
        "images": f"{_names(IMAGES)}\n",
        "places": table(("operator", "fields that do not count"), _by_operator(PLACES)),
        "arguments": f"{_names(sorted(NOT_ROWS))}\n",
        "services": f"{_names(ELSEWHERE_FIELDS)}\n",
    }


def _by_operator(fields: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(f"`{path.rpartition('.')[2]}`", _names(names)) for path, names in sorted(fields.items())]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}*`" if name.endswith(".") else f"`{name}`" for name in names)


def main() -> int:
    """Draw the tables into the page."""
    PAGE.write_text(drawn_into(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
