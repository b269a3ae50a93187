"""A driver's pod: what is made of its phases, of its end, and of the API server's refusals.

With real pods: `tests/task/test_kubernetes.py`.
"""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider
from airflow.sdk.exceptions import AirflowFailException
from job_tasks import Drivers, job_dag
from kubernetes.client import ApiException
from kubernetes_fake import FakePods
from pod_drop_in import NAMESPACE, PodDropIn, drop_in_fixture, pods_fixture  # noqa: F401 - fixtures
from tries import run_try
from urllib3.exceptions import HTTPError

from airflow_recovery.attempt.application import ApplicationStatus
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.errors import ClusterFull, ConfigurationError, DriverLost, OutOfMemory, RegionFailed
from airflow_recovery.model.records import Claim, FenceCause
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.task import driver_pod
from airflow_recovery.task.spark_submission import resolved_connection

pytest.importorskip("airflow.providers.cncf.kubernetes")

CLAIM = Claim("t", 1, "w", "h", (), "r", 1, "i", "airflow-recovery-1a2b", "now")
POD = "airflow-recovery-1a2b-driver"
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
REFUSED = (
    'Exception in thread "main" io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST at: '
    'https://k/api/v1/namespaces/lake/pods. Message: pods "x-driver" is forbidden: {}. Received status: Status('
    "apiVersion=v1, code=403, reason=Forbidden)."
)


# --- the end of a pod -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pod_is_named_by_its_claim_and_deleted_after_its_success(drop_in: PodDropIn) -> None:
    assert drop_in.run()["decision"] == "ran"
    name = drop_in.settings()["spark.kubernetes.driver.pod.name"]
    assert name.startswith("airflow-recovery-")
    assert len(name) <= 63
    assert drop_in.pods.deleted == [name]
    assert f"{NAMESPACE}:{name}" in drop_in.store.values()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "log", "raised", "says"),
    [
        (None, "", DriverLost, "found that it was deleted"),
        (EVICTED, "", DriverLost, r"Evicted\. The node was low on resource: memory\."),
        (
            {"phase": "Failed", "terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            "",
            OutOfMemory,
            r"reason=OOMKilled\)\. Error code is: 137\.",
        ),
        (
            {"phase": "Failed", "terminated": {"exitCode": 143, "reason": "Error"}},
            "",
            DriverLost,
            r"Error code is: 143\.",
        ),
        (
            {"phase": "Failed", "terminated": {"exitCode": 52, "reason": "Error"}},
            "",
            OutOfMemory,
            r"Error code is: 52\.",
        ),
        (
            {"phase": "Failed", "terminated": {"exitCode": 1, "reason": "Error", "message": "the weather"}},
            "Traceback (most recent call last):\nValueError: seven",
            RegionFailed,
            r"the application failed: ValueError: seven\n.*reason=Error\)\. Error code is: 1\. the weather\.",
        ),
    ],
)
def test_fault_150_only_a_pod_that_succeeded_finishes_an_attempt(
    drop_in: PodDropIn, ends: dict[str, Any] | None, log: str, raised: type[Exception], says: str
) -> None:
    drop_in.ends, drop_in.log = ends, log
    with pytest.raises(raised, match=says) as error:
        drop_in.run()
    assert type(error.value) is raised
    assert drop_in.outcome().cause is FenceCause.OWN_FAILURE


@pytest.mark.slow
def test_fault_150_control_by_the_providers_words_alone_an_eviction_is_of_no_class(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.task.driver_pod.DriverPod._explained", lambda pod, error: error)
    drop_in.ends = EVICTED
    with pytest.raises(RegionFailed) as error:
        drop_in.run()
    assert type(error.value) is RegionFailed


def test_fault_149_a_region_whose_outcome_is_there_has_finished_though_its_pod_is_gone(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(hook: Any, *_: Any, **__: Any) -> None:
        spec = RegionSpec.from_json(Path(hook._application_args[0]).read_text())
        Drivers().run(spec, drop_in.folder)

    monkeypatch.setattr(provider.SparkSubmitHook, "submit", finish)
    dag = job_dag("dagjobs.shapes:diamond", conn_id="pods", track_driver_via_k8s_api=True)
    answer = run_try(
        next(task for task in dag.tasks if isinstance(task, SparkRegionOperator) and task.region == "aside")
    )
    assert (answer["decision"], answer["attempt"]) == ("ran", 1)


def test_fault_149_control_the_provider_takes_a_pod_that_is_gone_for_a_success(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.task.driver_pod.DriverPod.wait", lambda pod, poll, output: poll())
    drop_in.ends = None
    assert drop_in.run()["decision"] == "ran"


def test_what_is_missing_in_the_image_is_read_in_the_pods_log(drop_in: PodDropIn) -> None:
    drop_in.ends = {"phase": "Failed", "terminated": {"exitCode": 1, "reason": "Error"}}
    drop_in.log = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'pandas'"
    with pytest.raises(AirflowFailException, match=r"No module named 'pandas'.*Install it"):
        drop_in.run()


def test_an_api_server_that_is_restarted_ends_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(driver_pod.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(driver_pod.time, "sleep", lambda seconds: None)
    silent = 0

    def poll(times: int) -> str:
        nonlocal silent
        silent += 1
        if silent <= times:
            raise HTTPError("connection refused")
        return "Succeeded"

    assert driver_pod.DriverPod(NAMESPACE, POD).wait(lambda: poll(5), []) == "Succeeded"
    silent = 0
    with pytest.raises(HTTPError):
        driver_pod.DriverPod(NAMESPACE, POD).wait(lambda: poll(1000), [])
    assert 20 < silent < 100


# --- what the API server refuses --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fault_152_a_quota_is_named_and_the_task_retries(drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = "exceeded quota: limits, requested: pods=1, used: pods=4, limited: pods=4"
    monkeypatch.setenv("SAYS", REFUSED.format(quota))
    monkeypatch.setenv("CODE", "1")
    with pytest.raises(ClusterFull, match=f"refused the driver's pod: {quota}. Wait until"):
        drop_in.run()
    failure = drop_in.outcome().failure
    assert failure is not None
    assert dict(failure.labels) == {"class": "cluster full", "recoverable": "yes"}


def test_fault_152_control_a_quota_that_is_not_told_apart_is_a_refusal_that_no_retry_cures(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.driver.start_advice._OVER_QUOTA", re.compile("(?!)"))
    monkeypatch.setenv("SAYS", REFUSED.format("exceeded quota: limits, requested: pods=1, used: pods=4"))
    monkeypatch.setenv("CODE", "1")
    with pytest.raises(AirflowFailException, match="Kubernetes refuses"):
        drop_in.run()


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (REFUSED.format('User "x" cannot create resource "pods"'), "the roles that the worker and the driver need"),
        (REFUSED.format('violates PodSecurity "restricted:latest"'), r"docs/kubernetes\.md"),
        (
            "org.apache.spark.SparkException: Please specify spark.kubernetes.file.upload.path property.",
            "a store that this worker and the pod can reach",
        ),
    ],
)
def test_fault_153_what_no_retry_can_cure_fails_at_once(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch, said: str, advice: str
) -> None:
    monkeypatch.setenv("SAYS", said)
    monkeypatch.setenv("CODE", "1")
    with pytest.raises(AirflowFailException, match=advice):
        drop_in.run()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"conf": {"spark.kubernetes.driver.pod.name": "mine"}}, "each attempt has a pod of its own, found 'mine'"),
        ({"conn_id": "nowhere"}, "requires a namespace"),
        ({"conf": {"spark.kubernetes.submission.waitAppCompletion": "true"}}, "waitAppCompletion"),
    ],
)
def test_settings_that_contradict_each_other_fail_at_once(drop_in: PodDropIn, given: Any, says: str) -> None:
    with pytest.raises(AirflowFailException, match=says):
        drop_in.run(**given)


@pytest.mark.parametrize(("status", "raised"), [(403, ConfigurationError), (500, RuntimeError)])
def test_fault_153_a_worker_that_may_not_look_at_its_pod_is_told_so(
    pods: FakePods, status: int, raised: type[Exception]
) -> None:
    def poll() -> str:
        raise RuntimeError("unreachable after 3 consecutive errors") from ApiException(status)

    with pytest.raises(Exception, match=r"unreachable|this worker may get pods.*docs/kubernetes\.md") as error:
        driver_pod.DriverPod(NAMESPACE, POD).wait(poll, [])
    assert type(error.value) is raised


def test_without_the_kubernetes_provider_the_error_says_what_to_install(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(provider, "kube_client")  # as it is where that was not imported
    assert not hasattr(builtins, "kube_client")
    with pytest.raises(AirflowFailException, match=r"pip install 'airflow-recovery\[kubernetes\]'"):
        drop_in.run()
    with pytest.raises(ConfigurationError, match="connection 'pods': expected the provider for Kubernetes"):
        resolved_connection("pods")


# --- a pod that outlives its task -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "means"),
    [
        ("Pending", ApplicationStatus.ACTIVE),
        ("Running", ApplicationStatus.ACTIVE),
        ("Succeeded", ApplicationStatus.SUCCEEDED),
        ("Failed", ApplicationStatus.OVER),
        ("Unknown", ApplicationStatus.UNKNOWN),
        (None, ApplicationStatus.UNKNOWN),
    ],
)
def test_fault_151_a_pod_is_asked_about_by_its_name_though_no_id_was_kept(
    drop_in: PodDropIn, phase: str | None, means: ApplicationStatus
) -> None:
    if phase is not None:
        drop_in.pods.put(NAMESPACE, POD, phase)
    assert drop_in.store == {}
    assert drop_in.submission().status(CLAIM) is means


def test_fault_151_control_a_pod_whose_name_nobody_knows_before_is_not_found(
    drop_in: PodDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.task.spark_submission.driver_pod_of", lambda hook, tag: None)
    drop_in.pods.put(NAMESPACE, POD, "Running")
    assert drop_in.submission().status(CLAIM) is ApplicationStatus.UNKNOWN


@pytest.mark.parametrize("is_tracked", [True, False])
def test_the_pod_of_an_earlier_attempt_is_deleted(drop_in: PodDropIn, is_tracked: bool) -> None:
    drop_in.pods.put(NAMESPACE, POD, "Running")
    drop_in.submission(track_driver_via_k8s_api=is_tracked).stop_previous(CLAIM)
    assert drop_in.pods.deleted == [POD]
