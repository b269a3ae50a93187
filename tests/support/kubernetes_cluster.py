"""A Kubernetes cluster of this machine: a real API server with its etcd (`kube_apiserver`), and one node.

What a cluster's controllers would do and a test needs is done here: a namespace gets its service account and its root
certificate, a quota its status. Permissions are RBAC's: a namespace has the two roles that docs/kubernetes.md gives
to Airflow's workers and to drivers, and nothing else.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.patience import HANG_S, wait_until
from airflow_recovery.testing.spark_cluster import end_process

PROGRAM = "kube-apiserver-with-etcd"
"""What `scripts/setup.sh --drill` builds beside Python."""

ADMIN, WORKER = "admin", "airflow-worker"
"""The users that the API server knows by a token."""
DRIVER = "spark-driver"
"""The service account of drivers."""

_SERVICE_KEY, _CERTIFICATE, _AUDIT_POLICY, _AUDIT = "service-accounts.pem", "apiserver.crt", "audit.json", "audit.log"


def find_program() -> Path | None:
    """The API server's program, where it was built."""
    beside, on_path = Path(sys.prefix, "bin", PROGRAM), shutil.which(PROGRAM)
    return beside if beside.exists() else Path(on_path) if on_path else None


class KubernetesError(Exception):
    """The API server's refusal: ``status`` is HTTP's, the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class KubernetesCluster:
    """``url`` of the API server; ``folder`` has its certificate, its keys and its log."""

    url: str
    folder: Path
    tokens: Mapping[str, str]

    @property
    def certificate(self) -> Path:
        """What clients check the server by."""
        return self.folder / _CERTIFICATE

    def ask(
        self, method: str, path: str, body: Any = None, *, user: str = ADMIN, merge: bool = False
    ) -> dict[str, Any]:
        """One request: the answer's document. Raises `KubernetesError` where it is refused."""
        kind = "application/merge-patch+json" if merge else "application/json"
        answer = requests.request(
            method,
            self.url + path,
            data=None if body is None else json.dumps(body),
            headers={"Authorization": f"Bearer {self.tokens[user]}", "Content-Type": kind},
            verify=str(self.certificate),
            timeout=HANG_S,
        )
        document: dict[str, Any] = answer.json() if answer.content else {}
        if not answer.ok:
            raise KubernetesError(answer.status_code, str(document.get("message")))
        return document

    def kubeconfig(self, user: str) -> Path:
        """A file with which kubectl's like, and Spark's and Airflow's clients, are ``user``."""
        file = self.folder / f"{user}.kubeconfig"
        server = {"server": self.url, "certificate-authority": str(self.certificate)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        file.write_text(json.dumps(document))
        return file

    def namespace(self, name: str, roles: Mapping[str, Any]) -> None:
        """Make a namespace. ``roles``: the rules of the user `WORKER` and of the service account `DRIVER` in it."""
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        below, rbac = f"/api/v1/namespaces/{name}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}"
        certificate = {"ca.crt": self.certificate.read_text()}
        self.ask("POST", f"{below}/configmaps", {"metadata": {"name": "kube-root-ca.crt"}, "data": certificate})
        subjects: dict[str, dict[str, str]] = {
            WORKER: {"kind": "User", "name": WORKER, "apiGroup": "rbac.authorization.k8s.io"},
            DRIVER: {"kind": "ServiceAccount", "name": DRIVER, "namespace": name},
        }
        for account in ("default", DRIVER):
            self.ask("POST", f"{below}/serviceaccounts", {"metadata": {"name": account}})
        for role, subject in subjects.items():
            self.ask("POST", f"{rbac}/roles", {"metadata": {"name": role}, "rules": roles[role]})
            reference = {"kind": "Role", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
            binding = {"metadata": {"name": role}, "subjects": [subject], "roleRef": reference}
            self.ask("POST", f"{rbac}/rolebindings", binding)

    def change_role(self, namespace: str, role: str, rules: Any) -> None:
        """Let a role of `namespace` have these rules from now on."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{role}"
        self.ask("PATCH", path, {"rules": rules}, merge=True)

    def asked(self, namespace: str) -> dict[str, set[tuple[str, str]]]:
        """Which verbs of which resources have been asked for in a namespace, by the role; also where it was refused."""
        accounts = {f"system:serviceaccount:{namespace}:{DRIVER}": DRIVER, WORKER: WORKER}
        asked: dict[str, set[tuple[str, str]]] = {role: set() for role in accounts.values()}
        whole_lines, _, _ = (self.folder / _AUDIT).read_text().rpartition("\n")
        for line in whole_lines.splitlines():
            event = json.loads(line)
            about, role = event.get("objectRef", {}), accounts.get(event["user"]["username"])
            if role is not None and about.get("namespace") == namespace:
                resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
                asked[role].add((event["verb"], resource))
                if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
                    asked[role].add(("create", resource))  # what a patch makes needs both
        return asked

    def limit(self, namespace: str, **hard: str) -> None:
        """A quota of the namespace that allows no more than ``hard``, beside what is used when it is made."""
        below = f"/api/v1/namespaces/{namespace}/resourcequotas"
        limits = {name.replace("_", "."): amount for name, amount in hard.items()}
        self.ask("POST", below, {"metadata": {"name": "limits"}, "spec": {"hard": limits}})
        used = dict.fromkeys(limits, "0")
        self.ask("PATCH", f"{below}/limits/status", {"status": {"hard": limits, "used": used}}, merge=True)

    def unlimit(self, namespace: str) -> None:
        """Take away what `limit` has made."""
        self.ask("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/limits")

    def secret(self, namespace: str, name: str, values: Mapping[str, str]) -> None:
        """Make a secret."""
        self.ask("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": name}, "stringData": values})

    def pods(self, namespace: str, role: str = "driver") -> list[dict[str, Any]]:
        """Spark's pods of that role, the oldest first."""
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=spark-role%3D{role}"
        found: list[dict[str, Any]] = self.ask("GET", path)["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def delete_pod(self, namespace: str, name: str, *, grace_s: int | None = None) -> None:
        """As ``kubectl delete pod`` does it; with 0, ``--force``."""
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", options)


@contextmanager
def kubernetes_cluster(program: Path) -> Iterator[KubernetesCluster]:
    """A cluster without nodes, ready when it has its own roles. Raises `AssertionError` with the end of its log."""
    with tempfile.TemporaryDirectory(prefix="airflow-recovery-kubernetes-") as name:
        folder, port = Path(name), free_port()
        tokens = {user: secrets.token_hex(16) for user in (ADMIN, WORKER)}
        groups = {ADMIN: "system:masters", WORKER: "people"}
        lines = [f"{token},{user},{user},{groups[user]}" for user, token in tokens.items()]
        (folder / "tokens.csv").write_text("\n".join(lines))
        _make_key(folder / _SERVICE_KEY)
        audit = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
        (folder / _AUDIT_POLICY).write_text(json.dumps(audit))
        cluster = KubernetesCluster(f"https://127.0.0.1:{port}", folder, tokens)
        log = folder / "apiserver.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(program), *_arguments(folder, port, etcd := f"http://127.0.0.1:{free_port()}")],
                env={
                    **os.environ,
                    "ETCD_DIR": str(folder / "etcd"),
                    "ETCD_CLIENTS": etcd,
                    "ETCD_PEERS": f"http://127.0.0.1:{free_port()}",
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        try:
            wait_until(
                lambda: _is_ready(cluster),
                f"{program} to come up",
                describe=lambda: "\n".join(log.read_text(errors="replace").splitlines()[-20:]),
                is_over=lambda: process.poll() is not None,
            )
            yield cluster
        finally:
            end_process(process)


def _arguments(folder: Path, port: int, etcd: str) -> list[str]:
    given = {
        "etcd-servers": etcd,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder,
        "token-auth-file": folder / "tokens.csv",
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": folder / _SERVICE_KEY,
        "service-account-signing-key-file": folder / _SERVICE_KEY,
        "service-cluster-ip-range": "10.96.0.0/16",
        "endpoint-reconciler-type": "none",
        "audit-policy-file": folder / _AUDIT_POLICY,
        "audit-log-path": folder / _AUDIT,
        # Of a node that no controller declares ready.
        "disable-admission-plugins": "TaintNodesByCondition",
    }
    return [f"--{name}={value}" for name, value in given.items()]


def _is_ready(cluster: KubernetesCluster) -> bool:
    try:
        cluster.ask("GET", "/api/v1/namespaces/default")
        cluster.ask("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit")
    except (OSError, requests.RequestException, KubernetesError):
        return False
    return True


def _make_key(file: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
