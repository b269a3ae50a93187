"""docs/architecture.md shows the rooms as the one table has them, and names files that are there."""

from __future__ import annotations

import re
from dataclasses import replace

from airflow_recovery.rooms import MODES, ROOMS
from scripts.rooms_picture import PAGE, drawn_into, floors

TEXT = PAGE.read_text(encoding="utf-8")
MAIN_PATH = re.findall(r"^\| \d \| `(airflow_recovery/\S+\.py)` \|", TEXT, re.MULTILINE)


def test_the_picture_is_the_table() -> None:
    assert drawn_into(TEXT, ROOMS) == TEXT, "run: python -m scripts.rooms_picture"


def test_control_another_table_is_another_picture() -> None:
    altered = {**ROOMS, "planning": replace(ROOMS["planning"], may_import=("errors", "verify"))}
    assert drawn_into(TEXT, altered) != TEXT


def test_a_room_stands_above_all_that_it_may_import() -> None:
    stacked = floors(ROOMS)
    level = {name: floor for floor, names in enumerate(stacked) for name in names}
    assert level.keys() == ROOMS.keys()
    assert all(level[name] > level[each] for name, room in ROOMS.items() for each in room.may_import)


def test_the_main_path_is_six_files_from_the_declaration_to_the_driver() -> None:
    rooms = [each.split("/")[1] for each in MAIN_PATH]
    assert rooms == ["job", "planning", "journal", "planning", "attempt", "driver"]


def test_every_question_to_a_mode_is_in_the_table() -> None:
    rows = re.findall(r"^\| `\w+` \| `(\w+)` in `([\w/]+\.py)` \| .* \| `(\w+)\.py` \|$", TEXT, re.MULTILINE)
    package = PAGE.parents[1] / "airflow_recovery"
    code = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    asked = re.findall(r'(?:answers_of|all_answers)\([^")]*"(\w+)"', code)
    assert {answered_in for *_, answered_in in rows} == {"mode", *asked}, "see the table in 'The two modes'"
    for questions, path, answered_in in rows:
        assert f"class {questions}" in (package / path).read_text(encoding="utf-8"), questions
        assert any((package / mode / f"{answered_in}.py").is_file() for mode in MODES), answered_in
