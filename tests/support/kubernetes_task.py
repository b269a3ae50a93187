"""A task whose drivers are pods (`tries_on_cluster`), in a namespace of its own, set up as docs/kubernetes.md says."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes_cluster import DRIVER, WORKER, KubernetesCluster
from kubernetes_node import Node
from tries_on_cluster import BUCKET, ClusterTask, spark_connection

from airflow_recovery.testing.patience import wait_until
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from scripts.jars import s3a_jars

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"


def documented_roles() -> dict[str, list[dict[str, Any]]]:
    """The rules that the page gives to workers and to drivers."""
    blocks = re.findall(r"<!-- role: (\w+) -->\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"worker": WORKER, "driver": DRIVER}
    return {names[role]: yaml.safe_load(text) for role, text in blocks}


def documented_rights() -> dict[str, set[tuple[str, str]]]:
    """Those rules as `KubernetesCluster.asked` has what was asked for."""
    return {
        role: {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
        for role, rules in documented_roles().items()
    }


def documented_conf() -> dict[str, str]:
    """``conf`` of the page's example."""
    found = re.search(r"conf=(\{.*?\n    \})", PAGE.read_text(), re.DOTALL)
    assert found is not None
    conf: dict[str, str] = ast.literal_eval(found[1])
    return conf


def spark_defaults(cluster: KubernetesCluster, s3: str) -> dict[str, str]:
    """What this machine's Spark is told beside that: where S3 and the API server are, and to be small."""
    return {
        "spark.kubernetes.driver.master": cluster.url,
        "spark.hadoop.fs.s3a.endpoint": s3,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.kubernetes.driverEnv.AWS_ENDPOINT_URL_S3": s3,
        "spark.kubernetes.driverEnv.AWS_DEFAULT_REGION": REGION,
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "1",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.kubernetes.allocation.batch.delay": "200ms",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
    }


@dataclass
class PodTask(ClusterTask):
    """Its namespace is called as its folder, and has the page's roles, and the secret that the page's example names."""

    cluster: KubernetesCluster
    node: Node

    def __post_init__(self) -> None:
        super().__post_init__()
        conf = {**documented_conf(), "spark.kubernetes.file.upload.path": f"s3a://{BUCKET}/{self.folder.name}/uploads"}
        self.options = {"track_driver_via_k8s_api": True, "conf": conf, **self.options}
        self.cluster.namespace(self.namespace, documented_roles())
        self.cluster.secret(self.namespace, "s3", {"key": ACCESS_KEY, "secret": SECRET_KEY})

    @property
    def namespace(self) -> str:
        return self.folder.name

    def cluster_environment(self) -> dict[str, str]:
        kubeconfig = str(self.cluster.kubeconfig(WORKER))
        defaults = self.folder / "conf" / "spark-defaults.conf"
        defaults.parent.mkdir(exist_ok=True)
        settings = spark_defaults(self.cluster, self.endpoint_url)
        defaults.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return {
            "KUBECONFIG": kubeconfig,
            "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
            "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": kubeconfig,
            "SPARK_CONF_DIR": str(defaults.parent),
            "SPARK_DIST_CLASSPATH": f"{s3a_jars()}/*",
            **spark_connection(f"k8s://{self.cluster.url}", {"deploy-mode": "cluster", "namespace": self.namespace}),
        }

    def withhold(self, role: str, resource: str, *verbs: str) -> None:
        """Take these rights on a resource from a role; without ``verbs``, all of them."""
        rules = [
            {
                **rule,
                "resources": [one],
                "verbs": [verb for verb in rule["verbs"] if one != resource or (verbs and verb not in verbs)],
            }
            for rule in documented_roles()[role]
            for one in rule["resources"]
        ]
        self.cluster.change_role(self.namespace, role, [rule for rule in rules if rule["verbs"]])

    def pods(self) -> list[str]:
        """The names of its drivers' pods that are there, the oldest first."""
        return [pod["metadata"]["name"] for pod in self.cluster.pods(self.namespace)]

    def pod_of(self, attempt: int) -> str:
        """The name that an attempt's pod has by its claim."""
        return f"{self.claim_of(attempt).tag}-driver"

    def until_pod_waits(self, attempt: int = 1) -> str:
        """Until that attempt's driver is at the gate; its pod."""
        self.until_waiting(attempt)
        return self.pod_of(attempt)

    def until_executor_runs(self) -> str:
        """Until an executor's container runs; its pod."""

        def running() -> list[str]:
            pods = [pod["metadata"]["name"] for pod in self.cluster.pods(self.namespace, "executor")]
            return [pod for pod in pods if self.node.is_running(pod)]

        self.until(running, "an executor runs")
        return running()[0]

    def until_gone(self, pod: str) -> None:
        """Until the API server has no such pod, and nothing of it runs."""
        wait_until(lambda: pod not in self.pods() and not self.node.is_running(pod), f"{pod} is gone")

    def end(self) -> None:
        super().end()
        for role in ("driver", "executor"):
            for pod in self.cluster.pods(self.namespace, role):
                self.cluster.delete_pod(self.namespace, pod["metadata"]["name"], grace_s=0)
