"""Which tasks of Airflow a person, or the API server, is asked to clear."""

from __future__ import annotations

from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.region_plan import RegionPlan, SubtaskPlan
from airflow_recovery.story.clearing import task_keys


def region(name: str, subtask: SubtaskPlan | None = None) -> RegionPlan:
    return RegionPlan(name, (), (), (), True, None, subtask=subtask)


def test_a_subtask_is_a_map_index_and_a_batch_of_them_is_one() -> None:
    identity = RunIdentity("dag", "date", "g")
    assert task_keys(identity, [region("total"), region("m[jan]", SubtaskPlan("m", 0, "jan"))]) == ["g.total", "g.m|0"]
    batch = [region(f"m[{at}]", SubtaskPlan("m", at, str(at), batch=at // 3)) for at in (0, 1, 4, 5)]
    assert task_keys(identity, batch) == ["g.m|0", "g.m|1"]


def test_an_operator_is_its_own_task() -> None:
    assert task_keys(RunIdentity("dag", "date", OPERATORS_GROUP), [region("clean")]) == ["clean"]
