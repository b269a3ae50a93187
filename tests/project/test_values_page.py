"""docs/values.md: its tables are those of the code."""

from __future__ import annotations

import pytest

from scripts import values_page
from scripts.generated_tables import drawn_into
from scripts.values_page import PAGE, tables

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_code() -> None:
    assert drawn_into(TEXT, tables()) == TEXT, "run: python -m scripts.values_page"


def test_control_another_rule_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values_page, "delta_takes", lambda kind, target: True)
    assert drawn_into(TEXT, tables()) != TEXT
