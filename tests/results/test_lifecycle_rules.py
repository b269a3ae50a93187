"""Fault 29: a rule of the bucket deletes intermediate results early."""

from __future__ import annotations

import pytest
from clocked import sweep
from fakes import PAIR, ProcessStore, World

from airflow_recovery.errors import InputLost, StoreAccessDenied
from airflow_recovery.model.retention import Retention
from airflow_recovery.store.lifecycle import ExpiryRule, rules_over

RULES = (ExpiryRule("monthly", "", 30), ExpiryRule("tidy", "results/", 3), ExpiryRule("logs", "logs/", 1))


@pytest.fixture
def world(monkeypatch) -> World:
    """Its results lie in a bucket with rules."""
    world = World(PAIR)
    world.results.base_uri = "s3://bucket/results"
    world.results.expiry_rules = lambda: RULES
    monkeypatch.setattr(ProcessStore, "expiry_rules", lambda self: self._inner.expiry_rules(), raising=False)
    world.go("P")
    return world


def delete_early(world: World) -> None:
    world.delete_results("P", 1)


def test_fault_29_it_is_a_loss_the_producer_runs_again_and_the_rule_is_named(world):
    delete_early(world)
    with pytest.raises(InputLost, match="rule 'tidy' deletes what is older than 3 days below 'results/'"):
        world.go("C")
    world.until_green()
    assert world.ran == [("P", 1), ("P", 2), ("C", 1)]


def test_fault_29_control_without_rules_nothing_is_said_of_any(world):
    world.results.expiry_rules = tuple
    delete_early(world)
    with pytest.raises(InputLost) as error:
        world.go("C")
    assert "rule" not in str(error.value)


def test_the_shortest_rule_over_a_location_comes_first_and_no_other_bucket_path_counts(world):
    found = rules_over(world.results, "s3://bucket/results/dag/run")
    assert [rule.name for rule in found] == ["tidy", "monthly"]


def test_rules_that_may_not_be_read_are_no_reason_to_fail(world):
    def denied() -> None:
        raise StoreAccessDenied("no")

    world.results.expiry_rules = denied
    assert rules_over(world.results, "s3://bucket/results/dag") == ()
    delete_early(world)
    with pytest.raises(InputLost):
        world.go("C")


def test_gc_warns_of_a_rule_that_is_shorter_than_the_retention(world, monkeypatch):
    monkeypatch.setattr("airflow_recovery.results.sweep.store_now_s", lambda store: 0.0)
    monkeypatch.setattr("airflow_recovery.results.sweep_found.modified_s", lambda info: 0.0)
    assert "are to be kept for 7d" in sweep(world).warnings[0]
    assert sweep(world, retention=Retention.as_consumed()).warnings == []
