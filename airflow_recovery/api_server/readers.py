"""Start, ask and stop the processes that read large runs (`airflow_recovery.api_server.reader_process`).

A process inherits two pipes from the API server: no socket, and no setting of Airflow. The API server kills it if an
answer takes too long. The operating system limits its memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from airflow_recovery.api_server.reader_process import Question
from airflow_recovery.errors import ReadingStopped, RecoveryError

PROCESSES = 2
"""The number of processes that may read at the same time. One more process may change a run."""
MOST_S = 60.0
"""The time limit of one answer."""
MOST_BYTES = 1024 * 1024 * 1024
"""The memory limit of one process."""

Hear = Callable[[str, Any], Any]
"""Answers the requests of a process (`airflow_recovery.api_server.reader_process.Reader`)."""


class Readers:
    """Starts a process when it is needed, and uses it again. Safe for threads.

    If all processes are busy, `ask` waits. Readings do not have to wait here: each has already waited for a place
    (`airflow_recovery.api_server.store_routes.large_runs`).
    """

    def __init__(self, most_s: float = MOST_S, most_bytes: int = MOST_BYTES) -> None:
        self._most_s = most_s
        self._most_bytes = most_bytes
        self._idle: dict[str, _Process] = {}
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(PROCESSES + 1)

    def ask(self, dag_id: str, question: Question, hear: Hear, most_s: float | None = None) -> Any:
        """Return the answer. Raises the error of the function, and `ReadingStopped`."""
        with self._room:
            return self._ask(dag_id, question, hear, self._most_s if most_s is None else most_s)

    def _ask(self, dag_id: str, question: Question, hear: Hear, most_s: float) -> Any:
        with self._lock:
            # This process may still have the run of the DAG in memory.
            process = self._idle.pop(dag_id, None) or (self._idle.popitem()[1] if self._idle else None)
        if process is not None and not process.is_alive():
            process = None  # it ends by itself after a time without questions
        if process is None:
            process = _Process(self._most_bytes)
        is_kept = False
        try:
            answer = process.ask(question, hear, most_s)
            is_kept = True
        except RecoveryError as error:
            is_kept = not isinstance(error, ReadingStopped)
            raise
        finally:
            if is_kept:
                with self._lock:
                    others, self._idle[dag_id] = self._idle.pop(dag_id, None), process
                if others is not None:
                    others.end()
            else:
                process.end()
        return answer

    def close(self) -> None:
        """Stop all processes that have no question to answer."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), {}
        for process in idle:
            process.end()


class _Process:
    def __init__(self, most_bytes: int) -> None:
        self._has = b""
        # Settings of Airflow hold secrets. The memory arenas of many threads would count against the limit.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "_AIRFLOW_"))}
        self._most_bytes = most_bytes
        self._process = subprocess.Popen(
            [sys.executable, "-m", "airflow_recovery.api_server.reader_process", str(most_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept | {"MALLOC_ARENA_MAX": "2"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin, self._process.stdout:
            self._questions = Connection(os.dup(self._process.stdin.fileno()), readable=False)
            self._answers = Connection(os.dup(self._process.stdout.fileno()), writable=False)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, question: Question, hear: Hear, most_s: float) -> Any:
        until = time.monotonic() + most_s
        tries = question.tries
        if tries is not None and tries.digest == self._has:
            question = replace(question, tries=replace(tries, packed=None))
        self._has = tries.digest if tries is not None else self._has
        try:
            self._questions.send(question)
            while True:
                if not self._answers.poll(max(0.0, until - time.monotonic())):
                    raise ReadingStopped(
                        f"Expected an answer within {most_s:g} s, found none: the process that worked on this "
                        "large run was stopped. The commands of `airflow recovery` have no such limit."
                    )
                kind, found = self._answers.recv()
                if kind == "answer":
                    return found
                if kind == "error":
                    raise found
                self._questions.send(_heard(hear, kind, found))
        except (EOFError, BrokenPipeError, ConnectionError):
            self._process.wait()
            raise ReadingStopped(
                f"The process that worked on this large run has ended with exit code {self._process.returncode}. Its "
                f"memory limit is {self._most_bytes // 2**20} MiB. Its last output is in the API server's log. "
                "The commands of `airflow recovery` have no such limit."
            ) from None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._questions.close()
        self._answers.close()


def _heard(hear: Hear, kind: str, about: Any) -> tuple[bool, Any]:
    try:
        return True, hear(kind, about)
    except RecoveryError as error:
        return False, error


readers = Readers()
"""The reader processes that this process of the API server has started."""
