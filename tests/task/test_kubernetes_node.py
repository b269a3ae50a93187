"""A cluster of one node for tests: the node against the real API server, and the fake of that server, held to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
from kubernetes_cluster import DRIVER, WORKER, KubernetesCluster, KubernetesError, find_program, kubernetes_cluster
from kubernetes_fake import FakePods, fake_pods
from kubernetes_node import Node, node_of

from airflow_recovery.testing.patience import HANG_S, wait_until

pytestmark = pytest.mark.drill

NAMESPACE = "lake"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RULES = [
    {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["create", "get", "list", "watch", "delete"]},
]
FOR_EVER = ("sleep", "1000")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    program = find_program()
    if program is None:
        pytest.skip("the API server is not built: scripts/setup.sh --drill")
    with kubernetes_cluster(program) as running:
        running.namespace(NAMESPACE, {WORKER: RULES, DRIVER: RULES})
        running.secret(NAMESPACE, "s3", {"key": "the secret"})
        yield running


@pytest.fixture(scope="module")
def node(cluster: KubernetesCluster) -> Iterator[Node]:
    with node_of(cluster) as running:
        yield running


class Pods:
    """Pods of one container that runs a command."""

    def __init__(self, cluster: KubernetesCluster, node: Node) -> None:
        self.cluster, self.node = cluster, node

    def make(self, name: str, *command: str) -> None:
        address = {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        secret = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "key"}}}
        container = {"name": "c", "image": "spark", "args": list(command), "env": [address, secret]}
        spec = {"serviceAccountName": DRIVER, "containers": [container]}
        self.cluster.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec}, user=WORKER)

    def run(self, name: str, *command: str) -> dict[str, Any]:
        """The status at its end."""
        self.make(name, *command)
        return self.status(name, "Succeeded", "Failed")

    def status(self, name: str, *phases: str) -> dict[str, Any]:
        """As soon as it has one of these phases."""
        wait_until(lambda: self.phase(name) in phases, f"{name} is {phases}")
        return dict(self.cluster.ask("GET", f"{PODS}/{name}")["status"])

    def phase(self, name: str) -> str:
        try:
            return str(self.cluster.ask("GET", f"{PODS}/{name}")["status"]["phase"])
        except KubernetesError as error:
            return str(error.status)


@pytest.fixture
def pods(cluster: KubernetesCluster, node: Node) -> Pods:
    return Pods(cluster, node)


def test_a_container_has_files_processes_and_an_address_of_its_own(pods: Pods) -> None:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    mine = f"ls /tmp; ls {account}; cat {account}/namespace; echo; echo $ADDRESS $KEY; echo $$"
    told = f"pwd; {mine}; getent hosts $(hostname); touch /opt/mine; exit 3"
    status = pods.run("told", "sh", "-c", told)
    (container,) = status["containerStatuses"]
    assert (status["phase"], container["state"]["terminated"]["exitCode"]) == ("Failed", 3)
    lines = pods.node.log_of("told").splitlines()
    assert lines == [
        "/opt/spark/work-dir",
        "ca.crt",
        "namespace",
        "token",
        NAMESPACE,
        f"{status['podIP']} the secret",
        "1",
        f"{status['podIP']}       told",
    ]
    assert not Path("/opt/mine").exists()


def test_the_api_server_hands_out_the_end_of_a_log(pods: Pods) -> None:
    pods.run("counts", "seq", "20")
    answer = get(pods.cluster.url, f"{PODS}/counts/log?tailLines=2", pods.cluster)
    assert (answer.status_code, answer.text) == (200, "19\n20\n")


def test_a_deleted_pod_is_told_and_then_killed(pods: Pods) -> None:
    pods.make("listens", "sh", "-c", "trap 'echo told; exit 0' TERM; while true; do sleep 0.1; done")
    pods.status("listens", "Running")
    pods.cluster.delete_pod(NAMESPACE, "listens")
    wait_until(lambda: pods.phase("listens") == "404", "it is gone")
    assert pods.node.log_of("listens") == "told\n"
    pods.make("deaf", "sh", "-c", "trap '' TERM; while true; do sleep 0.1; done")
    pods.status("deaf", "Running")
    pods.cluster.delete_pod(NAMESPACE, "deaf", grace_s=1)
    wait_until(lambda: pods.phase("deaf") == "404", "it is gone")
    assert not pods.node.is_running("deaf")


def test_an_evicted_pod_has_failed_and_stays(pods: Pods) -> None:
    pods.make("heavy", *FOR_EVER)
    pods.status("heavy", "Running")
    pods.node.evict("heavy")
    status = pods.status("heavy", "Failed")
    assert (status["reason"], status["message"]) == ("Evicted", "The node was low on resource: memory.")
    assert not pods.node.is_running("heavy")


def test_a_node_that_is_cut_off_runs_what_was_deleted_by_force(pods: Pods) -> None:
    pods.make("zombie", *FOR_EVER)
    pods.status("zombie", "Running")
    with pods.node.cut_off():
        pods.cluster.delete_pod(NAMESPACE, "zombie", grace_s=0)
        assert (pods.phase("zombie"), pods.node.is_running("zombie")) == ("404", True)
    wait_until(lambda: not pods.node.is_running("zombie"), "it is killed")


def test_a_quota_refuses_a_pod(pods: Pods) -> None:
    pods.cluster.limit(NAMESPACE, pods="0")
    try:
        with pytest.raises(KubernetesError, match=r"exceeded quota: limits, requested: pods=1, used: pods=0"):
            pods.make("too-many", *FOR_EVER)
    finally:
        pods.cluster.unlimit(NAMESPACE)


def get(url: str, path: str, cluster: KubernetesCluster | None, method: str = "GET") -> requests.Response:
    headers = {"Authorization": f"Bearer {cluster.tokens[WORKER]}"} if cluster is not None else {}
    verify = str(cluster.certificate) if cluster is not None else False
    return requests.request(method, url + path, headers=headers, verify=verify, timeout=HANG_S)


def said(answer: requests.Response) -> Any:
    """What of an answer the provider's operator, or this package, reads."""
    if not answer.headers["Content-Type"].startswith("application/json"):
        return answer.status_code, answer.text
    document: Mapping[str, Any] = answer.json()
    if document["kind"] == "Status":
        return answer.status_code, {key: document[key] for key in ("kind", "status", "message", "reason", "code")}
    status = document["status"]
    ends = [container["state"] for container in status.get("containerStatuses", ())]
    terminated = [(end["terminated"]["exitCode"], end["terminated"]["reason"]) for end in ends if "terminated" in end]
    return (
        answer.status_code,
        document["kind"],
        status["phase"],
        status.get("reason"),
        status.get("message"),
        terminated,
    )


def test_the_fake_answers_as_the_api_server_does(pods: Pods) -> None:
    pods.run("ok", "echo", "done")
    pods.run("bad", "sh", "-c", "echo oh; exit 7")
    pods.make("gone-bad", *FOR_EVER)
    pods.status("gone-bad", "Running")
    pods.node.evict("gone-bad")
    pods.status("gone-bad", "Failed")
    with fake_pods() as fake:
        as_there(fake, "ok", "Succeeded", "done\n", terminated={"exitCode": 0, "reason": "Completed"})
        as_there(fake, "bad", "Failed", "oh\n", terminated={"exitCode": 7, "reason": "Error"})
        evicted = {"reason": "Evicted", "message": "The node was low on resource: memory."}
        as_there(fake, "gone-bad", "Failed", "", **evicted, terminated={"exitCode": 137, "reason": "Error"})
        for method, path in [
            *(("GET", f"{PODS}/{name}{rest}") for name in ("ok", "bad", "gone-bad", "none") for rest in ("", "/log")),
            *(("DELETE", f"{PODS}/{name}") for name in ("ok", "ok", "none")),
        ]:
            real, faked = get(pods.cluster.url, path, pods.cluster, method), get(fake.url, path, None, method)
            assert said(faked) == said(real), (method, path)


def as_there(fake: FakePods, name: str, phase: str, log: str, **status: Any) -> None:
    fake.put(NAMESPACE, name, phase, **status)
    fake.logs[NAMESPACE, name] = log
