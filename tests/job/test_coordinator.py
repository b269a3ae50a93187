"""The coordinator's own contract: snapshots as they ride in an outcome, and what a source may declare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import job
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.job.batch_snapshot import MAX_STATE_BYTES, SupportsBatchSnapshot
from airflow_recovery.job.coordinator import checked_coordinator, restored_coordinator, snapshots_of
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.model.records import CoordinatorSnapshot
from airflow_recovery.model.region_plan import CoordinatorPlan
from airflow_recovery.model.result_type import BLOCKING

FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {}, {})


class Given:
    """Knows which numbers were given out."""

    def __init__(self) -> None:
        self.given: set[int] = set()
        self.restored = 0

    def snapshot_state(self) -> Any:
        return sorted(self.given)

    def restore(self, state: Mapping[str, list[int]]) -> None:
        self.restored += 1
        self.given = {number for given in state.values() for number in given}


class Volatile:
    """Takes no snapshots."""


class Huge(Given):
    def snapshot_state(self) -> Any:
        return "x" * MAX_STATE_BYTES


class NoJson(Given):
    def snapshot_state(self) -> Any:
        return {1}


def left(vertex: str, region: str, *given: int) -> CoordinatorSnapshot:
    coordinator = Given()
    coordinator.given = set(given)
    ((name, body),) = snapshots_of({vertex: coordinator})
    return CoordinatorSnapshot(name, region, body)


def test_a_coordinator_is_restored_from_what_all_finished_subtasks_of_its_vertex_left():
    said = [left("numbers", "numbers[a]", 1, 2), left("numbers", "numbers[b]", 3), left("others", "numbers[b]", 9)]
    restored = restored_coordinator(Given, "numbers", said)
    assert isinstance(restored, Given)
    assert (restored.given, restored.restored) == ({1, 2, 3}, 1)


def test_the_first_of_its_vertex_is_not_restored():
    first = restored_coordinator(Given, "numbers", [left("others", "numbers[b]", 9)])
    assert (first.given, first.restored) == (set(), 0)


def test_one_that_is_volatile_is_neither_asked_nor_restored():
    volatile = restored_coordinator(Volatile, "numbers", [left("numbers", "numbers[a]", 1)])
    assert isinstance(volatile, Volatile)
    assert snapshots_of({"numbers": volatile}) == ()


@pytest.mark.parametrize(("kind", "found"), [(Huge, "1048578 bytes"), (NoJson, "{1}")])
def test_a_snapshot_that_can_not_be_kept_fails_the_attempt_by_name(kind: type[Given], found: str):
    with fails_with("state-unfit", where="the coordinator of 'numbers'", found=found):
        snapshots_of({"numbers": kind()})


def test_a_damaged_snapshot_names_the_subtask_that_left_it():
    with fails_with("snapshot-damaged", vertex="numbers", region="numbers[a]"):
        restored_coordinator(Given, "numbers", [replace(left("numbers", "numbers[a]", 1), body="?!")])


def test_a_coordinator_is_declared_as_a_class():
    assert isinstance(Given(), SupportsBatchSnapshot)
    for wrong in (Given(), "Given", len):
        with fails_with("coordinator-no-class"):
            checked_coordinator(wrong, "job 'j', vertex 'v'")


def test_one_of_the_two_methods_alone_is_refused():
    half = type("Half", (), {"restore": lambda self, state: None})
    with fails_with("coordinator-half-stateful", found="snapshot_state"):
        checked_coordinator(half, "job 'j', vertex 'v'")


def declared(coordinator: type | None):
    numbers = job("numbers")

    @numbers.source(parallelism=["a", "b"], coordinator=coordinator, result=BLOCKING)
    def read(spark, context):
        return context.coordinator

    @numbers.sink
    def total(read):
        return read

    return numbers


@pytest.mark.parametrize(("kind", "supports"), [(Given, True), (Volatile, False)])
def test_the_plan_says_which_vertices_have_one_and_whether_it_takes_snapshots(kind: type, supports: bool):
    plan = plan_job(declared(kind), "ref", FACTS).record
    found = {region.name: (region.coordinators, region.is_volatile) for region in plan.regions}
    assert found["read[a]"] == ((CoordinatorPlan("read", supports),), not supports)
    assert found["total"] == ((), False)


def test_another_coordinator_is_another_computation():
    found = [vertex_fingerprint(declared(each), "read", {}) for each in (None, Given, Volatile, Given)]
    assert found[1] == found[3]
    assert len(set(found)) == 3
