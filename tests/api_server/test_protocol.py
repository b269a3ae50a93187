from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from airflow_recovery.attempt.clear_protocol import MAX_KEYS, Answer, Call, Caller, ClearBody, Operation
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation, TaskTry
from airflow_recovery.model.codec import from_json, to_json

REQUEST = ClearRequest(producers={"g.a": "1"}, consumers={"g.b|3": "2"}, unblock=True)


@pytest.mark.parametrize("call", [Call("c", Operation.OBSERVE), Call("c", Operation.CLEAR, REQUEST)])
def test_a_call_survives_json(call: Call) -> None:
    assert Call.read(to_json(call)) == call


@pytest.mark.parametrize(
    "answer",
    [
        Answer("c", observation=Observation({"g.b|3": TaskTry("g.b", 3, 2, "id", None)})),
        Answer("c", result=ClearResult(("a",), {"b": (2, "running"), "gone": (0, None)})),
        Answer("c", error="why"),
        Answer("c", description={"version": "0.1.0"}),
    ],
)
def test_an_answer_survives_json(answer: Answer) -> None:
    assert from_json(Answer, to_json(answer)) == answer


@pytest.mark.parametrize("value", [None, [], {}, {"call_id": "c", "operation": "drop", "request": None}])
def test_what_is_no_call_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        Call.read(value)


def test_a_call_that_nobody_answered_is_no_answer() -> None:
    with pytest.raises(ValueError, match="Answer: expected"):
        from_json(Answer, to_json(Call("c", Operation.OBSERVE)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"producers": {}},
        {"producers": 1, "consumers": {}, "unblock": False},
        {"producers": {"a": 1}, "consumers": {}, "unblock": False},
        {"producers": {str(number): "x" for number in range(MAX_KEYS + 1)}, "consumers": {}, "unblock": False},
    ],
)
def test_what_is_no_clear_request_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        ClearBody.read({"request": value})


def test_a_person_has_no_task_instance() -> None:
    request = to_json(ClearRequest())
    assert ClearBody.read({"request": request, "caller": None}).caller is None
    assert ClearBody.read({"request": request, "caller": {"key": "a", "ti_id": "id"}}).caller == Caller("a", "id")
    with pytest.raises(ValueError, match=r"ClearBody\.caller: expected an object with key"):
        ClearBody.read({"request": request, "caller": {"ti_id": "id"}})


@pytest.mark.slow
def test_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys; import airflow.plugins_manager; before = set(sys.modules);"
        "import airflow_recovery.api_server.plugin;"
        "print(sorted(name for name in set(sys.modules) - before if name.partition('.')[0] != 'airflow_recovery'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    # Of Airflow only the mark of a listener.
    assert done.stdout.strip().splitlines()[-1] == "['airflow._shared.listeners', 'airflow.listeners']"
