"""Which setups are cleared with what is woken, and which are not, since a running task uses them (faults 68 and 69).

start --+--> P ---+--> stop        P --> C, which wakes P
        +--> L ---+

In real Airflow: `tests/testing_airflow/test_clear_clients_airflow.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from airflow_recovery.api_server import compare_and_clear
from airflow_recovery.api_server.compare_and_clear import _setups

RUN = SimpleNamespace(dag_id="d", run_id="r")


def serialized() -> Any:
    from airflow.providers.standard.operators.empty import EmptyOperator

    with DAG("d", schedule=None) as dag:
        start, p, long, stop, c = (EmptyOperator(task_id=name) for name in ("start", "P", "L", "stop", "C"))
        start.as_setup()
        stop.as_teardown(setups=start)
        start >> [p, long] >> stop
        p >> c
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


def set_up_again(states: Mapping[str, str | None]) -> set[str]:
    """What is cleared beside P, where every task is in the given state."""
    instances = [SimpleNamespace(task_id=name, map_index=-1, state=state) for name, state in states.items()]
    session: Any = SimpleNamespace(scalars=lambda statement: instances)
    cleared: Any = [instance for instance in instances if instance.task_id == "P"]
    return {setup.task_id for setup in _setups(session, RUN, serialized(), cleared, "C")}  # type: ignore[arg-type]


DONE = {"start": "success", "P": "success", "L": "success", "stop": "success", "C": "running"}
L_RUNS = {**DONE, "L": "running", "stop": None}


def test_fault_69_what_a_teardown_has_removed_is_set_up_again() -> None:
    assert set_up_again(DONE) == {"start", "stop"}


@pytest.mark.parametrize("state", ["running", "scheduled", "queued", "restarting", "deferred", "up_for_reschedule"])
def test_fault_69_a_setup_is_not_cleared_while_a_task_uses_it(state: str) -> None:
    assert set_up_again({**L_RUNS, "L": state}) == set()


@pytest.mark.parametrize("state", ["up_for_retry", "failed", None])
def test_a_task_that_will_be_looked_at_before_it_starts_does_not_use_it(state: str | None) -> None:
    assert set_up_again({**L_RUNS, "L": state}) == {"start"}


def test_fault_69_control_without_the_look_the_cluster_is_made_anew_under_a_task_that_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare_and_clear, "USING_STATES", frozenset())
    assert set_up_again(L_RUNS) == {"start"}


def test_the_caller_uses_no_setup_that_it_does_not_stand_below() -> None:
    """C runs below P, and so below the setup: what wakes P waits for it, and is no reason to keep the old one."""
    assert "start" in set_up_again(DONE)


def test_a_setup_that_has_not_run_yet_needs_no_clear() -> None:
    assert set_up_again({**DONE, "start": None, "stop": None}) == set()
