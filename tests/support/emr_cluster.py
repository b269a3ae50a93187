"""EMR and EMR Serverless on moto, where what they are given runs as a process of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

REGION = "us-east-1"
ACCOUNT = "123456789012"


class EmrCluster:
    """Runs what moto, in this process, was given: moto keeps a step as it is, and takes a job for a success at once.

    For the latter, `moto.emrserverless.models.JOB_STATUS` is to be ``"SUBMITTED"``. ``client``: how moto is reached.
    """

    def __init__(self, **client: Any) -> None:
        import boto3

        self.emr = boto3.client("emr", REGION, **client)
        self.serverless = boto3.client("emr-serverless", REGION, **client)
        instances = {"MasterInstanceType": "m5.large", "InstanceCount": 1, "KeepJobFlowAliveWhenNoSteps": True}
        self.flow = self.emr.run_job_flow(
            Name="c", ReleaseLabel="emr-7.0.0", Instances=instances, JobFlowRole="r", ServiceRole="s"
        )["JobFlowId"]
        self.application = self.serverless.create_application(name="a", releaseLabel="emr-7.0.0", type="SPARK")[
            "applicationId"
        ]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> EmrCluster:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        for process in self.processes.values():
            process.kill()
            process.wait(60)

    def _run(self) -> None:
        from moto.backends import get_backend

        steps = get_backend("emr")[ACCOUNT][REGION].clusters[self.flow].steps
        runs = get_backend("emr-serverless")[ACCOUNT][REGION].job_runs
        while not self._ended.wait(0.02):
            for step in list(steps):
                self._look(step, list(step.args)[1:], "COMPLETED")
            for job in list(runs.get(self.application, ())):
                spark: Any = job.job_driver["sparkSubmit"]
                self._look(job, [spark["entryPoint"], *spark["entryPointArguments"]], "SUCCESS")

    def _look(self, job: Any, command: list[str], success: str) -> None:
        process = self.processes.get(job.id)
        if process is None:
            job.state = "RUNNING"
            self.processes[job.id] = subprocess.Popen([sys.executable, *command], stdin=subprocess.DEVNULL)
        elif job.state == "CANCELLED":
            process.kill()
        elif process.poll() is not None:
            job.state = success if process.returncode == 0 else "FAILED"


@contextmanager
def emr_server() -> Iterator[tuple[EmrCluster, str]]:
    """The same over HTTP, for tasks in other processes; with what is for ``AIRFLOW_CONN_AWS_DEFAULT``."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("moto.emrserverless.models.JOB_STATUS", "SUBMITTED")
        server.start()
        try:
            url = "http://{}:{}".format(*server.get_host_and_port())
            extra = {"region_name": REGION, "endpoint_url": url}
            connection = {"conn_type": "aws", "login": "test", "password": "test", "extra": extra}
            client = {"endpoint_url": url, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
            with EmrCluster(**client) as cluster:
                yield cluster, json.dumps(connection)
        finally:
            server.stop()
