"""Which clears run code again that can't be seen. Airflow is a fake here; what a clear does to it is Airflow's own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_recovery.attempt.run import RetryGrant, TaskIdentity
from airflow_recovery.attempt.unseen_code import why_unseen_code_runs
from airflow_recovery.model.components import Component, UnseenCode

UNSEEN = Component("application", "local:///opt/clean.py", seen=False)
SEEN = Component("application", "ab" * 32)
IMAGE = Component("image", "etl:1", seen=False, decides=False)
CLAIM = SimpleNamespace(airflow_run_id="r", max_tries=2, try_number=1, ti_id="ti-1")
FIRST = TaskIdentity("r", 1, "ti-1", RetryGrant(2))
CLEARED = TaskIdentity("r", 2, "ti-2", RetryGrant(3, is_renewed=True))
RETRIED = TaskIdentity("r", 2, "ti-2", RetryGrant(2))
BY_RECOVERY = TaskIdentity("r", 2, "ti-2", RetryGrant(2, cancelled=frozenset({1})))


class Journal:
    def __init__(self, claim: Any) -> None:
        self.claim, self.reads = claim, 0

    def read_claim(self, region: str, attempt: int) -> Any:
        self.reads += 1
        return self.claim


def run_of(task: TaskIdentity, *components: Component, claim: Any = CLAIM, run_type: str | None = "scheduled") -> Any:
    dag_run = None if run_type is None else SimpleNamespace(run_type=run_type)
    return SimpleNamespace(task=task, journal=Journal(claim), components_of=lambda region: components, dag_run=dag_run)


def runs(task: TaskIdentity, policy: UnseenCode = UnseenCode.RUN_ON_CLEAR, **given: Any) -> bool:
    components = given.pop("components", (UNSEEN,))
    return why_unseen_code_runs(run_of(task, *components, **given), "t", 1, policy) is not None


def test_a_persons_clear_runs_it_and_a_retry_or_recoverys_own_clear_does_not() -> None:
    assert runs(CLEARED)
    assert not runs(FIRST)
    assert not runs(RETRIED)
    assert not runs(BY_RECOVERY)


def test_it_runs_once_since_the_claim_has_recorded_the_clear() -> None:
    made_since = SimpleNamespace(**{**vars(CLAIM), "max_tries": 3, "try_number": 2})
    assert not runs(replace(CLEARED, try_number=3), claim=made_since)


def test_a_backfill_keeps_it() -> None:
    assert not runs(CLEARED, run_type="backfill")
    assert runs(CLEARED, run_type=None)


def test_without_a_record_of_a_clear_it_is_kept() -> None:
    """The database is lost: the task begins with its first try, and nobody has cleared it."""
    lost = SimpleNamespace(**{**vars(CLAIM), "max_tries": 7})
    assert not runs(FIRST, claim=lost)
    assert not runs(replace(CLEARED, grant=None))
    assert not runs(CLEARED, claim=SimpleNamespace(**{**vars(CLAIM), "max_tries": None}))


def test_a_clear_after_the_database_was_lost_counts() -> None:
    lost = SimpleNamespace(**{**vars(CLAIM), "max_tries": 7})
    assert runs(CLEARED, claim=lost)
    assert runs(CLEARED, claim=SimpleNamespace(**{**vars(CLAIM), "airflow_run_id": "another"}))


@pytest.mark.parametrize("components", [(), (SEEN,), (SEEN, IMAGE)])
def test_code_that_was_seen_is_kept_without_a_request(components: tuple[Component, ...]) -> None:
    run = run_of(CLEARED, *components)
    for policy in UnseenCode:
        assert why_unseen_code_runs(run, "t", 1, policy) is None
    assert run.journal.reads == 0


def test_keep_keeps_and_run_also_runs_after_recoverys_clear_and_in_a_backfill() -> None:
    assert not runs(CLEARED, UnseenCode.KEEP)
    assert runs(CLEARED, UnseenCode.RUN, run_type="backfill")
    assert runs(BY_RECOVERY, UnseenCode.RUN)
    assert not runs(RETRIED, UnseenCode.RUN), "a retry keeps what the try before has made"
    since = SimpleNamespace(**{**vars(CLAIM), "try_number": 2})
    assert not runs(replace(BY_RECOVERY, try_number=3), UnseenCode.RUN, claim=since)


def test_the_reason_names_what_can_not_be_seen() -> None:
    components = [Component(f"jars {number}", "s3://x", seen=False) for number in range(1, 6)]
    why = why_unseen_code_runs(run_of(CLEARED, *components), "t", 1, UnseenCode.RUN_ON_CLEAR)
    assert why == (
        "attempt 1 is older than the clear of this task, and jars 1, jars 2, jars 3 and 2 more may have changed unseen"
    )
