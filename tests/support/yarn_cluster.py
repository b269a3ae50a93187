"""A real YARN on this machine: a resource manager and a node manager, as processes of their own.

Hadoop's own daemons, of the version that the Spark wheel has its client of, from the jars that ``scripts/setup.sh
--all`` fetches. There is no HDFS: applications put their files into a folder. Everything listens on 127.0.0.1 on free
ports. A marker in the environment of the daemons and of every container tells what is to be killed in the end.

What it does not do: no Kerberos, no log aggregation, no limits on the memory that a container takes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.local_airflow.processes import Processes
from airflow_recovery.testing.local_airflow.reaper import MARKER
from airflow_recovery.testing.patience import HANG_S, NEVER_S
from airflow_recovery.testing.spark_cluster import spark_home
from scripts.jars import fetched_jars

RESOURCE_MANAGER = "resource-manager"
NODE_MANAGER = "node-manager"
MAIN = {
    RESOURCE_MANAGER: "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    NODE_MANAGER: "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEDULER = "yarn.scheduler.capacity"
LIVENESS_MS = str(int(2 * HANG_S * 1000))
"""YARN refuses more than a third of its interval for new keys, which is a day."""


@dataclass(frozen=True)
class YarnCluster:
    """``url`` is the resource manager's web address. ``environment`` is what spark-submit needs to find the cluster."""

    url: str
    folder: Path
    environment: Mapping[str, str]
    processes: Processes

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """What the resource manager says of each application, the oldest first; only those in ``states``, if any."""
        applications = (_answer(f"{self.url}/ws/v1/cluster/apps")["apps"] or {}).get("app", [])
        chosen = (app for app in applications if not states or app["state"] in states)
        return sorted(chosen, key=lambda app: (app["startedTime"], app["id"]))

    def application(self, application_id: str) -> dict[str, Any]:
        """What the resource manager says of one application: ``state``, ``finalStatus``, ``diagnostics``, ..."""
        document: dict[str, Any] = _answer(f"{self.url}/ws/v1/cluster/apps/{application_id}")["app"]
        return document

    def kill(self, application_id: str) -> None:
        """As ``yarn application -kill``."""
        _answer(f"{self.url}/ws/v1/cluster/apps/{application_id}/state", "PUT", {"state": "KILLED"})

    def occupy(self, memory_mb: int, *, queue: str = "default") -> str:
        """Start an application that holds so much memory and does nothing, until it is killed; its id."""
        application_id: str = _answer(f"{self.url}/ws/v1/cluster/apps/new-application", "POST")["application-id"]
        submission = {
            "application-id": application_id,
            "application-name": "occupies memory",
            "application-type": "YARN",
            "queue": queue,
            "max-app-attempts": 1,
            "am-container-spec": {"commands": {"command": f"exec sleep {NEVER_S}"}},
            "resource": {"memory": memory_mb, "vCores": 1},
        }
        _answer(f"{self.url}/ws/v1/cluster/apps", "POST", submission)
        return application_id

    def logs(self, application_id: str) -> str:
        """What the containers of an application have written."""
        files = sorted((self.folder / "logs" / application_id).glob("*/std*"))
        return "\n".join(f"--- {path.parent.name} {path.name}\n{path.read_text(errors='replace')}" for path in files)


@contextmanager
def yarn_cluster(*, memory_mb: int = 4096, spark_conf: Mapping[str, str] | None = None) -> Iterator[YarnCluster]:
    """A resource manager with the queue ``default``, and one node of ``memory_mb``; ready when the node is registered.

    ``spark_conf``: further lines of the ``spark-defaults.conf`` that ``environment`` leads to. Raises
    `ConfigurationError` where the jars are not there, `LocalAirflowError` with the end of a log where a daemon does not
    come up.
    """
    with tempfile.TemporaryDirectory(prefix="airflow-recovery-yarn-") as name:
        folder = Path(name)
        for part in ("conf", "local", "logs", "staging"):
            (folder / part).mkdir()
        ports = {key: free_port() for key in ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")}
        _write_configuration(folder / "conf", _yarn_site(folder, ports, memory_mb))
        conf = {**_spark_defaults(folder), **(spark_conf or {})}
        (folder / "conf" / "spark-defaults.conf").write_text("".join(f"{key} {conf[key]}\n" for key in conf))
        url = f"http://127.0.0.1:{ports['webapp.']}"
        environment = {"HADOOP_CONF_DIR": str(folder / "conf"), "SPARK_CONF_DIR": str(folder / "conf")}
        processes = Processes(folder)
        processes.guard([folder])
        try:
            for daemon in (RESOURCE_MANAGER, NODE_MANAGER):
                processes.start(daemon, _command(folder, daemon), _daemon_environment(), folder)
            processes.wait_until(lambda: _active_nodes(url) == 1, "a node", lambda: f"of {url}", NODE_MANAGER)
            yield YarnCluster(url, folder, environment, processes)
        finally:
            processes.stop()


def yarn_jars() -> Path:
    """The folder of the daemons' jars. Raises `ConfigurationError` where it is not in this virtual environment."""
    return fetched_jars("yarn", "YARN's jars", "hadoop-client-minicluster", "--all")


def _command(folder: Path, daemon: str) -> list[str]:
    class_path = os.pathsep.join((str(folder / "conf"), f"{yarn_jars()}/*", f"{spark_home()}/jars/*"))
    return [str(_java_home() / "bin" / "java"), *SMALL_JVM.split(), "-Xmx256m", "-cp", class_path, MAIN[daemon]]


def _daemon_environment() -> dict[str, str]:
    """Containers are started with ``$JAVA_HOME/bin/java``, and with nothing else of what this process knows."""
    return {"PATH": os.environ.get("PATH", os.defpath), "JAVA_HOME": str(_java_home()), "LANG": "C.UTF-8"}


def _java_home() -> Path:
    if os.environ.get("JAVA_HOME"):
        return Path(os.environ["JAVA_HOME"])
    java = shutil.which("java")
    if java is None:
        raise ConfigurationError("expected java on the PATH, or JAVA_HOME, found neither: install Java 17")
    return Path(java).resolve().parents[1]


def _yarn_site(folder: Path, ports: Mapping[str, int], memory_mb: int) -> dict[str, str]:
    return {
        **{f"yarn.resourcemanager.{part}address": f"127.0.0.1:{port}" for part, port in ports.items()},
        **{f"yarn.nodemanager.{part}address": "127.0.0.1:0" for part in ("", "localizer.", "webapp.")},
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.env-whitelist": f"JAVA_HOME,LANG,PATH,{MARKER}",
        "yarn.nodemanager.resource.memory-mb": str(memory_mb),
        "yarn.nodemanager.resource.cpu-vcores": "16",
        # A machine whose disk is nearly full, or whose JVMs reserve more than they use, runs tests all the same.
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.scheduler.minimum-allocation-mb": "128",
        # Daemons of other clusters wait for a second before they say anything.
        "yarn.nodemanager.heartbeat.interval-ms": "100",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
        # No node and no application master counts as lost because it is slow.
        "yarn.nm.liveness-monitor.expiry-interval-ms": LIVENESS_MS,
        "yarn.am.liveness-monitor.expiry-interval-ms": LIVENESS_MS,
        # A client whose resource manager is gone gives up, after a quarter of an hour otherwise.
        "yarn.resourcemanager.connect.max-wait.ms": "20000",
        "yarn.resourcemanager.connect.retry-interval.ms": "1000",
        "yarn.resourcemanager.scheduler.class": (
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
        ),
        f"{SCHEDULER}.root.queues": "default",
        f"{SCHEDULER}.root.default.capacity": "100",
        # As many application masters as there is memory for: with the default, a tenth of it, one alone would run.
        f"{SCHEDULER}.maximum-am-resource-percent": "1.0",
    }


def _spark_defaults(folder: Path) -> dict[str, str]:
    sides = {"driver": "spark.yarn.appMasterEnv", "executor": "spark.executorEnv"}
    return {
        # On every node of this cluster: without it, each application would upload 400 MB.
        "spark.yarn.jars": f"local:{spark_home()}/jars/*",
        "spark.yarn.stagingDir": (folder / "staging").as_uri(),
        "spark.ui.showConsoleProgress": "false",
        "spark.yarn.am.waitTime": f"{HANG_S:.0f}s",
        "spark.yarn.am.extraJavaOptions": SMALL_JVM,
        "spark.yarn.am.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        "spark.executor.cores": "1",
        **{f"spark.{side}.extraJavaOptions": SMALL_JVM for side in sides},
        **{f"{variables}.SPARK_LOCAL_IP": "127.0.0.1" for variables in sides.values()},
        **{f"{variables}.PYSPARK_PYTHON": sys.executable for variables in sides.values()},
    }


def _write_configuration(folder: Path, yarn_site: Mapping[str, str]) -> None:
    for name, settings in {"core-site": {"fs.defaultFS": "file:///"}, "yarn-site": yarn_site}.items():
        properties = "".join(
            f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
            for key, value in settings.items()
        )
        (folder / f"{name}.xml").write_text(f"<configuration>\n{properties}</configuration>\n")


def _active_nodes(url: str) -> int:
    try:
        return int(_answer(f"{url}/ws/v1/cluster/metrics")["clusterMetrics"]["activeNodes"])
    except (OSError, ValueError):
        return 0


def _answer(url: str, method: str = "GET", document: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON that the resource manager answers with; empty where it answers with nothing. Raises `OSError`."""
    body = None if document is None else json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        text = answer.read()
    parsed: dict[str, Any] = json.loads(text) if text else {}
    return parsed
