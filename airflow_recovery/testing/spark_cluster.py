"""A real standalone cluster, Spark Connect server and history server from the Spark wheel, for demo, tests, benchmarks.

Everything listens on 127.0.0.1 on free ports, and dies with the process that started it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_recovery.driver.connect_server import CLIENT_VARIABLES
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.patience import HANG_S, wait_until


@dataclass(frozen=True)
class StandaloneCluster:
    """``master_url`` for ``--master``; ``ui_url`` answers JSON below ``/json/``."""

    master_url: str
    ui_url: str

    def applications(self) -> list[str]:
        """The names of all applications that it has run or runs."""
        document = _json(self.ui_url) or {}
        return [str(app["name"]) for key in ("activeapps", "completedapps") for app in document.get(key, [])]

    def drivers(self) -> list[str]:
        """The ids of all drivers that were submitted to it in deploy mode ``cluster``."""
        document = _json(self.ui_url) or {}
        return [str(app["id"]) for key in ("activedrivers", "completeddrivers") for app in document.get(key, [])]


@dataclass(frozen=True)
class ConnectServer:
    """``url`` for ``SparkSession.builder.remote``; ``pid`` of its JVM; ``log`` is a file."""

    url: str
    port: int
    pid: int
    log: Path


@contextmanager
def standalone_cluster(*, cores: int = 2, memory: str = "1g", home: Path | None = None) -> Iterator[StandaloneCluster]:
    """A master and one worker with ``cores`` and ``memory``, ready when the worker is registered.

    ``home`` is the folder of another Spark than the installed one. Raises `ConfigurationError` with the end of the log
    where one of them does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="airflow-recovery-cluster-") as folder:
        port, master_ui, worker_ui = free_port(), free_port(), free_port()
        cluster = StandaloneCluster(f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{master_ui}")
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", str(cores)]
        with _child(Path(folder), "spark-class", [*master, "--webui-port", str(master_ui)], home=home) as running:
            _wait(running, lambda: _json(cluster.ui_url) is not None)
            arguments = [*worker, "--memory", memory, "--webui-port", str(worker_ui), cluster.master_url]
            with _child(Path(folder), "spark-class", arguments, home=home) as running:
                _wait(running, lambda: (_json(cluster.ui_url) or {}).get("aliveworkers") == 1)
                yield cluster


@contextmanager
def connect_server(
    *,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    port: int | None = None,
    home: Path | None = None,
) -> Iterator[ConnectServer]:
    """A Spark Connect server on ``master``, ready when it accepts connections. Otherwise as `standalone_cluster`."""
    with tempfile.TemporaryDirectory(prefix="airflow-recovery-connect-") as folder:
        port = port or free_port()
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **(conf or {}),
        }
        arguments = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--name", "connect"]
        arguments += ["--master", master, *(name for key in settings for name in ("--conf", f"{key}={settings[key]}"))]
        # The wheel has no start-connect-server.sh.
        with _child(Path(folder), "spark-submit", [*arguments, "spark-internal"], home=home) as running:
            _wait(running, lambda: _accepts(port))
            yield ConnectServer(f"sc://127.0.0.1:{port}", port, running.process.pid, running.log)


@contextmanager
def history_server(events: Path) -> Iterator[str]:
    """The URL of a history server for the applications whose event logs are in ``events``. Raises as the others.

    A new log is found within a second.
    """
    port = free_port()
    conf = {"fs.logDirectory": events.as_uri(), "ui.port": port, "fs.update.interval": "1s"}
    options = " ".join(f"-Dspark.history.{key}={value}" for key, value in conf.items())
    with tempfile.TemporaryDirectory(prefix="airflow-recovery-history-") as folder:
        server = ["org.apache.spark.deploy.history.HistoryServer"]
        with _child(Path(folder), "spark-class", server, {"SPARK_HISTORY_OPTS": options}) as running:
            _wait(running, lambda: _accepts(port))
            yield f"http://127.0.0.1:{port}"


def spark_home() -> Path:
    """The folder of the Spark that comes with the installed `pyspark`."""
    spec = importlib.util.find_spec("pyspark")
    folders = [Path(location) for location in (spec.submodule_search_locations if spec is not None else None) or ()]
    if not folders or not (folders[0] / "bin" / "spark-submit").exists():
        # pyspark-client, which Airflow's Spark provider needs, is a pyspark without Spark.
        raise ConfigurationError(
            "expected pyspark with Spark in it, found "
            f"{'its client alone' if folders else 'none'}: pip install 'airflow-recovery[spark]'"
        )
    return folders[0]


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def _child(
    folder: Path,
    script: str,
    arguments: list[str],
    settings: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Iterator[_Child]:
    home = home or spark_home()
    log = folder / f"{arguments[0].rpartition('.')[2].strip('-')}.log"
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        # A worker that is slow is not lost.
        "SPARK_MASTER_OPTS": f"-Dspark.worker.timeout={HANG_S:.0f}",
        **(settings or {}),
    }
    # Code reaches executors by the archive alone, as it does on a cluster of other machines.
    for name in ("PYTHONPATH", *CLIENT_VARIABLES):
        environment.pop(name, None)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(home / "bin" / script), *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # Spark's scripts exec the JVM: it keeps the process id and this request
        )
    try:
        yield _Child(process, log)
    finally:
        end_process(process)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end. Kill it if it has not ended after 20 s: what is left then is lost."""
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(child: _Child, is_ready: Callable[[], bool]) -> None:
    def is_over() -> bool:
        return child.process.poll() is not None

    def describe() -> str:
        end = "\n".join(child.log.read_text(errors="replace").splitlines()[-20:])
        return f"Its exit code is {child.process.returncode}. Its log:\n{end}"

    try:
        wait_until(is_ready, f"{child.process.args!r} to come up", describe=describe, is_over=is_over)
    except AssertionError as error:
        raise ConfigurationError(str(error)) from None


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(HANG_S)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _json(ui_url: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"{ui_url}/json/", timeout=HANG_S) as answer:
            document = json.load(answer)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
