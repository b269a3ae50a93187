"""A real Spark as the run's own, on a machine where another user wants its token, and to answer in its place."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from second_user import CONNECT_IMPOSTOR, OtherUser, needs_second_user, other_user

from airflow_recovery.driver.server_gate import LOOPBACK
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import open_store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.task.run_spark import RunSpark, ServerSlot, StartServer, _machine_secret
from airflow_recovery.testing.patience import NEVER_S

RUN = RunIdentity("d", "date-2024-01-01T000000Z", "g")
LOG = logging.getLogger("tests.run_spark_server")
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
FIRST_ON_THE_PORT = (
    CONNECT_IMPOSTOR
    + r"""
import glob, time
print("LOOKS", flush=True)
while True:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            command = open(path).read()
        except OSError:
            continue
        found = re.search(r"spark\.connect\.grpc\.binding\.port=(\d+)", command)
        if found and sys.argv[1] in command:
            print("PORT", found[1], flush=True)
            if found[1] != "0":
                address = re.search(r"spark\.connect\.grpc\.binding\.address=([^\0]+)", command)[1]
                serve_all(socket.create_server((address, int(found[1]))))
            sys.exit()
    time.sleep(0.01)
"""
)
ASK_ALL = r"""
import socket, struct, sys
for port in map(int, sys.argv[1:]):
    message = b"\xff" * 64
    request = bytes([3]) + struct.pack(">qi", 1, len(message)) + message  # as Spark's processes ask each other
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(struct.pack(">q", 8 + len(request)) + request)
            answer = b""
            while len(answer) < 4096 and (piece := client.recv(4096)):
                answer += piece
    except OSError:
        pass
    print("ANSWER", port, answer, flush=True)
"""
pytestmark = [pytest.mark.spark, needs_second_user]


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outside_connect: None) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_OWN", json.dumps({"conn_type": "spark", "host": "local[2]"}))


@pytest.fixture
def run_spark(tmp_path: Path) -> Iterator[RunSpark]:
    spec = StoreSpec(f"file://{tmp_path}/journal")
    stores: Any = SimpleNamespace(journal=open_store(spec.uri), journal_spec=spec, results_spec=spec, results=None)
    spark = RunSpark(stores, RUN, secret=_machine_secret(), log=LOG)
    yield spark
    if spark._channel is not None:
        spark._channel.close()
    spark.end()


def starting(name: str, conf: dict[str, str] | None = None) -> StartServer:
    operator = SparkSubmitOperator(task_id="start", conn_id="own", conf={**CONF, **(conf or {})})
    return StartServer(operator, name, "worker-1", "127.0.0.1", NEVER_S, NEVER_S)


def test_fault_375_another_user_who_reads_the_arguments_can_not_be_first_on_the_port(
    run_spark: RunSpark, tmp_path: Path
) -> None:
    with other_user(FIRST_ON_THE_PORT, tmp_path.name) as other:
        other.wait_says("LOOKS")
        address = run_spark.find_or_start(starting(f"d.{tmp_path.name}"))
        other.wait_says("PORT")
        assert "TOKEN" not in other.text()
        assert other.text().endswith("PORT 0\n")
    assert run_spark.find() == address
    assert not address.lets_strangers_in()


def server_of(run_spark: RunSpark) -> psutil.Process:
    (slot,) = (ServerSlot(**json.loads(run_spark._slots.get(number) or b"")) for number in run_spark._slots.numbers())
    (server,) = psutil.Process(slot.keeper).children()
    return server


def ports_of(server: psutil.Process) -> list[int]:
    """What it listens on, behind its gate."""
    return [
        connection.laddr.port
        for connection in server.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr.ip.removeprefix("::ffff:") in (LOOPBACK, "0.0.0.0", "::")
    ]


def asked_by_another(run_spark: RunSpark, conf: dict[str, str] | None = None) -> str:
    """What the ports of the server answer to another user who sends them a message."""
    run_spark.find_or_start(starting("d.g", conf))
    ports = ports_of(server_of(run_spark))
    assert len(ports) >= 2  # Connect, and the driver's own
    return OtherUser(ASK_ALL, *ports).wait()


UNPACKS = "org.apache.spark.rpc.netty.RequestMessage"
"""The class that reads a message, whoever sent it, once it has come to the driver."""


def test_fault_375_no_message_of_another_user_comes_to_the_driver(run_spark: RunSpark) -> None:
    said = asked_by_another(run_spark)
    assert "SaslMessage" in said
    assert UNPACKS not in said


def test_fault_375_control_without_a_secret_a_driver_reads_what_anybody_sends(run_spark: RunSpark) -> None:
    assert UNPACKS in asked_by_another(run_spark, {"spark.authenticate": "false"})
