"""EMR and EMR Serverless on moto, where what they are given runs as a process of this machine."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from job_servers import JobProcess

from airflow_recovery.testing.patience import HANG_S

REGION = "us-east-1"
ACCOUNT = "123456789012"


class EmrCluster:
    """Runs what moto, in this process, was given: moto keeps a step as it is, and takes a job for a success at once.

    ``client``: how moto is reached. Within it moto does as EMR in three ways more (`_like_emr`).
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
        self._take_the_examples_names()
        self.jobs: dict[str, JobProcess] = {}
        self.requests: list[str] = []
        """Each time that somebody has asked for a step or a job."""
        self._ended = threading.Event()
        self._patch = pytest.MonkeyPatch()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Any:
        self._like_emr()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(HANG_S)
        for job in self.jobs.values():
            job.kill()
        self._patch.undo()

    def _take_the_examples_names(self) -> None:
        from moto.backends import get_backend

        clusters, flow = get_backend("emr")[ACCOUNT][REGION].clusters, self.flow
        serverless = get_backend("emr-serverless")[ACCOUNT][REGION]
        applications, application = serverless.applications, self.application
        self.flow, self.application = "j-EXAMPLE", "00fexample"
        clusters[self.flow], applications[self.application] = clusters[flow], applications[application]
        serverless.job_runs.pop(self.application, None)  # of an earlier one in this process
        clusters[self.flow].id, applications[self.application].id = self.flow, self.application

    def _like_emr(self) -> None:
        """A job begins as submitted, a client's token is good for one job, and steps can be cancelled."""
        from moto.core.responses import ActionResult
        from moto.emr.models import ElasticMapReduceBackend
        from moto.emr.responses import ElasticMapReduceResponse
        from moto.emrserverless.models import EMRServerlessBackend

        start_job_run = EMRServerlessBackend.start_job_run
        for backend, question in ((EMRServerlessBackend, "get_job_run"), (ElasticMapReduceBackend, "describe_step")):
            self._patch.setattr(backend, question, self._counted(getattr(backend, question)))

        def once_a_token(backend: Any, *given: Any, **named: Any) -> Any:
            token = inspect.signature(start_job_run).bind(backend, *given, **named).arguments["client_token"]
            known = [job for jobs in backend.job_runs.values() for job in jobs if job.client_token == token]
            return known[0] if known else start_job_run(backend, *given, **named)

        def cancel_steps(response: Any) -> Any:
            steps = response.backend.clusters[response._get_param("ClusterId")].steps
            asked = [step for step in steps if step.id in response._get_param("StepIds")]
            for step in asked:
                step.state = "CANCELLED"
            told = [{"StepId": step.id, "Status": "SUBMITTED"} for step in asked]
            return ActionResult({"CancelStepsInfoList": told})

        self._patch.setattr("moto.emrserverless.models.JOB_STATUS", "SUBMITTED")
        self._patch.setattr(EMRServerlessBackend, "start_job_run", once_a_token)
        self._patch.setattr(ElasticMapReduceResponse, "cancel_steps", cancel_steps, raising=False)

    def _counted(self, question: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            self.requests.append(f"GET {question.__name__}")
            return question(*given, **named)

        return counted

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
        started = self.jobs.get(job.id)
        if started is None:
            if job.state != "CANCELLED":
                job.state = "RUNNING"
                self.jobs[job.id] = JobProcess.start({}, command[0], command[1:])
        elif job.state == "CANCELLED":
            started.kill()
        elif started.code is not None:
            job.state = success if started.code == 0 else "FAILED"


class EmrServer(EmrCluster):
    """The same over HTTP, for tasks in other processes."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.url = "http://{}:{}".format(*self._server.get_host_and_port())
        super().__init__(endpoint_url=self.url, aws_access_key_id="test", aws_secret_access_key="test")

    def connection(self) -> str:
        """For ``AIRFLOW_CONN_AWS_DEFAULT``."""
        extra = {"region_name": REGION, "endpoint_url": self.url}
        return json.dumps({"conn_type": "aws", "login": "test", "password": "test", "extra": json.dumps(extra)})

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._server.stop()
