"""Dataclasses to JSON values and back: what is written, and what is refused, with what words."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import pytest

from airflow_recovery.model.codec import (
    ROW,
    Check,
    Id,
    Key,
    OrMinusOne,
    PathBelow,
    Positive,
    Unlike,
    flat,
    from_json,
    later,
    needed,
    to_json,
)


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclass(frozen=True)
class Shape:
    name: Id
    corners: tuple[Point, ...] = ()
    rows: tuple[Annotated[Point, ROW], ...] = ()
    colour: Colour = Colour.RED
    area: float | None = None
    tags: tuple[str, ...] = ()
    pair: tuple[str, int] | None = None
    sizes: Mapping[str, tuple[int, str | None]] = field(default_factory=dict)
    extra: Any = None
    is_closed: bool = needed(True)
    parent: Shape | None = later(None)
    edges: Annotated[tuple[str, ...], Key("sides")] = later(())


FULL = Shape(
    "square",
    (Point(0, 1), Point(2, 3)),
    (Point(4, 5),),
    Colour.BLUE,
    1.5,
    ("a", "b"),
    ("c", 6),
    {"d": (7, None)},
    {"e": [8]},
    False,
    Shape("outer"),
    ("n", "s"),
)
WRITTEN = {
    "name": "square",
    "corners": [{"x": 0, "y": 1}, {"x": 2, "y": 3}],
    "rows": [[4, 5]],
    "colour": "blue",
    "area": 1.5,
    "tags": ["a", "b"],
    "pair": ["c", 6],
    "sizes": {"d": [7, None]},
    "extra": {"e": [8]},
    "is_closed": False,
    "parent": {
        "name": "outer",
        "corners": [],
        "rows": [],
        "colour": "red",
        "area": None,
        "tags": [],
        "pair": None,
        "sizes": {},
        "extra": None,
        "is_closed": True,
    },
    "sides": ["n", "s"],
}


def test_a_value_is_written_field_by_field_and_read_back() -> None:
    assert to_json(FULL) == WRITTEN
    assert list(to_json(FULL)) == list(WRITTEN)
    assert from_json(Shape, json.loads(json.dumps(WRITTEN))) == FULL
    assert from_json(Shape, json.loads(json.dumps(WRITTEN)), exact=True) == FULL


def test_a_field_that_came_later_is_written_where_it_says_something() -> None:
    assert "parent" not in to_json(Shape("a"))
    assert from_json(Shape, to_json(Shape("a")), exact=True) == Shape("a")


def test_a_field_may_have_another_key_than_its_name() -> None:
    assert to_json(Shape("a", edges=("n",)))["sides"] == ["n"]
    assert from_json(Shape, {**to_json(Shape("a")), "edges": ["n"]}) == Shape("a")
    with pytest.raises(Unlike, match=r"Shape\.sides\[0\]: expected a text|Shape\.sides: expected a list of texts"):
        from_json(Shape, {**to_json(Shape("a")), "sides": [1]})


def test_a_key_of_a_newer_version_is_passed_over_and_a_missing_one_has_its_default() -> None:
    assert from_json(Shape, {"name": "a", "is_closed": True, "new": 1}) == Shape("a")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"x": 1}, "Point: expected an object with x, y, found 'none of y'"),
        (
            {"x": 1, "y": 2, "z": 3},
            r"Point: expected an object with exactly x, y \(where .*\), found \['x', 'y', 'z'\]",
        ),
    ],
)
def test_exact_allows_neither(value: object, said: str) -> None:
    with pytest.raises(Unlike, match=said):
        from_json(Point, value, exact=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "Shape.name: expected an id, found ''"),
        ({"name": "\ud800"}, "Shape.name: expected an id"),
        ({"name": 1}, "Shape.name: expected an id, found 1"),
        ({"corners": {}}, "Shape.corners: expected a list, found {}"),
        ({"corners": [{"x": 0, "y": 1}, 5]}, r"Shape.corners\[1\]: expected an object with x, y, found 5"),
        ({"corners": [{"x": 0}]}, r"Shape.corners\[0\]: expected an object with x, y, found 'none of y'"),
        ({"corners": [{"x": True, "y": 1}]}, r"Shape.corners\[0\].x: expected a number of at least 0, found True"),
        ({"corners": [{"x": 0, "y": -1}]}, r"Shape.corners\[0\].y: expected a number of at least 0, found -1"),
        ({"corners": [{"x": 0, "y": 1.0}]}, r"Shape.corners\[0\].y: expected a number of at least 0, found 1.0"),
        ({"rows": [[1]]}, r"Shape.rows\[0\]: expected a list of 2, found \[1\]"),
        ({"rows": [[1, "2"]]}, r"Shape.rows\[0\]\[1\]: expected a number of at least 0, found '2'"),
        ({"colour": "green"}, r"Shape.colour: expected a Colour, one of 'red', 'blue' \(where .*\), found 'green'"),
        ({"colour": ["red"]}, "Shape.colour: expected a Colour"),
        ({"area": "1"}, "Shape.area: expected a number, found '1'"),
        ({"area": True}, "Shape.area: expected a number, found True"),
        ({"tags": "ab"}, "Shape.tags: expected a list of texts, found 'ab'"),
        ({"tags": ["a", None]}, "Shape.tags: expected a list of texts"),
        ({"pair": ["c"]}, "Shape.pair: expected a list of 2"),
        ({"sizes": [1]}, "Shape.sizes: expected an object, found"),
        ({"sizes": {"d": [1, 2]}}, r"Shape.sizes\['d'\]\[1\]: expected a text, found 2"),
        ({"is_closed": 1}, "Shape.is_closed: expected true or false, found 1"),
        ({"parent": {"name": 3, "is_closed": True}}, "Shape.parent.name: expected an id, found 3"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Unlike, match=said):
        from_json(Shape, {**WRITTEN, **change})


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(Unlike, match="Point: expected an object with x, y"):
        from_json(Point, value)


def test_a_needed_field_has_its_default_for_who_makes_a_value_and_not_for_who_reads_one() -> None:
    with pytest.raises(Unlike, match="none of is_closed"):
        from_json(Shape, {"name": "a"})


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(Unlike) as refused:
        from_json(Shape, {**WRITTEN, "area": "x" * 10_000})
    assert len(str(refused.value)) < 300


@dataclass(frozen=True)
class Checked:
    attempt: Positive = 1
    epoch: OrMinusOne = -1
    key: PathBelow = "a"
    span: Annotated[tuple[int, int], Check("a range that is not empty", lambda span: span[0] < span[1])] = (0, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attempt": 0}, "Checked.attempt: expected a number of at least 1, found 0"),
        ({"epoch": -2}, "Checked.epoch: expected a number of at least -1, found -2"),
        *(({"key": key}, "Checked.key: expected a key") for key in ("", "a//b", "../b", "a/.", "a\0")),
        ({"span": [1, 1]}, r"Checked.span: expected a range that is not empty, found \[1, 1\]"),
        ({"span": [1]}, "Checked.span: expected a list of 2"),
    ],
)
def test_a_check_of_an_annotation_is_made(change: dict[str, Any], said: str) -> None:
    assert from_json(Checked, to_json(Checked(3, 0, "a/..b/.c", (1, 2)))) == Checked(3, 0, "a/..b/.c", (1, 2))
    with pytest.raises(Unlike, match=said):
        from_json(Checked, change)


@dataclass(frozen=True)
class Kind:
    """Writes nothing."""


@dataclass(frozen=True)
class Loud(Kind):
    volume: int = later(0)


def kind_of(record: type[Any], keys: Collection[str]) -> type[Any]:
    assert record is Sound
    return Loud if "volume" in keys else Kind


@dataclass(frozen=True)
class Sound:
    name: str
    kind: Kind = flat(Kind(), kind_of)


@pytest.mark.parametrize(
    ("sound", "written"),
    [(Sound("a"), {"name": "a"}), (Sound("a", Loud(3)), {"name": "a", "volume": 3})],
)
def test_a_flat_field_stands_among_the_keys_of_its_record(sound: Sound, written: dict[str, Any]) -> None:
    assert to_json(sound) == written
    assert from_json(Sound, written) == sound


def test_what_is_wrong_in_a_flat_field_is_said_of_the_record() -> None:
    with pytest.raises(Unlike, match=r"Sound\.volume: expected a number"):
        from_json(Sound, {"name": "a", "volume": "3"})


@dataclass(frozen=True)
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"expected an even number, found {self.number}")


@dataclass(frozen=True)
class Numbers:
    numbers: tuple[Even, ...]


def test_what_a_class_itself_refuses_is_said_with_its_place() -> None:
    with pytest.raises(Unlike, match=r"Numbers.numbers\[1\]: expected an even number, found 3"):
        from_json(Numbers, {"numbers": [{"number": 2}, {"number": 3}]})


@dataclass(frozen=True)
class Unreadable:
    what: set[int]


def test_an_annotation_without_a_json_form_is_named() -> None:
    with pytest.raises(TypeError, match=r"expected an annotation that has a JSON form .*, found set\[int\]"):
        from_json(Unreadable, {})
