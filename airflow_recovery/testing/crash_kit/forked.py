"""A function called in a copy of this process, which takes whatever it does to itself with it."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
from collections.abc import Callable
from typing import TypeVar

from airflow_recovery.driver.process import die_with_parent

R = TypeVar("R")

_PR_SET_CHILD_SUBREAPER = 36


def forked(call: Callable[[], R]) -> R:
    """What ``call()`` returns or raises in a forked process; both must pickle.

    Orphans that its children leave behind become that process's own children (on Linux), so that it can reap them. The
    caller should have no other threads at work: they are not copied, and the locks that they hold stay locked.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            die_with_parent()
            _adopt_orphans()
            body = pickle.dumps((call(), None))
        except BaseException as error:
            body = pickle.dumps((None, error))
        with os.fdopen(writer, "wb") as out:
            out.write(body)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        body = answer.read()
    os.waitpid(pid, 0)
    if not body:
        raise RuntimeError("the forked process ended without an answer: it was killed")
    result, raised = pickle.loads(body)
    if raised is not None:
        raise raised
    return result  # type: ignore[no-any-return]


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
