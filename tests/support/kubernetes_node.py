"""A node of a `KubernetesCluster`: binds pods, runs them as processes of this machine, and says what becomes of them.

A pod sees this machine's files with an overlay: what it writes is its own, and /tmp, where tasks keep their files, is
empty. Its volumes are mounted where it asks for them. Its address is one of 127.0.1.0/24; its host name is the pod's,
and names of services stand in its /etc/hosts. Every image is Spark's: a Spark and its Python, those that the tests run
with where the node is told of no other, and the commands of the entry point, ``driver``, ``executor``, or any other.
The API server asks it for the logs of pods. Needs root, or user namespaces, as container runtimes do.
"""

from __future__ import annotations

import base64
import itertools
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes_cluster import KubernetesCluster, KubernetesError

from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.spark_cluster import spark_home
from scripts.sparks import Spark

NAME = "node"
LOOK_EVERY_S = 0.2
WORK_FOLDER = "/opt/spark/work-dir"
_TERMINAL = ("Succeeded", "Failed")


class Node:
    """The only node of ``cluster``. ``extra_jars``: a class path that images have besides Spark's.

    ``images``: by the name of an image, its Spark, where that is another one.
    """

    def __init__(
        self, cluster: KubernetesCluster, folder: Path, extra_jars: str = "", images: Mapping[str, Spark] | None = None
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.is_full = False
        """No pod is bound: new ones stay pending."""
        self._extra_jars = extra_jars
        self._images = images or {}
        self._containers: dict[str, _Container] = {}
        self._addresses = itertools.count(1)
        self._stopped = threading.Event()
        self._is_cut_off = threading.Event()
        self._kubelet = _kubelet(self, cluster.folder)

    def log_of(self, pod: str) -> str:
        """What a pod's container has printed."""
        return (self.folder / f"{pod}.log").read_text(errors="replace")

    def is_running(self, pod: str) -> bool:
        """Whether a process of that pod runs here, whatever the API server says of it."""
        return any(container.name == pod and container.is_alive for container in self._containers.values())

    def evict(self, pod: str, why: str = "The node was low on resource: memory.") -> None:
        """As a kubelet does under pressure: the container is killed, and the pod has failed."""
        self._end(pod, _Ended("Failed", {"reason": "Evicted", "message": why}))

    def kill_for_memory(self, pod: str) -> None:
        """As the kernel does where a container exceeds its limit."""
        self._end(pod, _Ended("Failed", {}, container_reason="OOMKilled"))

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Inside, the node hears nothing from the API server, and says nothing: its containers run on."""
        self._is_cut_off.set()
        try:
            yield
        finally:
            self._is_cut_off.clear()

    def run(self) -> None:
        """Look at the pods until `stop`; for a thread."""
        threading.Thread(target=self._kubelet.serve_forever, name="kubelet", daemon=True).start()
        self._register()
        while not self._stopped.wait(LOOK_EVERY_S):
            if self._is_cut_off.is_set():
                continue
            with suppress(OSError, KubernetesError):  # the next look may go well
                self._look()

    def stop(self) -> None:
        """Kill every container."""
        self._stopped.set()
        for container in self._containers.values():
            container.kill()
        for container in self._containers.values():
            container.thread.join(HANG_S)
        self._kubelet.shutdown()
        self._kubelet.server_close()

    def _register(self) -> None:
        address = [{"type": "InternalIP", "address": "127.0.0.1"}]
        port = {"kubeletEndpoint": {"Port": self._kubelet.server_address[1]}}
        self.cluster.ask("POST", "/api/v1/nodes", {"metadata": {"name": NAME}})
        body = {"status": {"addresses": address, "daemonEndpoints": port}}
        self.cluster.ask("PATCH", f"/api/v1/nodes/{NAME}/status", body, merge=True)

    def _look(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self.cluster.ask("GET", "/api/v1/pods")["items"]}
        for uid, pod in pods.items():
            if "nodeName" not in pod["spec"]:
                if not self.is_full:
                    self._bind(pod)
            elif pod["status"].get("phase") not in _TERMINAL and uid not in self._containers:
                address = f"127.0.1.{next(self._addresses) % 250 + 1}"
                self._containers[uid] = _Container(self, pod, address)
                self._containers[uid].thread.start()
            elif pod["metadata"].get("deletionTimestamp") and uid in self._containers:
                self._containers[uid].terminate(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        for uid, container in self._containers.items():
            if uid not in pods:  # deleted by force
                container.kill()

    def _bind(self, pod: dict[str, Any]) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NAME}
        with suppress(KubernetesError):  # deleted meanwhile
            self.cluster.ask("POST", f"{path_of(pod)}/binding", {"metadata": pod["metadata"], "target": target})

    def _end(self, pod: str, ended: _Ended) -> None:
        container = next(one for one in self._containers.values() if one.name == pod and one.is_alive)
        container.ended_by = ended
        container.kill()

    def environment(self, image: str) -> dict[str, str]:
        """What the image sets."""
        spark = self._images.get(image)
        python = sys.executable if spark is None else str(spark.python)
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "SPARK_HOME": str(spark_home() if spark is None else spark.home),
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_DIST_CLASSPATH": self._extra_jars,
            "JDK_JAVA_OPTIONS": os.environ.get("JDK_JAVA_OPTIONS", ""),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": self.cluster.url.rpartition(":")[2],
        }


@contextmanager
def node_of(
    cluster: KubernetesCluster, extra_jars: str = "", images: Mapping[str, Spark] | None = None
) -> Iterator[Node]:
    """A node that looks after the cluster's pods."""
    folder = Path(tempfile.mkdtemp(prefix="airflow-recovery-node-"))
    node = Node(cluster, folder, extra_jars, images)
    thread = threading.Thread(target=node.run, name="node", daemon=True)
    thread.start()
    try:
        yield node
    finally:
        node.stop()
        thread.join(HANG_S)
        shutil.rmtree(folder, ignore_errors=True)


def _kubelet(node: Node, certificates: Path) -> ThreadingHTTPServer:
    """What the API server asks for the end of a log: ``/containerLogs/<namespace>/<pod>/<container>?tailLines=<n>``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            (_, _, _, pod, _), query = asked.path.split("/"), parse_qs(asked.query)
            lines = node.log_of(pod).splitlines(keepends=True)
            body = "".join(lines[-int(query.get("tailLines", ["0"])[0]) :]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def path_of(pod: dict[str, Any]) -> str:
    """Its path in the API."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


@dataclass
class _Ended:
    """What a pod has come to: its phase, and what its status and its container's say beside that."""

    phase: str
    status: dict[str, str] = field(default_factory=dict)
    container_reason: str = "Error"


class _Container:
    """The one container of a pod, from its start to its end; `thread` does the work."""

    def __init__(self, node: Node, pod: dict[str, Any], address: str) -> None:
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.ended_by: _Ended | None = None
        self._node, self._pod, self._address = node, pod, address
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=node.folder))
        self._spec: dict[str, Any] = pod["spec"]["containers"][0]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_told_to_end = threading.Event()
        self._kill_at: float | None = None
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def terminate(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after ``grace_s``."""
        if not self._is_told_to_end.is_set():
            self._kill_at = time.monotonic() + grace_s
            self._is_told_to_end.set()
            if (pid := self._first_process()) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        self._is_told_to_end.set()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()  # and with it, all that it has started

    def _first_process(self) -> int | None:
        if self._process is None:
            return None
        pid = self._process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def _run(self) -> None:
        volumes = self._mounted_volumes()
        if volumes is None:
            self._ask("DELETE", path_of(self._pod), {"gracePeriodSeconds": 0})
            return
        script = self._folder / "start.sh"
        script.write_text(self._script(volumes))
        # The machine's own folders are not the container's; its processes end with it.
        command = [
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            str(script),
            *self._command(),
        ]
        if os.geteuid() != 0:
            command.insert(1, "--map-root-user")
        environment = self._environment()
        with (self._node.folder / f"{self.name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        started = _now()
        self._tell("Running", {"running": {"startedAt": started}})
        code = self._wait()
        ended = self.ended_by or _Ended("Succeeded" if code == 0 else "Failed")
        said = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else ended.container_reason,
            "startedAt": started,
            "finishedAt": _now(),
        }
        shutil.rmtree(self._folder, ignore_errors=True)
        while self._node._is_cut_off.is_set():
            time.sleep(LOOK_EVERY_S)
        self._tell(ended.phase, {"terminated": said}, **ended.status)
        if self._is_told_to_end.is_set() and self.ended_by is None:
            self._ask("DELETE", path_of(self._pod), {"gracePeriodSeconds": 0})

    def _wait(self) -> int:
        process = self._process
        assert process is not None
        while (code := process.poll()) is None:
            time.sleep(LOOK_EVERY_S)
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self.kill()
        return code if code >= 0 else 128 - code

    def _tell(self, phase: str, state: dict[str, Any], **more: str) -> None:
        container = {
            "name": self._spec["name"],
            "image": self._spec["image"],
            "imageID": self._spec["image"],
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        status = {"phase": phase, "podIP": self._address, "containerStatuses": [container], **more}
        status["podIPs"] = [{"ip": self._address}]
        # Of this very pod: another one may have its name by now.
        body = {"metadata": {"uid": self._pod["metadata"]["uid"]}, "status": status}
        self._ask("PATCH", f"{path_of(self._pod)}/status", body, merge=True)

    def _ask(self, method: str, path: str, body: dict[str, Any], *, merge: bool = False) -> None:
        if method == "DELETE":
            body = {**body, "preconditions": {"uid": self._pod["metadata"]["uid"]}}
        with suppress(KubernetesError):  # deleted by force
            self._node.cluster.ask(method, path, body, merge=merge)

    # what the container is given

    def _command(self) -> list[str]:
        """As the entry point of Spark's image has it."""
        role, *arguments = self._spec["args"]
        given = self._environment()
        home = self._node.environment(self._spec["image"])["SPARK_HOME"]
        if role == "driver":
            bind = f"spark.driver.bindAddress={given['SPARK_DRIVER_BIND_ADDRESS']}"
            return [f"{home}/bin/spark-submit", "--conf", bind, "--deploy-mode", "client", *arguments]
        if role != "executor":
            return [role, *arguments]
        numbered = sorted((name for name in given if name.startswith("SPARK_JAVA_OPT_")), key=lambda n: int(n[15:]))
        path = ":".join(filter(None, (given.get("SPARK_CONF_DIR"), f"{home}/jars/*", given["SPARK_DIST_CLASSPATH"])))
        named = {
            "--driver-url": "SPARK_DRIVER_URL",
            "--executor-id": "SPARK_EXECUTOR_ID",
            "--cores": "SPARK_EXECUTOR_CORES",
            "--app-id": "SPARK_APPLICATION_ID",
            "--hostname": "SPARK_EXECUTOR_POD_IP",
            "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
            "--podName": "SPARK_EXECUTOR_POD_NAME",
        }
        return [
            str(shutil.which("java")),
            *(given[name] for name in numbered),
            f"-Xms{given['SPARK_EXECUTOR_MEMORY']}",
            f"-Xmx{given['SPARK_EXECUTOR_MEMORY']}",
            "-cp",
            path,
            "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
            *(word for option, name in named.items() for word in (option, given[name])),
        ]

    def _environment(self) -> dict[str, str]:
        fields = {
            "status.podIP": self._address,
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
        }
        values = self._node.environment(self._spec["image"])
        for variable in self._spec.get("env", ()):
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                values[variable["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                values[variable["name"]] = self._secret(source["secretKeyRef"]["name"])[source["secretKeyRef"]["key"]]
            else:
                values[variable["name"]] = variable.get("value", "")
        return values

    def _secret(self, name: str) -> dict[str, str]:
        data = self._node.cluster.ask("GET", f"/api/v1/namespaces/{self.namespace}/secrets/{name}")["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def _mounted_volumes(self) -> dict[str, Path] | None:
        """The folders of its volumes. As a kubelet does, waits for what they name; `None`: the pod is deleted first."""
        while True:
            try:
                return {volume["name"]: self._volume(volume) for volume in self._pod["spec"].get("volumes", ())}
            except KubernetesError as error:
                if error.status != 404:
                    raise
            if self._is_told_to_end.wait(LOOK_EVERY_S):
                return None

    def _volume(self, volume: dict[str, Any]) -> Path:
        folder = self._folder / "volumes" / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        for source in volume.get("projected", {}).get("sources") or (volume,):
            for name, text in self._files(source).items():
                (folder / name).write_text(text)
        return folder

    def _files(self, source: dict[str, Any]) -> dict[str, str]:
        below = f"/api/v1/namespaces/{self.namespace}"
        if "configMap" in source:
            asked = source["configMap"]
            data: dict[str, str] = self._node.cluster.ask("GET", f"{below}/configmaps/{asked['name']}")["data"]
            return _chosen(data, asked)
        if "secret" in source:
            return _chosen(self._secret(source["secret"]["secretName"]), source["secret"])
        if "serviceAccountToken" in source:
            asked = source["serviceAccountToken"]
            account = f"{below}/serviceaccounts/{self._pod['spec']['serviceAccountName']}/token"
            answer = self._node.cluster.ask("POST", account, {"spec": {"expirationSeconds": 3600}})
            return {asked["path"]: answer["status"]["token"]}
        if "downwardAPI" in source:
            return {item["path"]: self.namespace for item in source["downwardAPI"]["items"]}
        return {}

    def _script(self, volumes: dict[str, Path]) -> str:
        root = self._folder / "root"
        root.mkdir()
        hosts = self._folder / "hosts"
        known = [("localhost", "127.0.0.1"), (self.name, self._address), *self._services()]
        hosts.write_text("".join(f"{ip} {name}\n" for name, ip in known))
        lines = [
            "set -e",
            f"cd {shlex.quote(str(self._folder))}",
            f"hostname {shlex.quote(self.name)}",
            "mkdir own && mount -t tmpfs none own && mkdir own/upper own/work",
            "mount -t overlay overlay -o lowerdir=/,upperdir=own/upper,workdir=own/work root",
            "mount -t proc proc root/proc",
            "mount --rbind /dev root/dev",
            "mount -t tmpfs none root/tmp",
            "mount --bind hosts root/etc/hosts",
            *(
                f"mount --bind {shlex.quote(volume['hostPath']['path'])} {shlex.quote(str(volumes[volume['name']]))}"
                for volume in self._pod["spec"].get("volumes", ())
                if "hostPath" in volume
            ),
            f"mkdir -p volumes root{WORK_FOLDER} root/volumes && mount --rbind volumes root/volumes",
        ]
        for mount in self._spec.get("volumeMounts", ()):
            source, target = volumes[mount["name"]], shlex.quote(mount["mountPath"])
            if "subPath" in mount:
                source /= mount["subPath"]
            place = f"mkdir -p {target}" if source.is_dir() else f"mkdir -p $(dirname {target}) && touch {target}"
            inside = shlex.quote(f"/volumes/{source.relative_to(self._folder / 'volumes')}")
            # In there, where links lead elsewhere: /var/run is one.
            lines.append(f"chroot root sh -c {shlex.quote(f'{place} && mount --bind {inside} {target}')}")
        lines.append(f'exec chroot root sh -c \'cd {WORK_FOLDER} && exec "$@"\' container "$@"')
        return "\n".join(lines) + "\n"

    def _services(self) -> Iterator[tuple[str, str]]:
        """The names of the namespace's headless services, with the address of the pod that each selects."""
        below = f"/api/v1/namespaces/{self.namespace}"
        pods = self._node.cluster.ask("GET", f"{below}/pods")["items"]
        for service in self._node.cluster.ask("GET", f"{below}/services")["items"]:
            wanted = service["spec"].get("selector") or {}
            for pod in pods:
                is_me = pod["metadata"]["uid"] == self._pod["metadata"]["uid"]
                address = self._address if is_me else pod["status"].get("podIP")
                labels = pod["metadata"].get("labels", {}).items()
                if wanted and address and wanted.items() <= labels:
                    yield f"{service['metadata']['name']}.{self.namespace}.svc", address


def _chosen(data: dict[str, str], asked: dict[str, Any]) -> dict[str, str]:
    items = asked.get("items")
    return {item["path"]: data[item["key"]] for item in items} if items else dict(data)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
