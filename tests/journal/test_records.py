"""The records as values, and the identity of a plan."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.record_kinds import RECORD_KINDS
from airflow_recovery.model.records import Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan

PLAN = PlanRecord("job", (RegionPlan("P", ("p",), ("p",), (), True, "f"),))


@pytest.mark.parametrize("kind", [kind.record for kind in RECORD_KINDS.values()])
def test_records_can_not_be_changed(kind):
    assert kind.__dataclass_params__.frozen


def test_a_pin_is_a_value():
    assert InputRef("P", 1) == InputRef("P", 1)
    assert len({InputRef("P", 1), InputRef("P", 1)}) == 1
    with pytest.raises(FrozenInstanceError):
        InputRef("P", 1).attempt = 2  # type: ignore[misc]


def test_an_outcome_of_a_fence_has_no_result():
    fenced = Outcome("P", 1, state="FENCED", writer="w", ended_at="now")  # type: ignore[arg-type]
    assert (fenced.outputs, fenced.inputs, fenced.fingerprint) == ((), (), None)


def test_equal_plans_have_equal_hashes_on_every_machine():
    assert plan_hash(PLAN) == plan_hash(PlanRecord("job", tuple(PLAN.regions)))
    assert plan_hash(PLAN) == "7b0c0d479d043cf8bab2b956ee7e0a95"


@pytest.mark.parametrize(
    "change",
    [{"fingerprint": "g"}, {"fingerprint": None}, {"inputs": ("Q",)}, {"final": False}, {"vertices": ("p", "q")}],
)
def test_another_plan_has_another_hash(change):
    assert plan_hash(replace(PLAN, regions=(replace(PLAN.regions[0], **change),))) != plan_hash(PLAN)
