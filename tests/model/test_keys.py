"""The names of task instances and of regions, as they stand in records, requests and targets."""

from __future__ import annotations

import pytest

from airflow_recovery.model.keys import MAX_MAP_INDEX, OPERATORS_GROUP, RegionKey, TaskKey
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("flights.clean", TaskKey("flights.clean")),
        ("flights.clean|0", TaskKey("flights.clean", 0)),
        (f"P|{MAX_MAP_INDEX}", TaskKey("P", MAX_MAP_INDEX)),
    ],
)
def test_a_task_key_is_printed_and_parsed(text: str, key: TaskKey) -> None:
    assert str(key) == text
    assert TaskKey.parse(text) == key


@pytest.mark.parametrize("text", ["P|", "P|-1", "P|x", "P|\u0663", "P| 3", "P|1|2", f"P|{MAX_MAP_INDEX + 1}"])
def test_what_no_task_instance_can_be_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="expected a map index from 0 to 2147483647 after the task id"):
        TaskKey.parse(text)


@pytest.mark.parametrize(
    ("subtask", "group", "text"),
    [
        (None, "flights", "flights.clean"),
        (SubtaskPlan("by_day", 4, "jan"), "flights", "flights.by_day|4"),
        (SubtaskPlan("by_day", 4, "jan", batch=1), "flights", "flights.by_day|1"),
        (None, OPERATORS_GROUP, "clean"),
    ],
)
def test_a_region_is_run_by_a_task(subtask: SubtaskPlan | None, group: str, text: str) -> None:
    region = RegionPlan("clean", (), (), (), True, None, subtask=subtask)
    assert str(TaskKey.of_region(region, group)) == text


def test_the_path_of_a_region_is_of_encoded_names() -> None:
    key = RegionKey.of(RunIdentity("dag", "date-2026", "a/b"), "by_day[jan]")
    assert key == RegionKey("dag", "date-2026", "a/b", "by_day[jan]")
    assert key.path == "dag/date-2026/a~2Fb/by_day~5Bjan~5D"
    assert key.arguments == ("dag", "date-2026", "by_day[jan]", "--group", "a/b")
