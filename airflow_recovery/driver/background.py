"""Waiting for a server in a thread, while this one goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], name: str) -> Callable[[], T]:
    """Start ``work`` in a thread called ``name``. The function returned waits for it, and returns or raises as it did.

    The thread is a daemon: the process does not wait for it at its end. Not for queries of Spark, which would have to
    be interrupted: Spark's active session and tags belong to one thread.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # raised where the result is needed
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done.result
