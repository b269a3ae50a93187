"""The threads that the code under test starts are strands of their process: the seed decides their order too."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow_recovery.attempt import shared
from airflow_recovery.journal import journal
from airflow_recovery.results import readers, sweep
from airflow_recovery.store.object_store import ObjectStore, StoredObject
from airflow_recovery.testing.simulation.memory import SimulatedJournal
from airflow_recovery.testing.simulation.strands import Killed, Strand, current_runner

_ROOMS = ("airflow_recovery.attempt.", "airflow_recovery.results.", "airflow_recovery.journal.owner")


class HelperThread:
    """As `threading.Thread`, as far as the region protocol uses it."""

    def __init__(
        self,
        *,
        target: Callable[..., object],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str = "helper",
        daemon: bool | None = None,
    ) -> None:
        del daemon
        self.name = name
        self._call: Callable[[], object] = partial(target, *args, **(kwargs or {}))
        self._strand: Strand | None = None

    def start(self) -> None:
        """The strand may be chosen from now on."""
        current = current_runner().current
        assert current is not None
        if current.process.is_dead:
            raise Killed(self.name)
        self._strand = Strand(current.process, self._body, f"begins {self.name}")
        current.process.strands.append(self._strand)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end. A time-out is not simulated."""
        del timeout
        if self._strand is not None:
            current_runner().join(self._strand)

    def is_alive(self) -> bool:
        """Started and not ended."""
        return self._strand is not None and not self._strand.is_done

    def _body(self) -> None:
        try:
            self._call()
        except Exception:
            # As in a real thread: told on standard error, and nobody hears of it.
            return


class HelperEvent:
    """As `threading.Event`. Who waits for one takes turns with the others."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Whoever waits may go on."""
        self._is_set = True

    def is_set(self) -> bool:
        """It was set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set. A time-out is not simulated."""
        del timeout
        while not self._is_set:
            current_runner().switch("waits")
        return True


class _NoHeartbeat:
    """In place of a thread: whoever builds a shared result gives its signs between two steps (`FakeSpark`)."""

    def __init__(self, *given: object, **named: object) -> None:
        del given, named

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass


@contextmanager
def one_thread_at_a_time() -> Iterator[None]:
    """Inside, the region protocol's own threads, its parallel reads and its pauses take part in the simulation.

    Replaces, in the modules that use them, `threading`, `uuid`, the parallel reads of the journal, and the sweeper's
    journal; what other modules and threads of this interpreter do is not touched.
    """
    with ExitStack() as stack:
        strands = SimpleNamespace(**{**vars(threading), "Thread": HelperThread, "Event": HelperEvent})
        numbers = count(1)
        ids = SimpleNamespace(**{**vars(uuid), "uuid4": lambda: uuid.UUID(int=next(numbers))})
        for name, module in list(sys.modules.items()):
            if not name.startswith(_ROOMS):
                continue
            for attribute, real, simulated in (("threading", threading, strands), ("uuid", uuid, ids)):
                if getattr(module, attribute, None) is real:
                    stack.enter_context(patch.object(module, attribute, simulated))
        stack.enter_context(patch.object(journal, "get_many", _one_by_one))
        for module in (sweep, readers):
            stack.enter_context(patch.object(module, "Journal", SimulatedJournal))
        stack.enter_context(patch.object(shared, "Heartbeat", _NoHeartbeat))
        yield


def _one_by_one(store: ObjectStore, keys: Iterable[str], *, connections: int = 16) -> dict[str, StoredObject]:
    """Written once, so the order in which they are read shows nothing."""
    del connections
    return {key: store.get(key) for key in dict.fromkeys(keys)}
