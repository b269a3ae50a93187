"""Waiting for a server in a thread, while this one goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], name: str) -> Callable[[], T]:
    """Start ``work`` in a thread called ``name``; what is returned waits for it, and gives or raises what it did.

    The thread is a daemon: nobody waits for the work at the end of the process. Spark's active session and tags belong
    to one thread: what runs a query, and would have to be interrupted, does not belong in here.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # told where the result is needed
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done.result
