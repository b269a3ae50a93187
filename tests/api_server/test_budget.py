"""What one request may read of a journal is limited."""

from __future__ import annotations

import uuid

from expected_errors import fails_with

from airflow_recovery.api_server.budget import BudgetedStore
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Claim, RunIdentity
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.local import LocalStore

MIB = 1024 * 1024
IDENTITY = RunIdentity("dag", "date=2026-01-01", "group")
REGIONS = [f"R{number}" for number in range(20)]


def with_claims(store: ObjectStore) -> None:
    journal = Journal(store, IDENTITY, writer="w")
    for region in REGIONS:
        claim = Claim(
            region=region,
            attempt=1,
            writer="w",
            plan_hash="0" * 16,
            inputs=(),
            airflow_run_id="x" * 50_000,
            try_number=1,
            ti_id="t",
            tag=str(uuid.uuid4()),
            claimed_at="2026-01-01T00:00:00+00:00",
        )
        journal.claim(claim)


def test_a_journal_that_is_larger_than_the_budget_is_refused_by_name(store: ObjectStore) -> None:
    with_claims(store)
    within = Journal(BudgetedStore(store, 2 * MIB), IDENTITY, writer="w")
    assert len(within.load(within.list(REGIONS)).regions) == 20
    beyond = Journal(BudgetedStore(store, MIB // 2), IDENTITY, writer="w")
    with fails_with("request-budget-used"):
        beyond.load(beyond.list(REGIONS))


def test_the_budget_is_of_all_reads_and_names_the_limit_that_was_met(local_store: LocalStore) -> None:
    local_store.put("a", bytes(6))
    budgeted = BudgetedStore(local_store, 10)
    assert budgeted.get("a").info.size == 6
    with fails_with("object-too-large-to-read", found=6):
        budgeted.get("a", 3)
    with fails_with("request-budget-used"):
        budgeted.get("a")
    with fails_with("request-budget-used"):
        budgeted.get("a", None)
