"""Dataproc by gRPC, as Google's own client speaks it: each job and batch is a real process of this machine.

Airflow's provider asks ``<region>-dataproc.googleapis.com:443`` by TLS, and takes no other address. So a proxy, which
gRPC finds in a variable of the environment, has all of Google's names lead here, with a certificate that another
variable makes trusted: operator, hook and client are what users have. It has tests of its own:
`tests/operators/test_dataproc_server.py`.

Needs Airflow's provider of Google, which `scripts/setup.sh --drill` installs beside the environment: `google_provider`
says where; `use_google_provider` makes it importable in this process.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

from job_servers import JobProcess

from airflow_recovery.testing.patience import HANG_S

PROJECT, REGION = "recovery-tests", "europe-west1"
ROBOT = f"robot@{PROJECT}.iam.gserviceaccount.com"


def google_provider() -> Path | None:
    """The folder with the provider's packages, for ``PYTHONPATH``; `None` where it is not installed."""
    folder = Path(sys.prefix) / "google-provider"
    return folder if (folder / "airflow" / "providers" / "google").is_dir() else None


def use_google_provider(folder: Path) -> None:
    """Make it importable here, as it would be with that ``PYTHONPATH``."""
    import airflow

    for path, more in ((sys.path, folder), (airflow.__path__, folder / "airflow")):
        if str(more) not in path:
            path.append(str(more))


class DataprocServer:
    """``jobs``: jobs and batches, by their ids; ``requests``: the calls, as ``GET GetJob`` and ``POST SubmitJob``."""

    def __init__(self, folder: Path) -> None:
        import grpc  # type: ignore[import-untyped]

        self.jobs: dict[str, JobProcess] = {}
        self.requests: list[str] = []
        self._known: dict[str, str] = {}
        """The ids of jobs by the ids of the requests for them."""
        self._key, self._certificate = _certificate()
        self._roots = folder / "roots.pem"
        self._roots.write_bytes(self._certificate)
        self._server = grpc.server(ThreadPoolExecutor(8))
        for service, calls in self._calls().items():
            handlers = {name: self._handler(name, *call) for name, call in calls.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        credentials = grpc.ssl_server_credentials([(self._key, self._certificate)])
        self._proxy = _Tunnels(self._server.add_secure_port("127.0.0.1:0", credentials))

    def connection(self) -> str:
        """For ``AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT``: a service account's key, with which clients sign requests."""
        key = {"type": "service_account", "project_id": PROJECT, "client_email": ROBOT, "client_id": "1"}
        key |= {"private_key_id": "1", "private_key": self._key.decode(), "token_uri": "https://no.such.host/token"}
        extra = {"keyfile_dict": json.dumps(key), "project": PROJECT}
        return json.dumps({"conn_type": "google_cloud_platform", "extra": json.dumps(extra)})

    def environment(self) -> dict[str, str]:
        """With these variables Google's names lead here."""
        return {
            "grpc_proxy": f"http://127.0.0.1:{self._proxy.server_address[1]}",
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self._roots),
        }

    def __enter__(self) -> DataprocServer:
        self._server.start()
        threading.Thread(target=self._proxy.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stop(0).wait(HANG_S)
        self._proxy.shutdown()
        self._proxy.server_close()
        for job in self.jobs.values():
            job.kill()

    def _calls(self) -> dict[str, dict[str, tuple[Any, Any, Callable[..., Any]]]]:
        """By service and call: how its request is read, how its answer is written, and what makes that."""
        from google.cloud import dataproc_v1
        from google.longrunning import operations_pb2
        from google.protobuf import empty_pb2

        job, batch = dataproc_v1.Job.serialize, dataproc_v1.Batch.serialize
        operation, nothing = operations_pb2.Operation.SerializeToString, empty_pb2.Empty.SerializeToString
        asked, cancelled = operations_pb2.GetOperationRequest, operations_pb2.CancelOperationRequest
        return {
            "google.cloud.dataproc.v1.JobController": {
                "SubmitJob": (dataproc_v1.SubmitJobRequest.deserialize, job, self._submit_job),
                "GetJob": (dataproc_v1.GetJobRequest.deserialize, job, self._get_job),
                "CancelJob": (dataproc_v1.CancelJobRequest.deserialize, job, self._cancel_job),
            },
            "google.cloud.dataproc.v1.BatchController": {
                "CreateBatch": (dataproc_v1.CreateBatchRequest.deserialize, operation, self._create_batch),
                "GetBatch": (dataproc_v1.GetBatchRequest.deserialize, batch, self._get_batch),
            },
            "google.longrunning.Operations": {
                "GetOperation": (asked.FromString, operation, self._get_operation),
                "CancelOperation": (cancelled.FromString, nothing, self._cancel_operation),
            },
        }

    def _handler(self, name: str, read: Any, write: Any, answer: Callable[[Any, Any], Any]) -> Any:
        import grpc

        def handle(request: Any, context: Any) -> Any:
            self.requests.append(f"{'GET' if name.startswith('Get') else 'POST'} {name}")
            if _who(dict(context.invocation_metadata()).get("authorization", "")) != ROBOT:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials.")
            return answer(request, context)

        return grpc.unary_unary_rpc_method_handler(handle, request_deserializer=read, response_serializer=write)

    # jobs

    def _submit_job(self, request: Any, context: Any) -> Any:
        import grpc

        program = request.job.pyspark_job
        if not request.job.placement.cluster_name or not program.main_python_file_uri:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "A cluster's name and a pyspark_job's main file are needed."
            )
        wanted = request.job.reference.job_id
        job_id = self._start(request, wanted, program.main_python_file_uri, program.args, context)
        return self._job(job_id)

    def _get_job(self, request: Any, context: Any) -> Any:
        self._check_known(request.job_id, context)
        return self._job(request.job_id)

    def _cancel_job(self, request: Any, context: Any) -> Any:
        self._check_known(request.job_id, context)
        self.jobs[request.job_id].kill()
        return self._job(request.job_id)

    def _job(self, job_id: str) -> Any:
        from google.cloud import dataproc_v1

        job = self.jobs[job_id]
        state = _state(job, "RUNNING", "DONE", "ERROR", "CANCELLED")
        details = "\n".join(job.lines[-5:]) if state == "ERROR" else ""
        return dataproc_v1.Job(
            reference={"project_id": PROJECT, "job_id": job_id},
            placement=job.request["asked"].job.placement,
            status={"state": dataproc_v1.JobStatus.State[state], "details": details},
        )

    # batches

    def _create_batch(self, request: Any, context: Any) -> Any:
        import grpc
        from google.cloud import dataproc_v1
        from google.longrunning import operations_pb2
        from google.protobuf import any_pb2

        program = request.batch.pyspark_batch
        if not program.main_python_file_uri:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "A pyspark_batch's main file is needed.")
        batch_id = self._start(request, request.batch_id, program.main_python_file_uri, program.args, context)
        batch = self._batch(batch_id)
        metadata = any_pb2.Any()
        metadata.Pack(dataproc_v1.BatchOperationMetadata.pb(dataproc_v1.BatchOperationMetadata(batch=batch.name)))
        return operations_pb2.Operation(name=batch.operation, metadata=metadata)

    def _get_batch(self, request: Any, context: Any) -> Any:
        batch_id = request.name.rpartition("/")[2]
        self._check_known(batch_id, context)
        return self._batch(batch_id)

    def _get_operation(self, request: Any, context: Any) -> Any:
        from google.longrunning import operations_pb2

        batch_id = request.name.rpartition("/")[2]
        self._check_known(batch_id, context)
        return operations_pb2.Operation(name=request.name, done=self.jobs[batch_id].code is not None)

    def _cancel_operation(self, request: Any, context: Any) -> Any:
        from google.protobuf import empty_pb2

        batch_id = request.name.rpartition("/")[2]
        self._check_known(batch_id, context)
        self.jobs[batch_id].kill()
        return empty_pb2.Empty()

    def _batch(self, batch_id: str) -> Any:
        from google.cloud import dataproc_v1

        job = self.jobs[batch_id]
        state = _state(job, "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
        return dataproc_v1.Batch(
            name=f"{job.request['asked'].parent}/batches/{batch_id}",
            state=dataproc_v1.Batch.State[state],
            state_message="\n".join(job.lines[-5:]) if state == "FAILED" else "",
            operation=f"projects/{PROJECT}/regions/{REGION}/operations/{batch_id}",
        )

    # both

    def _start(self, request: Any, wanted: str, program: str, arguments: Any, context: Any) -> str:
        import grpc

        if request.request_id in self._known:
            return self._known[request.request_id]
        if wanted in self.jobs:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Already exists: {wanted}")
        job_id = wanted or str(uuid.uuid4())
        self.jobs[job_id] = JobProcess.start({"asked": request}, program, [*arguments])
        if request.request_id:
            self._known[request.request_id] = job_id
        return job_id

    def _check_known(self, job_id: str, context: Any) -> None:
        import grpc

        if job_id not in self.jobs:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Not found: {job_id}")


def _state(job: JobProcess, running: str, well: str, badly: str, cancelled: str) -> str:
    if job.code is None:
        return running
    return cancelled if job.is_ended_by_request else well if job.code == 0 else badly


def _who(authorization: str) -> str | None:
    """Whom a signed token names. Its signature is not looked at."""
    pieces = authorization.removeprefix("Bearer ").split(".")
    if len(pieces) != 3:
        return None
    claims = json.loads(base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4)))
    return str(claims["iss"])


@cache
def _certificate() -> tuple[bytes, bytes]:
    """A key, and a certificate of all of Google's names, signed with it. gRPC reads once a process what it trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "of these tests")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("*.googleapis.com")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return key.private_bytes(form, serialization.PrivateFormat.PKCS8, plain), certificate.public_bytes(form)


class _Tunnels(ThreadingTCPServer):
    """An HTTP proxy each of whose tunnels to one of Google's names ends at the ``port`` of this machine."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.port = port


class _Tunnel(StreamRequestHandler):
    def handle(self) -> None:
        method, address, *_ = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        if method != "CONNECT" or not address.endswith(".googleapis.com:443"):
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.server.port)) as there:  # type: ignore[attr-defined]
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=_copy, args=(there, self.connection), daemon=True).start()
            _copy(self.connection, there)


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65_536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one of them has gone
