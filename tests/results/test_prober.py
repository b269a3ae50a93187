"""Whether an attempt's objects are there: missing, altered and unanswered are three answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from expected_errors import fails_with
from fakes import MemoryStore

from airflow_recovery.errors import OutputAltered, StoreAccessDenied, StoreTimeout
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Outcome
from airflow_recovery.planning.reason import Why
from airflow_recovery.results.prober import OnAltered, ResultProber

BASE = "memory://data"


class World:
    """Region P has written ``part-0`` and ``part-1`` of one result."""

    def __init__(self, *, managed: bool = True, policy: OnAltered | None = None) -> None:
        self.store = MemoryStore(BASE)
        objects = []
        for name in ("part-0", "part-1"):
            info = self.store.put(f"p/{name}", name.encode())
            objects.append(ResultObject(name, info.size, info.etag))
        manifest = PartitionManifest("p", f"{BASE}/p", tuple(objects), 2, managed=managed)
        outcome = Outcome("P", 1, AttemptState.FINISHED, "w", "now", outputs=(manifest,))
        self.attempt = Attempt(1, is_claimed=True, has_outcome=True, outcome=outcome)
        self.prober = ResultProber(lambda location: self.store, None if policy is None else {"P": policy})

    def why(self) -> Why | None:
        reason = self.prober.why_gone("P", self.attempt)
        return None if reason is None else reason.why


def test_everything_there() -> None:
    assert World().why() is None
    assert World(managed=False).why() is None


def test_an_attempt_without_outputs_is_there() -> None:
    world = World()
    assert world.prober.why_gone("P", Attempt(1)) is None


@pytest.mark.parametrize("managed", [True, False])
def test_what_is_gone_is_missing(managed: bool) -> None:
    world = World(managed=managed)
    world.store.delete(["p/part-0", "p/part-1"])
    reason = world.prober.why_gone("P", world.attempt)
    assert reason is not None
    assert reason.why is Why.OUTPUT_MISSING
    assert "p/part-0 is gone (listed without it) and 1 more" in reason.text()


def test_fault_30_an_altered_managed_object_is_lost() -> None:
    world = World()
    world.store.put("p/part-0", b"part-X")
    assert world.why() is Why.OUTPUT_ALTERED


def test_fault_294_with_a_file_of_a_zombie_a_result_below_our_own_prefix_is_lost() -> None:
    world = World()
    world.store.put("p/part-9", b"of a zombie")
    assert world.why() is Why.OUTPUT_ALTERED


@pytest.mark.parametrize("change", [("p/part-0", b"newer!"), ("p/part-9", b"added")])
def test_fault_47_newer_data_at_a_users_own_location_stops(change: tuple[str, bytes]) -> None:
    world = World(managed=False)
    world.store.put(*change)
    with fails_with("output-altered-outside", region="P"):
        world.why()


def test_fault_47_control_by_policy_it_is_made_again() -> None:
    world = World(managed=False, policy=OnAltered.RECOMPUTE)
    world.store.put("p/part-0", b"newer!")
    assert world.why() is Why.OUTPUT_ALTERED


def test_gone_and_added_may_be_newer_data_too() -> None:
    world = World(managed=False)
    world.store.delete(["p/part-0"])
    world.store.put("p/part-9", b"written instead")
    with pytest.raises(OutputAltered):
        world.why()


def test_what_a_later_attempt_left_unfinished_is_no_newer_data() -> None:
    world = World(managed=False)
    world.store.put("p/part-0", b"half..")
    world.attempt = replace(world.attempt, is_followed=True)
    assert world.why() is Why.OUTPUT_ALTERED


@pytest.mark.parametrize("error", [StoreAccessDenied, StoreTimeout])
def test_fault_27_no_answer_is_not_missing(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def refuse(*_: object, **__: object) -> object:
        raise error("no")

    monkeypatch.setattr(world.store, "list", refuse)
    with pytest.raises(error):
        world.why()


def test_fault_27_control_an_empty_answer_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.store, "list", lambda *_, **__: iter(()))
    assert world.why() is Why.OUTPUT_MISSING


def test_each_question_is_asked_anew() -> None:
    world = World()
    assert world.why() is None
    world.store.delete(["p/part-1"])
    assert world.why() is Why.OUTPUT_MISSING
