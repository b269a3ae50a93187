"""Which of several plans a run is at, from its journal alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from expected_errors import fails_with

from airflow_recovery.journal.in_use import read_run
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.records import Claim, Closed, PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store.local import LocalStore


@pytest.fixture
def journal(local_store: LocalStore) -> Journal:
    return Journal(local_store, RunIdentity("dag", "run-1", "group"), writer="w")


def a_plan(*names: str, code: str = "code 1") -> PlanRecord:
    return PlanRecord("job", tuple(RegionPlan(name, (name,), (name,), (), True, code) for name in names))


def a_claim(region: str, attempt: int, plan: PlanRecord, at: str) -> Claim:
    return Claim(region, attempt, "w", plan_hash(plan), (), f"run at {at}", 1, "ti", "tag", at)


def test_a_journal_without_a_plan(journal: Journal) -> None:
    with fails_with("journal-without-plan"):
        read_run(journal)
    journal.close(Closed(), 1)
    with fails_with("journal-without-plan"):
        read_run(journal)


def test_one_plan_needs_no_claim(journal: Journal) -> None:
    plan = a_plan("a", "b")
    journal.put_plan(plan)
    found = read_run(journal)
    assert (found.plan, found.plans, found.claim, found.left) == (plan, 1, None, ())


def test_of_several_plans_the_newest_claims(journal: Journal) -> None:
    old, new, never = a_plan("a", "b"), a_plan("a", "c"), a_plan("a", code="code 2")
    for plan in (old, new, never):
        journal.put_plan(plan)
    journal.claim(a_claim("b", 1, old, "2026-01-01T00:00:01"))
    journal.claim(a_claim("a", 1, old, "2026-01-01T00:00:02"))
    journal.claim(a_claim("c", 1, new, "2026-01-01T00:00:03"))
    found = read_run(journal)
    assert (found.plan, found.plans, found.left) == (new, 3, ("b",))
    assert found.claim == a_claim("c", 1, new, "2026-01-01T00:00:03")


def test_a_plan_that_is_gone_from_the_journal_is_not_taken(journal: Journal) -> None:
    old, new = a_plan("a"), a_plan("a", code="code 2")
    journal.put_plan(old)
    journal.put_plan(new)
    journal.claim(replace(a_claim("a", 1, new, "2026-01-01T00:00:01"), plan_hash="0" * 32))
    assert read_run(journal).plan in (old, new)
