"""The threads that the code under test starts are strands of their process: the seed decides their order too."""

from __future__ import annotations

import logging
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
from airflow_recovery.journal import history, journal, sharded_listing, stream
from airflow_recovery.results import readers, sweep
from airflow_recovery.store.object_store import ObjectStore, StoredObject
from airflow_recovery.testing.simulation.memory import Clock, SimulatedJournal
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
        self._strand = Strand(current.process, self._body, f"begins {self.name}", is_helper=True)
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


class _Signal:
    """What a strand may wait for, as for another one."""

    is_over = False


class HelperCondition:
    """As `threading.Condition` of the code that takes turns: whoever holds its lock gives no turn away meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signal = _Signal()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass

    def notify_all(self) -> None:
        """Whoever waits may go on."""
        self._signal.is_over = True
        self._signal = _Signal()

    def wait(self, timeout: float | None = None) -> bool:
        """Until the next `notify_all`, or so many seconds of the virtual clock."""
        signal = self._signal
        if timeout is None:
            current_runner().join(signal)
            return True
        until_s = self._clock.now_s + timeout
        while not signal.is_over and self._clock.now_s < until_s:
            current_runner().sleep(until_s)
        return signal.is_over

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Until ``predicate`` holds, or so many seconds of the virtual clock."""
        until_s = self._clock.now_s + timeout
        while not predicate() and self._clock.now_s < until_s:
            self.wait(until_s - self._clock.now_s)
        return predicate()


class _NoHeartbeat:
    """In place of a thread: whoever builds a shared result gives its signs between two steps (`FakeSpark`)."""

    def __init__(self, *arguments: object, **options: object) -> None:
        del arguments, options

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass


@contextmanager
def one_thread_at_a_time(clock: Clock) -> Iterator[None]:
    """Inside, the region protocol's own threads, its parallel reads and its pauses take part in the simulation.

    Replaces, in the modules that use them, `threading`, `uuid`, the parallel reads of the journal, the sweeper's
    journal, and the time of the event streams; what other modules and threads of this interpreter do is not touched.
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
        conditions = SimpleNamespace(Thread=HelperThread, Condition=partial(HelperCondition, clock))
        stack.enter_context(patch.object(stream, "threading", conditions))
        stack.enter_context(patch.object(stream, "time", SimpleNamespace(monotonic=lambda: clock.now_s)))
        stack.enter_context(patch.object(stream, "log", logging.Logger("simulated streams", logging.CRITICAL)))
        stack.enter_context(patch.object(history, "get_many", _one_by_one))
        stack.enter_context(patch.object(sharded_listing, "ThreadPoolExecutor", _OneByOne))
        yield


class _OneByOne:
    """In place of a pool of threads: what a listing asks for at once is asked for in turn."""

    def __init__(self, *arguments: object, **options: object) -> None:
        del arguments, options

    def __enter__(self) -> _OneByOne:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """As that of an executor."""
        return map(function, items)


def _one_by_one(store: ObjectStore, keys: Iterable[str], *, connections: int = 16) -> dict[str, StoredObject]:
    """Written once, so the order in which they are read shows nothing."""
    del connections
    return {key: store.get(key) for key in dict.fromkeys(keys)}
