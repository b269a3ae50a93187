"""docs/fingerprint.md shows the tables as the code that makes fingerprints has them."""

from __future__ import annotations

import re

import pytest

from airflow_recovery.job import row_settings
from scripts import fingerprint_page
from scripts.fingerprint_page import PAGE, tables
from scripts.generated_tables import drawn_into

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_code() -> None:
    assert drawn_into(TEXT, tables()) == TEXT, "run: python -m scripts.fingerprint_page"


@pytest.mark.control
def test_control_another_table_is_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint_page, "DO_NOT_CHANGE_ROWS", (("a reason", ("spark.a",)),))
    assert drawn_into(TEXT, tables()) != TEXT


def test_the_settings_that_the_page_gives_as_examples_count() -> None:
    paragraph = TEXT.partition("All others count, for example ")[2].partition("\n\n")[0]
    named = re.findall(r"`(spark\.[\w.]+?)\.?\*?`", paragraph)
    assert named
    assert all(row_settings.changes_rows(name) for name in named)
