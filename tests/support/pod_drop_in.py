"""A drop-in whose driver is a pod that is not there: a `spark-submit` that writes rows, and an API that has its pod."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider
from airflow.sdk import DAG
from kubernetes_fake import FakePods, fake_pods
from tries import TaskStateStore, run_try, state_in, task_context

from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import Outcome
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.task.spark_submission import SparkSubmission

NAMESPACE = "lake"
SUBMIT = f"""#!{sys.executable}
import json, os, pathlib, sys, urllib.request
told = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("spark."))
pathlib.Path(os.environ["FOLDER"], "submitted").write_text(json.dumps(told))
output = pathlib.Path(sys.argv[-1].removeprefix("file://"))
output.mkdir(parents=True)
(output / "part-0").write_text("rows")
print(os.environ.get("SAYS", ""))
sys.exit(int(os.environ.get("CODE", "0")))
"""


class PodDropIn:
    """A drop-in whose pod has come to its end when it is first looked at: ``ends`` says how."""

    def __init__(self, folder: Path, pods: FakePods, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.pods = folder, pods
        self.ends: dict[str, Any] | None = {"phase": "Succeeded"}
        self.log = ""
        self.store = TaskStateStore()
        submit = provider.SparkSubmitHook.submit

        def submit_and_end(hook: Any, *arguments: Any, **more: Any) -> Any:
            answer = submit(hook, *arguments, **more)
            if self.ends is not None:
                self.pods.put(NAMESPACE, self.settings()["spark.kubernetes.driver.pod.name"], **self.ends)
                self.pods.logs[NAMESPACE, self.settings()["spark.kubernetes.driver.pod.name"]] = self.log
            return answer

        monkeypatch.setattr(provider.SparkSubmitHook, "submit", submit_and_end)

    def settings(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "submitted").read_text()))

    def operator(self, **given: Any) -> RecoverableSparkSubmitOperator:
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            return RecoverableSparkSubmitOperator(
                task_id="t",
                application="app.py",
                outputs=["out"],
                application_args=["{output:out}"],
                **{"conn_id": "pods", "track_driver_via_k8s_api": True, **given},
            )

    def run(self, **given: Any) -> dict[str, Any]:
        return run_try(self.operator(**given), {**task_context("t"), "task_state_store": self.store})

    def outcome(self) -> Outcome:
        outcome = state_in(self.folder, OPERATORS_GROUP, "t").of("t").attempts[1].outcome
        assert outcome is not None
        return outcome

    def submission(self, **given: Any) -> SparkSubmission:
        unused: Any = None
        context: Any = {**task_context("t"), "task_state_store": self.store}
        return SparkSubmission(self.operator(**given), context, unused, unused)


@pytest.fixture(name="pods")
def pods_fixture() -> Iterator[FakePods]:
    with fake_pods() as fake:
        yield fake


@pytest.fixture(name="drop_in")
def drop_in_fixture(recovery: Path, pods: FakePods, monkeypatch: pytest.MonkeyPatch) -> PodDropIn:
    program = recovery / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(SUBMIT)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (recovery / "app.py").touch()
    monkeypatch.chdir(recovery)
    extra = {"deploy-mode": "cluster", "namespace": NAMESPACE}
    for name, value in {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "FOLDER": str(recovery),
        "AIRFLOW_CONN_PODS": json.dumps({"conn_type": "spark", "host": "k8s://https://k", "extra": extra}),
        "AIRFLOW_CONN_NOWHERE": json.dumps(
            {"conn_type": "spark", "host": "k8s://https://k", "extra": {"deploy-mode": "cluster"}}
        ),
        "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
        "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": str(pods.kubeconfig(recovery / "kubeconfig")),
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    return PodDropIn(recovery, pods, monkeypatch)
