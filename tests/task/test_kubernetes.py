"""Whole Spark applications on pods, from spark-submit to their end: a real API server, and a node of this machine.

Namespaces have the roles, and the applications the settings, that docs/kubernetes.md gives.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import uuid
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_cluster import DRIVER, WORKER, KubernetesCluster, find_program, kubernetes_cluster
from kubernetes_node import Node, node_of
from kubernetes_task import PAGE, PodTask, documented_conf, documented_rights
from s3_policy import Enforced, documented
from tries_on_cluster import BUCKET, CODE

from airflow_recovery.driver.failure_class import CLASS_LABEL, label_of
from airflow_recovery.model.records import AttemptState, FenceCause
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import wait_until
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION
from scripts.jars import s3a_jars
from scripts.s3_proxy import S3Proxy

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]
S3_PAGE = PAGE.with_name("s3.md")
KINDS = pytest.mark.parametrize("kind", ["declared", "drop-in"])
MakeTask = Callable[..., PodTask]
APPLICATION = CODE / "told_application.py"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    program = find_program()
    if program is None:
        pytest.skip("the API server is not built: scripts/setup.sh --drill")
    with kubernetes_cluster(program) as running:
        yield running


@pytest.fixture(scope="module")
def node(cluster: KubernetesCluster) -> Iterator[Node]:
    with node_of(cluster, extra_jars=f"{s3a_jars()}/*") as running:
        yield running


@pytest.fixture
def pod_task(cluster: KubernetesCluster, node: Node, one_s3_server: S3Server, tmp_path: Path) -> Iterator[MakeTask]:
    """Makes a task of a kind, with further arguments of its operator. What it started is gone afterwards."""
    one_s3_server.create_bucket(BUCKET)
    tasks: list[PodTask] = []

    def make(kind: str, **options: Any) -> PodTask:
        folder = tmp_path / uuid.uuid4().hex
        folder.mkdir()
        tasks.append(PodTask(kind, one_s3_server, folder, options, cluster, node))
        return tasks[-1]

    try:
        yield make
    finally:
        for task in tasks:
            task.end()


def class_of(task: PodTask, attempt: int) -> str | None:
    outcome = task.outcome_of(attempt)
    assert (outcome.state, outcome.cause) == (AttemptState.FENCED, FenceCause.OWN_FAILURE)
    return label_of(outcome.failure, CLASS_LABEL)


def run_again(task: PodTask) -> None:
    """Another try, whose attempt, the second one, finishes."""
    task.open_gate()
    answer = task.start().answer()
    assert (answer["decision"], answer["attempt"]) == ("ran", 2)


# --- to its end -------------------------------------------------------------------------------------------------------


@KINDS
def test_an_application_runs_in_a_pod_and_is_kept_by_the_next_try(pod_task: MakeTask, kind: str) -> None:
    task = pod_task(kind)
    first = task.start()
    pod = task.until_pod_waits()
    assert task.pods() == [pod]
    task.open_gate()

    answer = first.answer()

    assert (answer["decision"], answer["attempt"]) == ("ran", 1)
    if kind == "declared":
        assert task.outcome_of(1).outputs[0].rows == 10
    assert task.pods() == []
    assert task.start().answer()["decision"] == "kept"


def test_fault_270_new_code_under_the_same_name_runs_in_a_pod(pod_task: MakeTask) -> None:
    task = pod_task("drop-in")
    task.options["application"] = task.uri("code/told.py").replace("s3:", "s3a:")
    source = APPLICATION.read_bytes()
    task.store().put("code/told.py", source)
    task.open_gate()

    def run() -> tuple[str, int]:
        answer = task.start().answer()
        return answer["decision"], answer["attempt"]

    assert [run(), run()] == [("ran", 1), ("kept", 1)]
    task.store().put("code/told.py", source + b"DEPLOYED = 2\n")
    assert [run(), run()] == [("ran", 2), ("kept", 2)]


@pytest.mark.airflow
def test_a_result_that_a_driver_finds_lost_is_made_again(pod_task: MakeTask) -> None:
    task = pod_task("declared")

    said = task.run_dag()

    assert (said["run"], set(said["states"].values())) == ("success", {"success"})
    for name in ("made", "total"):
        attempts = task.region_of(name, "g").attempts
        assert {n: attempt.is_finished for n, attempt in attempts.items()} == {1: name == "made", 2: True}


# --- the end of a pod -------------------------------------------------------------------------------------------------


@KINDS
def test_fault_150_an_evicted_pod_is_a_lost_driver_and_another_attempt_runs(pod_task: MakeTask, kind: str) -> None:
    task = pod_task(kind)
    first = task.start()
    pod = task.until_pod_waits()

    task.node.evict(pod)

    said = first.said()
    assert (said["error"], "Evicted. The node was low on resource: memory." in said["message"]) == ("DriverLost", True)
    assert class_of(task, 1) == "driver lost"
    assert task.pods() == [pod]  # for `kubectl logs`
    run_again(task)


def test_fault_150_a_pod_that_is_killed_for_memory_is_out_of_memory(pod_task: MakeTask) -> None:
    task = pod_task("declared")
    first = task.start()

    task.node.kill_for_memory(task.until_pod_waits())

    assert first.said()["error"] == "OutOfMemory", first.said()
    assert class_of(task, 1) == "out of memory"
    run_again(task)


@KINDS
def test_fault_149_a_pod_that_is_deleted_is_a_lost_driver(pod_task: MakeTask, kind: str) -> None:
    task = pod_task(kind)
    first = task.start()
    pod = task.until_pod_waits()

    task.cluster.delete_pod(task.namespace, pod, grace_s=5)

    said = first.said()
    assert (said["error"], "found that it was deleted" in said["message"]) == ("DriverLost", True), said
    assert class_of(task, 1) == "driver lost"
    run_again(task)


def test_fault_149_a_pod_that_is_gone_when_its_outcome_is_there_has_finished(pod_task: MakeTask) -> None:
    task = pod_task("declared")
    first = task.start()
    pod = task.until_pod_waits()

    task.open_gate()
    task.until(lambda: task.region.attempts[1].is_finished, "the driver has left its outcome")
    task.cluster.delete_pod(task.namespace, pod, grace_s=0)

    answer = first.answer()
    assert (answer["decision"], answer["attempt"]) == ("ran", 1)
    assert f"Driver pod {pod} not found (404)" in first.log


# --- the end of a task ------------------------------------------------------------------------------------------------


@KINDS
def test_a_task_that_is_killed_deletes_its_pod(pod_task: MakeTask, kind: str) -> None:
    task = pod_task(kind)
    first = task.start()
    pod = task.until_pod_waits()

    first.process.send_signal(signal.SIGTERM)

    task.until_gone(pod)
    run_again(task)


@KINDS
def test_fault_151_the_next_try_adopts_what_the_pod_of_a_killed_task_finishes(pod_task: MakeTask, kind: str) -> None:
    task = pod_task(kind)
    first = task.start()
    pod = task.until_pod_waits()
    first.lose()

    second = task.start()
    task.until(lambda: "left by an earlier try, lives: waiting for it" in second.log, "the second try waits")
    task.open_gate()

    answer = second.answer()
    assert (answer["decision"], answer["attempt"]) == ("kept", 1)
    assert task.pods() in ([pod], [])


def test_a_driver_on_a_node_that_is_cut_off_finishes_nothing(pod_task: MakeTask) -> None:
    task = pod_task("declared")
    task.settings["AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT"] = "0 s"
    first = task.start()
    zombie = task.until_pod_waits()
    with task.node.cut_off():
        first.lose()
        task.cluster.delete_pod(task.namespace, zombie, grace_s=0)
        second = task.start()
        task.until(lambda: len(task.pods()) == 1, "the second attempt has a pod")
        assert task.node.is_running(zombie)

        task.open_gate()

        wait_until(lambda: not task.node.is_running(zombie), "the first driver has noticed")
        assert not second.said_path.exists()
    answer = second.answer()
    assert (answer["decision"], answer["attempt"]) == ("ran", 2)
    assert [task.outcome_of(n).state for n in (1, 2)] == [AttemptState.FENCED, AttemptState.FINISHED]
    assert task.data_of(1) == []


# --- what the namespace refuses ---------------------------------------------------------------------------------------


def test_fault_152_a_quota_that_refuses_the_pod_is_named_and_the_next_try_runs(pod_task: MakeTask) -> None:
    task = pod_task("declared")
    task.cluster.limit(task.namespace, pods="0")

    said = task.start().said()

    quota = "exceeded quota: limits, requested: pods=1, used: pods=0, limited: pods=0"
    assert (said["error"], quota in said["message"]) == ("ClusterFull", True), said
    assert class_of(task, 1) == "cluster full"
    task.cluster.unlimit(task.namespace)
    run_again(task)


def test_a_driver_whose_executors_a_quota_refuses_waits_for_them(pod_task: MakeTask) -> None:
    task = pod_task("declared")
    first = task.start()
    pod = task.until_pod_waits()
    task.cluster.limit(task.namespace, pods="0")
    task.open_gate()
    wait_until(lambda: "exceeded quota" in task.node.log_of(pod), "the driver hears of it")
    assert first.process.poll() is None

    task.cluster.unlimit(task.namespace)

    assert first.answer()["attempt"] == 1


# --- code and credentials ---------------------------------------------------------------------------------------------


@pytest.fixture
def bare_python() -> Iterator[str]:
    """As in a stock image: with the standard library alone. Pods see no folder below /tmp."""
    folder = Path(__file__).parents[2] / "build" / f"bare-{uuid.uuid4().hex}"
    venv.create(folder, with_pip=False, symlinks=True)
    try:
        yield str(folder / "bin" / "python")
    finally:
        shutil.rmtree(folder)


def test_an_image_needs_nothing_beyond_spark_and_a_python(pod_task: MakeTask, bare_python: str) -> None:
    task = pod_task("plain")
    task.options["conf"] |= {"spark.pyspark.python": bare_python}

    assert task.start().answer()["decision"] == "ran"

    assert task.outcome_of(1).outputs[0].rows == 10
    uploaded = {info.key.rpartition("/")[2] for info in task.store("uploads").list()} - {""}
    kinds = sorted(re.sub(r"(-code-|-sdk-)\w+\.zip$", r"\1", name) for name in uploaded)
    archives = ["airflow-recovery-code-", "airflow-recovery-s3-sdk-"]
    assert kinds == sorted([*archives, f"{task.claim_of(1).tag}.json", "main.py"])


def test_a_role_of_the_service_account_needs_no_key_in_the_namespace(
    pod_task: MakeTask, start_s3_server: Callable[[str], S3Server], bare_python: str
) -> None:
    """As a cloud's webhook sets it. The cloud's STS is moto's: it gives keys for the token that every pod has."""
    server = start_s3_server("moto")
    server.create_bucket(BUCKET)
    providers = sorted(set(re.findall(r"software\.amazon\.awssdk\.auth\.credentials\.\w+", PAGE.read_text())))
    with S3Proxy(server) as proxy:
        task = pod_task("plain")
        task.server, task.endpoint_url = server, proxy.endpoint_url
        conf = {key: value for key, value in task.options["conf"].items() if "secretKeyRef" not in key}
        conf["spark.pyspark.python"] = bare_python
        conf["spark.hadoop.fs.s3a.aws.credentials.provider"] = ",".join(providers)
        for variables in ("spark.kubernetes.driverEnv", "spark.executorEnv"):
            conf[f"{variables}.AWS_ROLE_ARN"] = "arn:aws:iam::123456789012:role/lake"
            conf[f"{variables}.AWS_WEB_IDENTITY_TOKEN_FILE"] = "/var/run/secrets/kubernetes.io/serviceaccount/token"
            conf[f"{variables}.AWS_ENDPOINT_URL_STS"] = server.endpoint_url
            conf[f"{variables}.AWS_REGION"] = REGION
        task.options["conf"] = conf

        assert task.start().answer()["decision"] == "ran"

        written = [(request.key, request.access_key) for request in proxy.requests if request.method == "PUT"]
    of_worker = {key for path, key in written if "/uploads/" in path}
    of_pods = {key for path, key in written if path.endswith(".outcome") or "/results/d/" in path}
    assert (of_worker, {key[:4] for key in of_pods}) == ({ACCESS_KEY}, {"ASIA"})


def test_each_key_of_s3_does_what_is_documented_and_no_description_of_a_pod_has_one(
    pod_task: MakeTask, start_s3_server: Callable[[str], S3Server]
) -> None:
    """Every request is held to the policies of the pages, by the key that has signed it; the environment's has none."""
    server = start_s3_server("moto")
    for bucket in ("my-journal", "my-results"):
        server.create_bucket(bucket)
    policies = {**documented(S3_PAGE.read_text()), **documented(PAGE.read_text())}
    allowed = {f"{who}-journal": policies[f"{who}-journal"] for who in ("worker", "driver")}
    for who in ("worker", "driver"):
        allowed[f"{who}-results"] = (*policies[f"{who}-results"], *policies[f"{who}-uploads"])
    enforced = Enforced({**allowed, "nobody": ()})
    with S3Proxy(server, enforced) as proxy:
        task = pod_task("declared")
        task.server, task.endpoint_url = server, proxy.endpoint_url
        task.place = f"s3://my-results/recovery/{task.namespace}"
        task.settings = {
            "AWS_ACCESS_KEY_ID": "nobody",
            "AIRFLOW__RECOVERY__JOURNAL": "s3://my-journal/recovery",
            "AIRFLOW__RECOVERY__RESULTS": "s3://my-results/recovery",
            "AIRFLOW__RECOVERY__AWS_CONN_ID": "journal",
            "AIRFLOW__RECOVERY__RESULTS_AWS_CONN_ID": "results",
        }
        secrets = {"AWS": "results", "AIRFLOW_RECOVERY_AWS": "journal"}
        for name in secrets.values():
            extra = {"endpoint_url": proxy.endpoint_url, "region_name": REGION}
            worker = {"conn_type": "aws", "login": f"worker-{name}", "password": "of-worker", "extra": extra}
            task.settings[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(worker)
            task.cluster.secret(task.namespace, name, {"key": f"driver-{name}", "secret": "of-driver"})
        conf = task.options["conf"]
        conf["spark.kubernetes.file.upload.path"] = documented_conf()["spark.kubernetes.file.upload.path"]
        for variables, name in secrets.items():
            conf[f"spark.kubernetes.driver.secretKeyRef.{variables}_ACCESS_KEY_ID"] = f"{name}:key"
            conf[f"spark.kubernetes.driver.secretKeyRef.{variables}_SECRET_ACCESS_KEY"] = f"{name}:secret"
        conf["spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID"] = "results:key"
        conf["spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY"] = "results:secret"
        first = task.start()
        task.until_waiting()
        maps = task.cluster.ask("GET", f"/api/v1/namespaces/{task.namespace}/configmaps")
        described = json.dumps([*task.cluster.pods(task.namespace), maps])
        task.open_gate()
        said = first.said()

    # The start-up probe's clean-up alone: whoever may write to a journal may not delete from it.
    assert [what for what in enforced.denied if "s3:DeleteObject on my-journal/recovery/_probe/" not in what] == []
    assert said["answer"]["decision"] == "ran"
    unused = {*enforced.unused("worker-results"), *enforced.unused("driver-results")}
    assert [(action, resource) for action, resource in unused if resource.startswith("my-results/uploads")] == []
    assert [key for key in (*allowed, "of-worker", "of-driver") if f'"{key}"' in described] == []


# --- permissions ------------------------------------------------------------------------------------------------------


def test_the_documented_roles_have_every_right_that_is_asked_for_and_no_other(pod_task: MakeTask) -> None:
    task = pod_task("declared")
    first = task.start()
    task.node.evict(task.until_pod_waits())
    first.said()
    task.open_gate()
    second = task.start()
    task.node.evict(task.until_executor_runs())
    assert second.answer()["attempt"] == 2
    task.place += "/untracked"
    task.kind = "plain"
    assert task.start(track_driver_via_k8s_api=False).answer()["decision"] == "ran"
    assert task.cluster.asked(task.namespace) == documented_rights()


@pytest.mark.parametrize(
    ("role", "resource"),
    [
        (WORKER, "pods"),
        (WORKER, "configmaps"),
        (WORKER, "services"),
        (WORKER, "networkpolicies"),
        (DRIVER, "pods"),
        (DRIVER, "configmaps"),
    ],
)
def test_fault_153_without_a_right_a_task_fails_at_once_and_names_the_page(
    pod_task: MakeTask, role: str, resource: str
) -> None:
    task = pod_task("plain")
    task.withhold(role, resource)

    said = task.start().said()

    assert said["error"] == "AirflowFailException", said
    assert re.search(rf'cannot \w+ resource "{resource}"', said["message"]), said
    assert "docs/kubernetes.md has the roles that the worker and the driver need" in said["message"]


def test_fault_153_a_worker_that_may_not_look_at_its_pod_fails_at_once(pod_task: MakeTask) -> None:
    task = pod_task("declared")
    task.withhold(WORKER, "pods", "get", "list", "watch")
    first = task.start()
    task.until_waiting()

    said = first.said()

    assert said["error"] == "AirflowFailException", said
    assert "expected that this worker may get pods" in said["message"]


def test_fault_153_control_with_the_documented_roles_it_runs(pod_task: MakeTask) -> None:
    assert pod_task("plain").start().answer()["decision"] == "ran"


def test_without_the_right_on_logs_an_error_says_how_a_driver_ended_and_not_what_it_said(pod_task: MakeTask) -> None:
    task = pod_task("drop-in")
    task.withhold(WORKER, "pods/log")
    first = task.start()
    task.node.evict(task.until_pod_waits())
    said = first.said()
    assert (said["error"], "Evicted" in said["message"]) == ("DriverLost", True)
    assert "can't be read" in first.log
