"""The pictures of the docs are those that these tests take (`--screenshots docs/screenshots`), and no others."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


def test_every_picture_of_the_docs_is_taken_by_a_test_and_shown_on_a_page() -> None:
    kept = {path.stem for path in (DOCS / "screenshots").iterdir()}
    taken = {name for path in HERE.glob("test_*.py") for name in re.findall(r'shoot\(f?"([^"]+)"\)', path.read_text())}
    shown = {
        name for path in DOCS.glob("*.md") for name in re.findall(r"screenshots/([\w-]+)\.png\)", path.read_text())
    }

    assert kept == shown
    assert shown <= taken
