"""A job that is found again counts only if it was started with the code that the task has today."""

from __future__ import annotations

import os
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider
from pod_drop_in import NAMESPACE, PodDropIn, drop_in_fixture, pods_fixture  # noqa: F401 - fixtures
from tries import state_in

from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.task.drop_in import DropInApplication

pytest.importorskip("airflow.providers.cncf.kubernetes")


def killed_behind_submit(drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch) -> str:
    """A try that dies when its job is submitted. Its pod ends well. Airflow's state of the task is lost. The pod."""
    with monkeypatch.context() as dying:
        submit = provider.SparkSubmitHook.submit
        drop_in.ends = None

        def submit_and_die(hook: provider.SparkSubmitHook, *arguments: Any, **options: Any) -> None:
            submit(hook, *arguments, **options)
            os._exit(9)

        dying.setattr(provider.SparkSubmitHook, "submit", submit_and_die)
        pid = os.fork()  # what the child writes into the task's state store ends with it
        if pid == 0:
            try:
                drop_in.run()
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert not drop_in.store.values()
    drop_in.ends = {"phase": "Succeeded"}
    pod = drop_in.settings()["spark.kubernetes.driver.pod.name"]
    drop_in.pods.put(NAMESPACE, pod, "Succeeded")
    return pod


def finished(drop_in: PodDropIn) -> dict[int, bool]:
    attempts = state_in(drop_in.folder, OPERATORS_GROUP, "t").of("t").attempts
    return {number: attempt.is_finished for number, attempt in attempts.items()}


def test_fault_382_a_pod_of_other_code_is_not_registered_though_the_state_store_was_lost(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_behind_submit(drop_in, monkeypatch)
    (drop_in.folder / "app.py").write_text("code = 2")
    answer = drop_in.run()
    assert (answer["decision"], answer["attempt"]) == ("ran", 2)
    assert finished(drop_in) == {1: False, 2: True}


@pytest.mark.slow
def test_fault_382_nor_is_one_of_equal_code_of_which_nothing_is_known(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price of it: one more run, where the cluster keeps the pod of a task whose state Airflow has lost."""
    pod = killed_behind_submit(drop_in, monkeypatch)
    assert drop_in.run()["attempt"] == 2
    assert pod in drop_in.pods.deleted


@pytest.mark.control
def test_fault_382_control_taken_for_todays_the_rows_of_other_code_are_registered(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DropInApplication, "_is_as_today", lambda self, claim: True)
    killed_behind_submit(drop_in, monkeypatch)
    (drop_in.folder / "app.py").write_text("code = 2")
    answer = drop_in.run()
    assert (answer["decision"], answer["attempt"]) == ("kept", 1)
