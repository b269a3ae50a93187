"""What Airflow's database keeps of ours while a task waits or a run goes on: read for ever, as journals are.

    tests/golden/airflow-v1.json     triggers with their arguments, their events with the method that takes them, calls
                                     and answers of the state store, what a task's state holds, the retry policy

Workers, triggerer and API server are not upgraded at one moment, and a deferred task lives across an upgrade. The file
is never written again: another form gets a file beside it.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from airflow_recovery.attempt.clear_protocol import (
    ALIVE_KEY,
    CALL_KEY,
    CLEARS_KEY,
    Answer,
    Call,
    Operation,
    RecoveryClear,
    clears_from_json,
    clears_to_json,
)
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation, TaskTry
from airflow_recovery.errors import RecoveryError
from airflow_recovery.model.build_in_progress import BuildInProgress
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.model.records import RunAttempt
from airflow_recovery.operators.region import SparkRegionOperator
from airflow_recovery.sensors.result import RecoveryResultSensor
from airflow_recovery.task.retry_policy import RecoveryRetryPolicy
from airflow_recovery.triggers.channel import ChannelOpenTrigger
from airflow_recovery.triggers.polling import PollingTrigger
from airflow_recovery.triggers.result import ResultPublishedTrigger
from airflow_recovery.triggers.shared import SharedResultTrigger

GOLDEN = Path(__file__).parents[1] / "golden" / "airflow-v1.json"
BUILD = BuildInProgress("0a1b2c", "airports", 1, RunAttempt("flights", "date-1", "group", "airports", 2), "etag-1")
CHANNEL = {
    "dag_id": "flights",
    "run_key": "date-1",
    "group_id": "group",
    "run_id": "scheduled__1",
    "result": "events",
    "generation": 3,
    "producer": "events",
    "producer_task": "group.events",
}
TRIGGERS: dict[str, PollingTrigger] = {
    "published": ResultPublishedTrigger(dag_id="flights", group_id="group", vertex="delays"),
    "published of a run": ResultPublishedTrigger(
        dag_id="flights",
        group_id="group",
        vertex="delays",
        logical_date="2026-01-01T00:00:00+00:00",
        partition_key="eu",
        run_id="manual__1",
        poll_interval_s=5.0,
    ),
    "shared": SharedResultTrigger(build=to_json(BUILD)),
    "channel": ChannelOpenTrigger(**CHANNEL),  # type: ignore[arg-type]
    "channel with a deadline": ChannelOpenTrigger(**CHANNEL, deadline=1767225600.5, poll_interval_s=1.0),  # type: ignore[arg-type]
}
EVENTS: dict[str, list[Any]] = {
    "published": [
        "execute_complete",
        {"status": "published", "location": "s3://lake/delays", "attempt": "2", "publish": "1"},
    ],
    "not readable": ["execute_complete", {"status": "error", "message": "RecordInvalid: damaged"}],
    "shared": ["execute_after_wait", {"silent": None}],
    "shared, and silent": ["execute_after_wait", {"silent": to_json(BUILD)}],
    "channel": ["execute_after_start", {"deadline": None}],
    "channel with a deadline": ["execute_after_start", {"deadline": 1767225600.5}],
}
"""The method that Airflow calls, whose name it keeps, and the event."""
CALLS = [
    Call("c1", Operation.OBSERVE),
    Call("c2", Operation.POOL, text="default_pool"),
    Call("c3", Operation.NOTE, text="recovery: kept"),
    Call("c4", Operation.DESCRIBE),
    Call("c5", Operation.CLEAR, ClearRequest({"g.raw": "019a-1"}, {"g.delays": "019a-2"}, unblock=True)),
    Call("c6", Operation.DAG, text="flights"),
]
ANSWERS = [Answer("c1", error="no"), Answer("c2", slots=-1), Answer("c3"), Answer("c4", description={"python": "3"})]
ANSWERS += [
    Answer("c1", Observation({"g.raw": TaskTry("g.raw", -1, 2, "019a-1", "success")})),
    Answer("c5", result=ClearResult(("g.raw",), {"g.delays": (3, "running")})),
]
CLEARS = (RecoveryClear(2, 6), RecoveryClear(3, 7))
POLICY = RecoveryRetryPolicy(retries=4, delay_is_own=True)
TODAY: dict[str, Any] = {
    "triggers": {name: list(trigger.serialize()) for name, trigger in TRIGGERS.items()},
    "events": EVENTS,
    "keys of the state store": {"call": CALL_KEY, "alive": ALIVE_KEY, "clears": CLEARS_KEY},
    "calls": [to_json(call) for call in CALLS],
    "answers": [to_json(answer) for answer in ANSWERS],
    "clears": clears_to_json(CLEARS),
    "retry policy": POLICY.serialize(),
}


def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def made_of(path: str, arguments: dict[str, Any]) -> BaseTrigger:
    """As Airflow's triggerer makes it."""
    module, _, name = path.rpartition(".")
    trigger: BaseTrigger = getattr(import_module(module), name)(**arguments)
    return trigger


def test_this_version_keeps_the_golden_values_in_airflow() -> None:
    assert golden() == json.loads(json.dumps(TODAY))


def test_there_is_a_golden_call_of_each_operation() -> None:
    assert {call.operation for call in CALLS} == set(Operation)


def test_every_trigger_has_golden_arguments() -> None:
    ours = {each for each in PollingTrigger.__subclasses__() if each.__module__.startswith("airflow_recovery.")}
    assert {type(trigger) for trigger in TRIGGERS.values()} == ours


@pytest.mark.parametrize("name", TRIGGERS)
def test_fault_39_a_task_that_an_earlier_version_has_deferred_still_waits(name: str) -> None:
    path, arguments = golden()["triggers"][name]
    trigger = made_of(path, arguments)
    assert isinstance(trigger, PollingTrigger)
    assert trigger.serialize() == (path, arguments)
    assert public(trigger) == public(TRIGGERS[name])


def public(trigger: PollingTrigger) -> dict[str, Any]:
    return {name: value for name, value in vars(trigger).items() if not name.startswith("_")}


class Earlier(SharedResultTrigger):
    """Of a version that has not had ``poll_interval_s`` yet."""

    def __init__(self, *, build: dict[str, Any]) -> None:
        super().__init__(build=build)


def test_an_earlier_version_makes_a_trigger_whose_new_arguments_nobody_has_set() -> None:
    Earlier(**SharedResultTrigger(build=to_json(BUILD)).serialize()[1])


def test_control_with_an_argument_that_it_has_not_airflow_fails_the_task_by_name() -> None:
    _, arguments = SharedResultTrigger(build=to_json(BUILD), poll_interval_s=1.0).serialize()
    with pytest.raises(TypeError, match="unexpected keyword argument 'poll_interval_s'"):
        Earlier(**arguments)


@pytest.mark.parametrize("name", EVENTS)
def test_fault_39_an_event_of_an_earlier_trigger_is_taken(name: str) -> None:
    """The task may be of this version where the triggerer, which is upgraded later, is not."""
    method, event = golden()["events"][name]
    if method == "execute_complete":
        sensor = RecoveryResultSensor(task_id="wait", external_dag_id="flights", group_id="group", vertex="delays")
        with pytest.raises(RecoveryError, match="damaged") if event["status"] == "error" else nullcontext():
            sensor.execute_complete({}, event)
        return
    region: Any = SimpleNamespace(execute=lambda context: "again")
    assert getattr(SparkRegionOperator, method)(region, {}, event) == "again"
    if method == "execute_after_wait":
        assert region._silent == (None if event["silent"] is None else BUILD)
    else:
        assert region.start_deadline == event["deadline"]


def test_fault_39_calls_answers_and_what_is_kept_of_a_task_are_read_for_ever() -> None:
    """An API server and a worker of two versions talk to each other while one of them is upgraded."""
    kept = golden()
    assert [Call.read(call) for call in kept["calls"]] == CALLS
    assert [from_json(Answer, answer) for answer in kept["answers"]] == ANSWERS
    assert clears_from_json(kept["clears"]) == CLEARS
    assert vars(RecoveryRetryPolicy.deserialize(kept["retry policy"])) == vars(POLICY)


def test_what_a_version_to_come_says_besides_is_passed_over() -> None:
    kept = golden()
    assert Call.read({**kept["calls"][0], "later": 1}) == CALLS[0]
    assert from_json(Answer, {**kept["answers"][0], "later": 1}) == ANSWERS[0]
    assert vars(RecoveryRetryPolicy.deserialize({**kept["retry policy"], "later": 1})) == vars(POLICY)
    assert from_json(BuildInProgress, {**to_json(BUILD), "later": 1}) == BUILD
