"""Read large runs for the API server: ``python -m airflow_recovery.api_server.reader_process``.

The process reads questions from its standard input and writes answers to its standard output, one after the other. It
ends after a minute without a question. It does not import Airflow. Each question brings the credentials. The process
sends three kinds of requests to the API server: may I open this location; how; write this into the audit log.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from airflow_recovery.api_server.budget import BudgetedStore
from airflow_recovery.api_server.readings import Access, Kept, Tries
from airflow_recovery.api_server.silence import HeededStore, Silence
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import RecoveryError
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.scheme import StoreSpec

IDLE_S = 60.0
"""How long the process waits for a question before it ends."""
NICENESS = 10
"""If the processors are busy, the API server goes first: tasks and the viewers of other DAGs wait for it."""
_STACK_BYTES = 1024 * 1024
"""For each thread: the memory limit counts the whole stack."""


@dataclass(frozen=True)
class Question:
    """A function of ``module`` that is called with an `Access`, ``arguments``, and ``tries`` as its ``observation``.

    The process does not use listings from before ``asked_at``. ``environment`` has the credentials. ``waits`` are the
    time-outs for `airflow_recovery.store.opening.open_store`.
    """

    module: str
    function: str
    arguments: dict[str, Any]
    tries: Tries | None
    asked_at: float
    journal: StoreSpec
    results: StoreSpec
    environment: dict[str, str]
    waits: dict[str, Any]
    budget_bytes: int


class Reader:
    """Answers questions. ``ask_back`` sends a request to the API server: ``may open``, ``location`` or ``audit``."""

    def __init__(self, ask_back: Callable[[str, Any], Any]) -> None:
        self._ask_back = ask_back
        self._silence = Silence()
        self._known: tuple[StoreSpec, StoreSpec, dict[str, str]] | None = None
        self._by_location: dict[str, ObjectStore] = {}
        self._allowed: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._inherited = dict(os.environ)
        self._tries = (b"", Observation({}))

    def answer(self, question: Question) -> Any:
        """Call the function and return its result."""
        known = (question.journal, question.results, question.environment)
        if known != self._known:
            os.environ.clear()
            os.environ.update(self._inherited | question.environment)
            self._waits = question.waits
            self._journal, self._results = self._open(question.journal), self._open(question.results)
            self._by_location.clear()
            self._allowed.clear()
            self._kept = Kept()
            self._known = known
        journal = BudgetedStore(self._journal, question.budget_bytes)
        access = Access(
            journal,
            self._results,
            self._open_location,
            self._may_open,
            refuses_large=False,
            kept=self._kept,
            asked_at=question.asked_at,
            audit=partial(self._ask_back, "audit"),
        )
        arguments = question.arguments
        if question.tries is not None:
            if question.tries.packed is not None:
                self._tries = (question.tries.digest, question.tries.observation())
            assert self._tries[0] == question.tries.digest
            arguments = {**arguments, "observation": self._tries[1]}
        return getattr(import_module(question.module), question.function)(access, **arguments)

    def _open(self, spec: StoreSpec) -> ObjectStore:
        return HeededStore(open_spec_store(spec, self._waits), self._silence)

    def _may_open(self, location: str) -> bool:
        with self._lock:
            if location not in self._allowed:
                self._allowed[location] = self._ask_back("may open", location)
            return self._allowed[location]

    def _open_location(self, location: str) -> ObjectStore:
        base = self._results.base_uri
        if location == base or location.startswith(f"{base}/"):
            return self._results
        with self._lock:
            if location not in self._by_location:
                self._by_location[location] = self._open(self._ask_back("location", location))
            return self._by_location[location]


def serve(questions: Connection, answers: Connection) -> None:
    """Answer questions until there is none for `IDLE_S`."""

    one_at_a_time = threading.Lock()

    def ask_back(kind: str, about: Any) -> Any:
        with one_at_a_time:
            answers.send((kind, about))
            is_allowed, found = questions.recv()
        if not is_allowed:
            raise found
        return found

    reader = Reader(ask_back)
    while questions.poll(IDLE_S):
        question = questions.recv()
        try:
            answer = ("answer", reader.answer(question))
        except RecoveryError as error:
            answer = ("error", _portable(error))
        answers.send(answer)


def _portable(error: RecoveryError) -> RecoveryError:
    """Return the error, or a plain one if it can't be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a class of its own has
        return RecoveryError(str(error), code=error.code)
    return error


def main() -> None:
    """Serve. Argument: the limit of memory, in bytes."""
    limit = int(sys.argv[1])
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    threading.stack_size(_STACK_BYTES)
    questions, answers = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what is printed goes to the log, not to the API server
    os.close(0)
    with suppress(EOFError, BrokenPipeError):  # the API server has ended
        serve(questions, answers)


if __name__ == "__main__":
    main()
