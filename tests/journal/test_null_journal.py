"""A journal that records nothing: every try is a region's first, and reads what the run's regions made last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery.journal.null_journal import NullJournal, unrecorded
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptTrace, Claim, Outcome, PlanRecord, Reset
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store.local import LocalStore

PLAN = PlanRecord(
    "jobs:j",
    (
        RegionPlan("a", ("a",), ("a",), (), final=False, fingerprint="today"),
        RegionPlan("b", ("b",), ("b",), ("a",), final=True, fingerprint="today"),
    ),
)


def journal(folder: Path, try_number: int = 1, **given: object) -> NullJournal:
    made = LocalStore(f"file://{folder}/made")
    own = LocalStore(f"file://{folder}/try{try_number}")
    identity = unrecorded("d", "manual", "g")
    return NullJournal(own, identity, writer="w", made=made, plan=PLAN, try_number=try_number, **given)  # type: ignore[arg-type]


def finish(region: str, attempt: int, fingerprint: str = "today") -> Outcome:
    outputs = (PartitionManifest(region, f"file:///made/{attempt}", ()),)
    return AttemptTrace(region, attempt, "w", fingerprint, (), ()).finished("2024-01-02T00:00:00Z", outputs)


def claim(region: str, attempt: int) -> Claim:
    return Claim(region, attempt, "w", plan_hash(PLAN), (), "manual", attempt, "ti", "tag", "2024-01-02T00:00:00Z")


def test_nothing_that_is_written_is_found_or_stored(tmp_path: Path) -> None:
    found = journal(tmp_path)
    found.put_plan(PLAN)
    found.claim(claim("a", 1))
    found.reset(Reset("a", 1, "w", "why"))
    found.finish(finish("a", 1))
    state = found.list(["a", "b"]).state
    assert not any(region.attempts for region in state.regions.values())
    assert state.plans == {plan_hash(PLAN)}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("number", [1, 3])
def test_an_attempt_has_the_number_of_its_try(tmp_path: Path, number: int) -> None:
    assert journal(tmp_path, number).list(["a"]).state.of("a").latest_attempt + 1 == number


def test_the_newest_finish_of_an_input_is_read_whatever_code_made_it(tmp_path: Path) -> None:
    journal(tmp_path).noticed(finish("a", 1))
    journal(tmp_path, 2).noticed(finish("a", 2, "yesterday"))
    found = journal(tmp_path)
    current = found.load(found.list(["a", "b"]), ["a"]).of("a").current
    assert current is not None
    assert current.outcome == replace(finish("a", 2), fingerprint="today")
    assert not found.list(["a", "b"]).state.of("a").may_be_gone(2)


def test_an_input_that_nobody_made_is_named(tmp_path: Path) -> None:
    found = journal(tmp_path)
    with fails_with("nothing-made-without-recovery", region="a"):
        found.load(found.list(["a", "b"]), ["a"])


def test_a_region_that_commits_can_not_be_claimed(tmp_path: Path) -> None:
    with fails_with("commit-without-recovery", region="b"):
        journal(tmp_path, committing={"b"}).claim(claim("b", 1))
