"""The coordinator's own contract: snapshots as they ride in an outcome, and what a source may declare."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from airflow_recovery import job
from airflow_recovery.errors import JobDefinitionError, UserCodeError
from airflow_recovery.execution.job_plan import plan_job
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.model.coordinator_snapshot import CoordinatorSnapshot
from airflow_recovery.model.records import CoordinatorPlan
from airflow_recovery.runtime.spec import RunFacts
from airflow_recovery.source import BATCH_CHECKPOINT_ID, OperatorCoordinator
from airflow_recovery.source import coordinator as module
from airflow_recovery.source.coordinator import restored_coordinator, snapshots_of
from airflow_recovery.topology import BLOCKING

FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {}, {})


class Given:
    """Knows which numbers were given out."""

    supports_batch_snapshot = True

    def __init__(self) -> None:
        self.given: set[int] = set()
        self.restored: list[int] = []

    def snapshot(self, checkpoint_id: int) -> bytes:
        assert checkpoint_id == BATCH_CHECKPOINT_ID == -1
        return json.dumps(sorted(self.given)).encode()

    def restore(self, checkpoint_id: int, snapshots: Mapping[str, bytes]) -> None:
        self.restored.append(checkpoint_id)
        self.given = {number for each in snapshots.values() for number in json.loads(each)}


class Volatile:
    supports_batch_snapshot = False


class Huge(Given):
    def snapshot(self, checkpoint_id: int) -> bytes:
        return b"x" * (module.MAX_SNAPSHOT_BYTES + 1)


class NoBytes(Given):
    def snapshot(self, checkpoint_id: int) -> bytes:
        return "text"  # type: ignore[return-value]


def left(vertex: str, region: str, *given: int) -> CoordinatorSnapshot:
    coordinator = Given()
    coordinator.given = set(given)
    ((name, body),) = snapshots_of({vertex: coordinator})
    return CoordinatorSnapshot(name, region, body)


def test_a_coordinator_is_restored_from_what_all_finished_subtasks_of_its_vertex_left():
    said = [left("numbers", "numbers[a]", 1, 2), left("numbers", "numbers[b]", 3), left("others", "numbers[b]", 9)]
    restored = restored_coordinator(Given, "numbers", said)
    assert isinstance(restored, Given)
    assert (restored.given, restored.restored) == ({1, 2, 3}, [-1])


def test_one_that_is_volatile_is_neither_asked_nor_restored():
    volatile = restored_coordinator(Volatile, "numbers", [left("numbers", "numbers[a]", 1)])  # type: ignore[arg-type]
    assert isinstance(volatile, Volatile)
    assert snapshots_of({"numbers": volatile}) == ()


@pytest.mark.parametrize(("kind", "said"), [(Huge, "found 1048577 bytes"), (NoBytes, "found 'str'")])
def test_a_snapshot_that_can_not_be_kept_fails_the_attempt_by_name(kind: type[Given], said: str):
    with pytest.raises(UserCodeError, match=f"coordinator of 'numbers'.*{said}"):
        snapshots_of({"numbers": kind()})


def test_a_damaged_snapshot_names_the_subtask_that_left_it():
    with pytest.raises(UserCodeError, match=r"snapshot of numbers\[a\] is damaged"):
        restored_coordinator(Given, "numbers", [replace(left("numbers", "numbers[a]", 1), body="?!")])


def test_both_kinds_are_told_from_other_things():
    assert isinstance(Given(), OperatorCoordinator)
    for wrong in (Given(), "Given", object, int):
        with pytest.raises(JobDefinitionError, match="coordinator= as a class with supports_batch_snapshot"):
            module.checked_coordinator(wrong, "job 'j', vertex 'v'")


def test_one_that_says_it_takes_snapshots_must_have_the_methods():
    promising = type("Promising", (), {"supports_batch_snapshot": True, "restore": lambda self: None})
    with pytest.raises(JobDefinitionError, match="no snapshot: write them, or say"):
        module.checked_coordinator(promising, "job 'j', vertex 'v'")


def declared(coordinator: type | None):  # type: ignore[no-untyped-def]
    numbers = job("numbers")

    @numbers.source(parallelism=["a", "b"], coordinator=coordinator, result=BLOCKING)
    def read(spark, context):  # type: ignore[no-untyped-def]
        return context.coordinator

    @numbers.sink
    def total(read):  # type: ignore[no-untyped-def]
        return read

    return numbers


@pytest.mark.parametrize(("kind", "supports"), [(Given, True), (Volatile, False)])
def test_the_plan_says_which_vertices_have_one_and_whether_it_takes_snapshots(kind: type, supports: bool):
    plan = plan_job(declared(kind), "ref", FACTS).record
    found = {each.name: (each.coordinators, each.is_volatile) for each in plan.regions}
    assert found["read[a]"] == ((CoordinatorPlan("read", supports),), not supports)
    assert found["total"] == ((), False)


def test_another_coordinator_is_another_computation():
    found = [vertex_fingerprint(declared(each), "read", {}) for each in (None, Given, Volatile, Given)]
    assert found[1] == found[3]
    assert len(set(found)) == 3
