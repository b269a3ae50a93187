"""What is taken from Airflow's context: the identity of the run, its facts, the epoch."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from expected_errors import fails_with
from tries import DATE, RUN_KEY, task_context

from airflow_recovery.attempt.clear_protocol import CLEARS_KEY
from airflow_recovery.attempt.run import RetryGrant
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.task.run_context import (
    dag_run_facts,
    is_live_run,
    recompute_epoch,
    refuse_mapped,
    retry_grant,
    run_facts,
    run_identity,
    task_identity,
)


def test_a_re_created_run_of_a_date_finds_the_same_journal() -> None:
    scheduled = run_identity(task_context(run_id="scheduled__2024-01-02"), "g")
    backfill = run_identity(task_context(run_id="backfill__2024-01-02"), "g")
    assert scheduled == backfill
    assert (scheduled.dag_id, scheduled.run_key, scheduled.group_id) == ("d", RUN_KEY, "g")


def test_one_moment_has_one_key_in_every_time_zone() -> None:
    there = DATE.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert there.isoformat() != DATE.isoformat()
    assert run_identity(task_context(logical_date=there), "g").run_key == RUN_KEY
    assert run_facts(task_context(logical_date=there)).logical_date == "2024-01-02T00:00:00+00:00"


@pytest.mark.parametrize(
    ("run", "key"),
    [
        ({"logical_date": None}, "run-r"),
        ({"partition_key": "eu"}, "partition-eu"),
        ({"logical_date": None, "partition_key": "eu"}, "partition-eu"),
        ({"logical_date": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)}, "date-2024-01-02T030405.000006Z"),
    ],
)
def test_what_a_run_is_known_by(run: dict[str, Any], key: str) -> None:
    assert run_identity(task_context(**run), "g").run_key == key


def test_facts_are_the_runs_alone() -> None:
    facts = run_facts(task_context(conf={"a": 1}, params={"lake": "x"}))
    assert (facts.conf, facts.params) == ({"a": 1}, {"lake": "x"})
    assert facts.data_interval_start == facts.data_interval_end == facts.logical_date
    empty = run_facts({**task_context(logical_date=None, conf=None), "data_interval_start": None})
    assert (empty.logical_date, empty.data_interval_start, empty.conf) == (None, None, {})


def test_the_task_instance_is_the_present_one() -> None:
    context = task_context(try_number=4)
    found = task_identity(context)
    assert (found.airflow_run_id, found.try_number, found.ti_id) == ("r", 4, context["ti"].id)


@pytest.mark.parametrize(
    ("conf", "epoch"),
    [
        ({}, None),
        (None, None),
        ({"other": 1}, None),
        ({"recovery": None}, None),
        ({"recovery": {}}, None),
        ({"recovery": {"mode": "recover", "epoch": 3}}, None),
        ({"recovery": {"mode": "recompute"}}, "1"),
        ({"recovery": {"mode": "recompute", "epoch": 2}}, "2"),
        ({"recovery": {"mode": "recompute", "epoch": "2"}}, "2"),
        ({"recovery": {"mode": "recompute", "epoch": "after the fix"}}, "after the fix"),
    ],
)
def test_the_epoch(conf: Any, epoch: str | None) -> None:
    assert recompute_epoch(task_context(conf=conf)) == epoch


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("recompute", "conf-recovery-unfit"),
        ({"mode": "recompute", "conf-recovery-unfit": 1}, "conf-recovery-unfit"),
        ({"mode": "everything"}, "conf-mode-unfit"),
        ({"mode": "recompute", "epoch": True}, "conf-epoch-unfit"),
        ({"mode": "recompute", "epoch": None}, "conf-epoch-unfit"),
        ({"mode": "recompute", "epoch": 1.5}, "conf-epoch-unfit"),
        ({"mode": "recompute", "epoch": ""}, "conf-epoch-unfit"),
        ({"mode": "recompute", "epoch": []}, "conf-epoch-unfit"),
        ({"epoch": 2}, "conf-mode-missing"),
        ({"mod": "recompute"}, "conf-recovery-unfit"),
    ],
)
def test_anything_else_is_refused_with_an_example(asked: Any, code: str) -> None:
    with fails_with(code) as caught:
        recompute_epoch(task_context(conf={"recovery": asked}))
    assert 'Write {"recovery": {"mode": "recompute", "epoch": 2}}' in str(caught.value)


RECOMPUTE = {"mode": "recompute", "epoch": 2}


@pytest.mark.parametrize(
    "name",
    ["recover", "Recovery", "recovry", "recovery_mode", "recovery.mode", "airflow_recovery", "recovering", "rcovery"],
)
@pytest.mark.parametrize("value", [RECOMPUTE, {"epoch": 2}, "recompute"])
def test_fault_198_a_key_of_conf_that_is_meant_for_recovery_is_refused_by_name(name: str, value: Any) -> None:
    with fails_with("conf-key-unread"):
        recompute_epoch(task_context(conf={"limit": 1, name: value}))


@pytest.mark.parametrize(
    "conf",
    [
        {"recover": True},
        {"recovery_date": "2026-01-01"},
        {"mode": "recompute"},
        {"discovery": {"mode": "full"}},
        {"spark": {"mode": "recompute", "epoch": 2}},
    ],
)
def test_other_keys_of_conf_are_the_dags_own(conf: dict[str, Any]) -> None:
    assert recompute_epoch(task_context(conf=conf)) is None


def test_a_key_of_conf_that_the_dag_declares_is_its_own() -> None:
    context = task_context(conf={"recover": {"mode": "full"}}, params={"recover": {"mode": "full"}})
    # Airflow puts every key of conf among the params, so these declare nothing.
    with pytest.raises(ConfigurationError):
        recompute_epoch(context)
    assert recompute_epoch({**context, "dag": SimpleNamespace(params={"recover": None})}) is None


def test_the_records_of_a_run_have_its_conf_once() -> None:
    facts = dag_run_facts(task_context(conf={"keys": 2}, params={"keys": 2, "limit": 7}))
    assert (facts.conf, facts.params) == ({"keys": 2}, {"limit": 7})
    assert (facts.run_id, facts.run_type, facts.run_after) == ("r", "manual", "2024-01-02T00:00:00+00:00")


def test_mapped_tasks_are_refused() -> None:
    context = task_context("g.t")
    refuse_mapped(context)
    context["ti"].map_index = 0
    with fails_with("mapped", task="g.t"):
        refuse_mapped(context)


# since when failures count


def granted(try_number: int, max_tries: int | None, clears: list[list[int]] | None = None) -> RetryGrant | None:
    context = task_context("t", try_number=try_number)
    context["ti"].max_tries = max_tries
    context["ti"].task = SimpleNamespace(retries=12)
    if clears is not None:
        context["task_state_store"].set(CLEARS_KEY, clears)
    return retry_grant(context)


def test_without_a_clear_failures_count_from_the_start() -> None:
    assert granted(1, 12) == RetryGrant(12)
    assert granted(3, 12) == RetryGrant(12)


def test_a_clear_by_a_person_begins_a_new_count() -> None:
    # Cleared after try 3: 3 + 12.
    assert granted(4, 15) == RetryGrant(15, is_renewed=True)
    assert granted(9, 15) == RetryGrant(15, is_renewed=True)


def test_clears_by_recovery_are_passed_over() -> None:
    assert granted(3, 14, [[2, 12]]) == RetryGrant(12, cancelled=frozenset({2}))
    # Twice by recovery, after tries 2 and 5.
    assert granted(6, 17, [[2, 12], [5, 14]]) == RetryGrant(12, cancelled=frozenset({2, 5}))


def test_a_persons_clear_between_two_of_recovery_counts() -> None:
    # Recovery after try 2, a person after try 4, recovery after try 6.
    clears = [[2, 12], [6, 16]]
    assert granted(7, 18, clears) == RetryGrant(16, is_renewed=True, cancelled=frozenset({2, 6}))


def test_a_running_task_that_was_cleared_may_keep_its_max_tries() -> None:
    """Airflow loses the update of a task that is restarting: the same count, and the try is known."""
    assert granted(3, 12, [[2, 12]]) == RetryGrant(12, cancelled=frozenset({2}))


def test_what_is_no_note_of_clears_is_a_clear_by_a_person() -> None:
    assert granted(3, 14, [["x"]]) == RetryGrant(14, is_renewed=True)  # type: ignore[list-item]


def test_an_airflow_that_says_nothing_of_it() -> None:
    assert granted(1, None) is None


@pytest.mark.parametrize(
    ("state", "lives"),
    [("running", True), ("queued", True), ("success", False), ("failed", False), (404, False), (503, True)],
)
def test_whether_another_run_lives(state: str | int, lives: bool) -> None:
    """One that the metadata database has lost does not; where Airflow can't say, it may."""

    def answer(dag_id: str, run_id: str) -> str:
        assert (dag_id, run_id) == ("d", "other")
        if isinstance(state, int):
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": state}))
        return state

    context = task_context()
    context["ti"].get_dagrun_state = answer
    assert is_live_run(context, "other") is lives
