"""A region's mode: batch answers by itself, another one in its package, which is imported when it is asked."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
from expected_errors import fails_with

from airflow_recovery.annexes import ANNEXES, Annex
from airflow_recovery.model.mode import BATCH, RegionMode, answers_of, modes_of


class Questions:
    def answer(self) -> str:
        return "batch's"


class Answers(Questions):
    def answer(self) -> str:
        return "its own"


@dataclass(frozen=True)
class Tidal(RegionMode):
    name: ClassVar[str] = "tidal"
    height: int = 0


@pytest.fixture
def tidal(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("tides.asking")
    module.MODE = Answers()  # type: ignore[attr-defined]
    monkeypatch.setitem(ANNEXES, "tidal", Annex("tides", (), ()))
    monkeypatch.setitem(sys.modules, "tides", ModuleType("tides"))
    monkeypatch.setitem(sys.modules, "tides.asking", module)
    return module


def test_batch_gives_the_answers_of_the_room_that_asks():
    assert answers_of("batch", "asking", Questions).answer() == "batch's"


def test_another_mode_gives_its_own(tidal):
    assert answers_of("tidal", "asking", Questions).answer() == "its own"


def test_a_mode_that_answers_other_questions_is_refused(tidal):
    tidal.MODE = "nothing"
    with pytest.raises(TypeError, match=r"tides.asking.MODE: expected a Questions, found 'nothing'"):
        answers_of("tidal", "asking", Questions)


@pytest.mark.usefixtures("tidal")
def test_the_error_for_a_mode_that_is_not_installed_names_its_package(monkeypatch):
    monkeypatch.setitem(ANNEXES, "tidal", Annex("tides_that_are_not_there", (), ()))
    with fails_with("mode-package-missing", package="tides_that_are_not_there"):
        answers_of("tidal", "asking", Questions)


def test_a_record_of_another_mode_has_nothing_of_this_one():
    assert Tidal.of(SimpleNamespace(mode=Tidal(3))) == Tidal(3)
    assert Tidal.of(SimpleNamespace(mode=BATCH)) == Tidal(0)


def test_the_modes_of_some_records_are_named_once_each():
    records = [SimpleNamespace(mode=each) for each in (BATCH, Tidal(1), BATCH, Tidal(2))]
    assert modes_of(records) == ("batch", "tidal")
