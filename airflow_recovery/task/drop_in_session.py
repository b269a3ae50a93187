"""A drop-in's application on a Spark Connect server: a Python process of this machine, and no JVM of its own."""

from __future__ import annotations

import copy
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.connect_session import host_of, remote_variables, session_id_of, session_url
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.start_advice import MAX_LINES, keep_output, relevant
from airflow_recovery.driver.watchdog import guarding
from airflow_recovery.errors import DriverLost
from airflow_recovery.task.attempt_sessions import AttemptSessions, ServerChoice
from airflow_recovery.task.drop_in import DropInSubmission
from airflow_recovery.task.spark_connection import tell_of_memory

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    from airflow_recovery.attempt.application import ClaimedAttempt
    from airflow_recovery.model.records import Claim

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
_SHOWN_LINES = 20


class DropInSession(DropInSubmission):
    """Runs the application with this Python, and with its attempt's session on ``server`` in ``SPARK_REMOTE``.

    The session is the attempt's alone. It is interrupted where the task is killed, and before another attempt begins:
    what an application has begun on a server goes on without it.
    """

    def __init__(self, server: ServerChoice, user_id: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._server = server
        self._sessions = AttemptSessions(user_id, log)
        self._claim: Claim | None = None
        self._running: tuple[subprocess.Popen[str], str] | None = None

    @cached_property
    def is_on_cluster(self) -> bool:
        """Not so, whatever the connection says of deploy modes: it ends with this process."""
        return False

    def _writes_success(self, paths: Collection[str], managed: bool) -> bool:
        """Not known: its server has settings of its own."""
        del paths, managed
        return False

    def new_job(self, attempt: ClaimedAttempt) -> Any:
        """A copy of the operator, with its own memory: a server keeps that with which it was started."""
        self._claim = attempt.claim
        tell_of_memory(self.operator, self._memory_policy, attempt)
        return copy.copy(self.operator)

    def submit(self, job: SparkSubmitOperator, name: str) -> None:
        """Run the application of ``job``, and wait. Raises where it failed: `DriverLost` if its server is gone."""
        del name
        assert self._claim is not None
        url = self._server.to_run()
        session_id = session_id_of(self._claim.tag)
        remote = session_url(url, session_id=session_id, user_id=self._sessions.user_id)
        log.info("Spark Connect server: %s, session %s", host_of(url), session_id)
        output: deque[str] = deque(maxlen=MAX_LINES)
        environment = _environment(job)
        with (
            guarding(url, session_id=session_id, user_id=self._sessions.user_id),
            remote_variables(remote, environment) as variables,
        ):
            process = subprocess.Popen(
                [_python(), str(job.application), *(str(argument) for argument in job.application_args or ())],
                env=environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                preexec_fn=die_with_parent,
            )
            self._running = process, url
            has_ended = threading.Event()
            threading.Thread(target=self._watch, args=(process, has_ended), name="watch server", daemon=True).start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    log.info("%s", line.rstrip())
                    output += relevant([line])
                code = process.wait()
            finally:
                has_ended.set()
                self._running = None
        if code == 0:
            return
        why = self._server.why_lost()
        if why is not None:
            # What Spark's client says of it is only that nobody answers.
            raise DriverLost(f"{host_of(url)} is gone: {why}")
        error = RuntimeError(
            f"{job.application} ended. Error code is: {code}. Its last output:\n"
            + "\n".join(list(output)[-_SHOWN_LINES:])
        )
        keep_output(error, output)
        raise error

    def _watch(self, process: subprocess.Popen[str], has_ended: threading.Event) -> None:
        """Kill an application whose server is gone: Spark's client would ask for it for ten minutes.

        Gone at two looks, one after the other: a server that collects garbage may not answer for a while.
        """
        was_gone = False
        while not has_ended.wait(LOOK_EVERY_S):
            is_gone = self._server.why_lost() is not None
            if is_gone and was_gone:
                process.kill()
                return
            was_gone = is_gone

    def stop(self) -> None:
        """Kill the application, and interrupt what it has begun on the server."""
        if self._running is not None and self._claim is not None:
            process, url = self._running
            process.kill()
            self._sessions.interrupt(url, self._claim)

    def stop_previous(self, claim: Claim) -> None:
        """As `AttemptSessions.stop_previous`."""
        self._sessions.stop_previous(self._server, claim)


def _python() -> str:
    return os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable


def _environment(job: SparkSubmitOperator) -> dict[str, str]:
    environment = {**os.environ, **{str(name): str(value) for name, value in (job.env_vars or {}).items()}}
    # What spark-submit does with them for a driver. Its executors get what the application gives to `addArtifacts`.
    code = [*(str(job.py_files).split(",") if job.py_files else ()), environment.get("PYTHONPATH", "")]
    return environment | {"PYTHONPATH": os.pathsep.join(filter(None, code)), "PYTHONUNBUFFERED": "1"}
