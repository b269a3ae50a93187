"""Draws the rooms of `airflow_recovery.rooms` into docs/architecture.md: `python -m scripts.rooms_picture`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_recovery.rooms import ANNEX_ROOMS, ROOMS, Room, reachable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: begin -->\n", "<!-- rooms: end -->\n"
_LONE = frozenset({"__init__", "__main__", "get_provider_info", "version", "rooms"})
"""Modules at the top of the package that are no rooms."""


def floors(rooms: Mapping[str, Room]) -> list[list[str]]:
    """The rooms from the ground up. A room stands above all that it may import, and as low as that lets it."""
    level: dict[str, int] = {}
    for name, room in rooms.items():
        level[name] = 1 + max((level[name] for name in room.may_import if name in level), default=-1)
    return [[name for name in rooms if level[name] == floor] for floor in range(max(level.values()) + 1)]


def picture(rooms: Mapping[str, Room]) -> str:
    """One row a room, the highest floor first. A room that another one leads to is left out of what it stands on."""
    shown = {name: room for name, room in rooms.items() if name not in _LONE}
    lines = ["| floor | room | what it is for | stands on | |", "| --- | --- | --- | --- | --- |"]
    for floor, names in reversed(list(enumerate(floors(shown)))):
        for name in names:
            room = shown[name]
            below = [f"`{text}`" for text in _nearest(shown, name)]
            marks = ("pure", room.is_pure), ("knows Airflow", room.knows_airflow), ("an annex", name in ANNEX_ROOMS)
            holding = ", ".join(mark for mark, holds in marks if holds)
            lines.append(f"| {floor} | `{name}` | {room.task} | {', '.join(below)} | {holding} |")
    return "\n".join(lines) + "\n"


def _nearest(rooms: Mapping[str, Room], name: str) -> list[str]:
    below = [text for text in rooms[name].may_import if text in rooms]
    led_to = {name for other in below for name in reachable(*rooms[other].may_import)}
    return [text for text in below if text not in led_to]


def drawn_into(page: str, rooms: Mapping[str, Room]) -> str:
    """The page with today's picture in it."""
    before, text, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (text and ended):
        raise ValueError(f"{PAGE.name}: expected the marks {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{picture(rooms)}\n{END}{after}"


def main() -> int:
    """Write the table of rooms into docs/architecture.md."""
    PAGE.write_text(drawn_into(PAGE.read_text(encoding="utf-8"), ROOMS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
