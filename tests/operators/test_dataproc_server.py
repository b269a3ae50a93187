"""`dataproc_server`, asked by Google's own client as the provider's hook does: by TLS, through the proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dataproc_server import PROJECT, REGION, DataprocServer, google_provider, use_google_provider
from job_servers import WRITER, gated

from airflow_recovery.testing.patience import wait_until

pytestmark = pytest.mark.drill

ADDRESS = f"{REGION}-dataproc.googleapis.com:443"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataprocServer]:
    folder = google_provider()
    if folder is None:
        pytest.skip("Airflow's provider of Google is not installed: scripts/setup.sh --drill")
    use_google_provider(folder)
    with DataprocServer(tmp_path) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


def client(kind: str, server: DataprocServer, **changes: str) -> Any:
    from google.api_core.client_options import ClientOptions
    from google.cloud import dataproc_v1
    from google.oauth2.service_account import Credentials

    extra = json.loads(json.loads(server.connection())["extra"])
    key = json.loads(extra["keyfile_dict"]) | changes
    options = ClientOptions(api_endpoint=ADDRESS)
    return getattr(dataproc_v1, kind)(credentials=Credentials.from_service_account_info(key), client_options=options)


def until(ask: Callable[[], Any], wanted: object) -> None:
    wait_until(lambda: ask() == wanted, repr(wanted), describe=lambda: f"The answer is {ask()!r}.")


def job_of(program: str, *arguments: str, **more: Any) -> dict[str, Any]:
    program_of = {"main_python_file_uri": program, "args": arguments}
    return {"placement": {"cluster_name": "c"}, "pyspark_job": program_of, **more}


def test_a_job_runs_is_cancelled_and_is_submitted_once_a_request(server: DataprocServer, tmp_path: Path) -> None:
    from google.api_core.exceptions import AlreadyExists, InvalidArgument, NotFound

    jobs = client("JobControllerClient", server)
    where = {"project_id": PROJECT, "region": REGION}

    def submit(job: Any, **more: str) -> str:
        return str(jobs.submit_job({**where, "job": job, **more}).reference.job_id)

    def status(job_id: str) -> Any:
        return jobs.get_job({**where, "job_id": job_id}).status

    made = submit(job_of(WRITER, "--out", f"{tmp_path}/out"), request_id="r")
    until(lambda: status(made).state.name, "DONE")
    assert (tmp_path / "out" / "part-0").read_text() == "rows"
    assert submit(job_of(WRITER, "--out", f"{tmp_path}/other"), request_id="r") == made

    failed = submit(job_of(str(tmp_path / "none.py"), reference={"job_id": "mine"}))
    assert failed == "mine"
    until(lambda: status(failed).state.name, "ERROR")
    until(lambda: "No such file" in status(failed).details, True)
    with pytest.raises(AlreadyExists, match="mine"):
        submit(job_of(WRITER, reference={"job_id": "mine"}))

    held = submit(job_of(gated(tmp_path)))
    assert status(held).state.name == "RUNNING"
    jobs.cancel_job({**where, "job_id": held})
    assert status(held).state.name == "CANCELLED"
    assert server.jobs[held].code == -9
    with pytest.raises(NotFound):
        status("other")
    with pytest.raises(InvalidArgument):
        submit({"placement": {"cluster_name": "c"}})


def test_a_batch_runs_and_is_cancelled_by_its_operation(server: DataprocServer, tmp_path: Path) -> None:
    from google.api_core.exceptions import AlreadyExists, NotFound
    from google.cloud.dataproc_v1 import BatchOperationMetadata

    batches = client("BatchControllerClient", server)
    parent = f"projects/{PROJECT}/locations/{REGION}"

    def create(program: str, *arguments: str, **more: str) -> str:
        batch = {"pyspark_batch": {"main_python_file_uri": program, "args": arguments}}
        operation = batches.create_batch({"parent": parent, "batch": batch, **more})
        assert isinstance(operation.metadata, BatchOperationMetadata)
        return str(operation.metadata.batch)

    made = create(WRITER, "--out", f"{tmp_path}/out", batch_id="mine")
    assert made == f"{parent}/batches/mine"
    until(lambda: batches.get_batch({"name": made}).state.name, "SUCCEEDED")
    assert (tmp_path / "out" / "part-0").read_text() == "rows"
    with pytest.raises(AlreadyExists):
        create(WRITER, batch_id="mine")
    failed = create(str(tmp_path / "none.py"))
    until(lambda: batches.get_batch({"name": failed}).state.name, "FAILED")
    held = create(gated(tmp_path))
    batches.transport.operations_client.cancel_operation(batches.get_batch({"name": held}).operation)
    assert batches.get_batch({"name": held}).state.name == "CANCELLED"
    with pytest.raises(NotFound):
        batches.get_batch({"name": f"{parent}/batches/other"})


def test_nobody_else_is_answered(server: DataprocServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.api_core.exceptions import Unauthenticated

    stranger = client("JobControllerClient", server, client_email="somebody@else.com")
    with pytest.raises(Unauthenticated):
        stranger.get_job({"project_id": PROJECT, "region": REGION, "job_id": "mine"})
