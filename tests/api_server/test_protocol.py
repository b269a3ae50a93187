from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from airflow_recovery.attempt.clear_protocol import MAX_KEYS, Answer, Call, Caller, Operation, clear_request_from_json
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation, TaskTry

REQUEST = ClearRequest(producers={"g.a": "1"}, consumers={"g.b|3": "2"}, unblock=True)


@pytest.mark.parametrize("call", [Call("c", Operation.OBSERVE), Call("c", Operation.CLEAR, REQUEST)])
def test_a_call_survives_json(call: Call) -> None:
    assert Call.from_json(call.to_json()) == call


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
    assert Answer.from_json(answer.to_json()) == answer


@pytest.mark.parametrize("value", [None, [], {}, {"call_id": "c", "operation": "drop", "request": None}])
def test_what_is_no_call_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|valid Operation"):
        Call.from_json(value)


def test_a_call_that_nobody_answered_is_no_answer() -> None:
    with pytest.raises(ValueError, match="expected an answer"):
        Answer.from_json(Call("c", Operation.OBSERVE).to_json())


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"producers": {}},
        {"producers": 1, "consumers": {}, "unblock": False},
        {"producers": {"a": 1}, "consumers": {}, "unblock": False},
        {"producers": {str(each): "x" for each in range(MAX_KEYS + 1)}, "consumers": {}, "unblock": False},
    ],
)
def test_what_is_no_clear_request_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        clear_request_from_json(value)


def test_a_person_has_no_task_instance() -> None:
    assert Caller.from_json(None) is None
    assert Caller.from_json(Caller("a", "id").to_json()) == Caller("a", "id")
    with pytest.raises(ValueError, match="expected caller"):
        Caller.from_json({"ti_id": "id"})


def test_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys; import airflow.plugins_manager; before = set(sys.modules);"
        "import airflow_recovery.api_server.plugin;"
        "print(sorted({each.partition('.')[0] for each in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip().splitlines()[-1] == "['airflow_recovery']"
