"""The pod of a driver on Kubernetes: its name, and what the cluster says of its end.

An attempt's pod is named by the claim's tag, before anything is submitted. So it is found and deleted also where the
task died before it heard what Spark had called it, and no attempt is ever submitted twice.

Only the pod's phase *Succeeded* is a success. A pod that is not there any more was deleted, by a person, a drained node
or a pre-emption: the provider's operator takes that for its own kill, and would end without an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from typing import Any

from urllib3.exceptions import HTTPError

from airflow_recovery.driver.start_advice import MAX_LINES, relevant
from airflow_recovery.errors import ConfigurationError, DriverLost

log = logging.getLogger(__name__)

NAME_SETTING = "spark.kubernetes.driver.pod.name"

ASK_AGAIN_S = 20.0
"""As often as the provider asks."""
UNREACHABLE_S = 600.0
"""An API server that is restarted with its machine is back by then."""
_FORBIDDEN = 403


class PodFailed(RuntimeError):
    """The driver's pod has failed. The text has its phase, the reasons of its containers, and the exit code."""


@dataclass(frozen=True)
class DriverPod:
    """A driver's pod, which need not be there."""

    namespace: str
    name: str

    @property
    def where(self) -> str:
        """Its id, as the provider's operator keeps it."""
        return f"{self.namespace}:{self.name}"

    def wait(self, poll: Callable[[], str | None], output: MutableSequence[str]) -> str:
        """What ``poll``, the provider's, says of its end. Raises where that is not *Succeeded*, and says why.

        `ConfigurationError` where this worker may not ask.

        The end of its log goes to this log and, without Spark's own lines, to ``output``. An API server that does not
        answer is asked again for `UNREACHABLE_S`: the driver does not need it to finish.
        """
        try:
            phase = _patiently(poll)
        except RuntimeError as error:
            if getattr(error.__cause__, "status", None) == _FORBIDDEN:
                raise ConfigurationError(
                    f"expected that this worker may get pods, found that Kubernetes refuses {self.where}, whose driver "
                    "may be running: docs/kubernetes.md has the roles that the worker and the driver need"
                ) from error
            self._hand_on_log(output)
            raise self._explained(error) from error
        if phase is None:
            raise DriverLost(
                f"expected the driver's pod {self.where} to run to its end, found that it was deleted: by a person, "
                "with its node, or for a pod of higher priority (kubectl get events says which)"
            )
        return phase

    def _explained(self, error: RuntimeError) -> Exception:
        try:
            status = _client().read_namespaced_pod(self.name, self.namespace).status
        except Exception as second:
            log.warning("Why the pod %s ended could not be asked: %s", self.where, second)
            return error
        sentences = [str(error), *(str(text) for text in (status.reason, status.message) if text)]
        for container in status.container_statuses or ():
            terminated = container.state.terminated if container.state else None
            if terminated is not None:
                # In the words of a spark-submit that runs here, by which failures are told apart.
                sentences.append(f"Error code is: {terminated.exit_code}")
                sentences += [str(terminated.message)] if terminated.message else []
        text = ". ".join(part.rstrip(".") for part in sentences) + "."
        # A reason of the pod itself is why it was ended: Evicted, NodeLost, Preempting, Shutdown.
        return DriverLost(text) if status.reason else PodFailed(text)

    def _hand_on_log(self, output: MutableSequence[str]) -> None:
        try:
            # Some versions of the client give text that it has decoded as the repr of bytes.
            answer = _client().read_namespaced_pod_log(
                self.name, self.namespace, tail_lines=10 * MAX_LINES, _preload_content=False
            )
            lines = answer.data.decode(errors="replace").splitlines()
        except Exception as error:
            log.info("The log of the pod %s can't be read: %s", self.where, error)
            return
        tail = relevant(lines)
        output += tail
        log.info("The log of the pod %s ends:\n%s", self.where, "\n".join(tail))


def _patiently(poll: Callable[[], str | None]) -> str | None:
    """``poll``, which ends with urllib3's error where the API server can't be reached even once."""
    silent_since: float | None = None
    while True:
        asked = time.monotonic()
        try:
            return poll()
        except HTTPError as error:
            now = time.monotonic()
            if silent_since is None or now - asked > ASK_AGAIN_S:  # it had answered meanwhile
                silent_since = now
            if now - silent_since > UNREACHABLE_S:
                raise
            log.warning("The Kubernetes API does not answer, and is asked again in %.0f s: %s", ASK_AGAIN_S, error)
            time.sleep(ASK_AGAIN_S)


def driver_pod_of(hook: Any, tag: str) -> DriverPod | None:
    """The pod of the attempt with this tag; `None` where its driver runs in none, or nobody says in which namespace."""
    namespace = hook._connection["namespace"]
    is_pod = hook._is_kubernetes and hook._connection["deploy_mode"] == "cluster" and namespace
    return DriverPod(namespace, f"{tag}-driver") if is_pod else None


def check_not_named(conf: dict[str, Any]) -> None:
    """Raise `ConfigurationError` where the user names the driver's pod."""
    if NAME_SETTING in conf:
        raise ConfigurationError(
            f"expected no {NAME_SETTING}, since each attempt has a pod of its own, found {conf[NAME_SETTING]!r}: leave "
            "it out; the log of the task names the pod, and its label spark-app-name has the name of the application"
        )


def _client() -> Any:
    from airflow.providers.cncf.kubernetes.kube_client import get_kube_client

    return get_kube_client()
