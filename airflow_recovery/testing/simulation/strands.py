"""Processes that take turns: one request at a time, in an order that somebody else decides.

A *process* is what the operating system would kill as a whole; it has one *strand* or more, each on a thread of its
own. Only the strand that has the baton runs. It gives the baton away at each switch point (before a request to a
store or to Airflow, while it sleeps, while it waits for another strand), and ``choose`` says who goes on. The question
is asked in the thread that stands at the switch point, so that going on oneself costs no change of threads.

A dead process does nothing more: at its switch point `Killed` is raised, and at every later one that its ``finally``
blocks come to. Threads are kept for the next schedule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


class Killed(BaseException):
    """The process has died: no request of it has an effect any more."""


class Terminated(BaseException):
    """SIGTERM: raised once in the process, whose ``finally`` blocks still work."""


class Awaited(Protocol):
    """What a strand may wait for."""

    @property
    def is_over(self) -> bool:
        """Nobody has to wait any more."""
        ...


@dataclass(eq=False)
class Process:
    """What dies as a whole. ``weight``: how readily it is chosen to go on; near 0 is a long pause."""

    name: str
    weight: float = 1.0
    is_dead: bool = False
    is_told_to_end: bool = False
    strands: list[Strand] = field(default_factory=list)


@dataclass(eq=False)
class Strand:
    """One thread of a process. ``request`` is what it does next.

    ``is_helper``: not the main thread, in which alone a signal is handled.
    """

    process: Process
    body: Callable[[], None]
    request: str = "begins"
    is_done: bool = False
    wakes_at_s: float = 0.0
    waits_for: Awaited | None = None
    worker: _Worker | None = None
    is_helper: bool = False

    @property
    def is_over(self) -> bool:
        """It has ended, or its process has."""
        return self.is_done or self.process.is_dead

    @property
    def can_go_on(self) -> bool:
        """Does not wait for a strand that is still at work."""
        return self.waits_for is None or self.waits_for.is_over


class StrandRunner:
    """Runs strands until ``choose`` returns `None`, or anybody raises what no process may raise.

    ``choose(last)`` is asked who goes on; ``last`` has just come to a switch point, or has ended.
    """

    def __init__(self, choose: Callable[[Strand | None], Strand | None]) -> None:
        self._choose = choose
        self._over = threading.Lock()
        self._over.acquire()
        self._error: BaseException | None = None
        self._begun: list[Strand] = []
        self.current: Strand | None = None

    def run(self) -> None:
        """To the end. Raises what ``choose`` raised, or a strand that did not end by `Killed`.

        Whoever is left then dies, so that its thread is free again.
        """
        global _runner
        _runner = self
        try:
            self._hand_over(self._ask(None))
            self._over.acquire()
            error, self._error = self._error, None
            self._choose = self._next_to_die
            self._hand_over(self._next_to_die(None))
            self._over.acquire()
        finally:
            _runner = None
        if error is not None:
            raise error

    def _next_to_die(self, last: Strand | None) -> Strand | None:
        del last
        self._begun = [strand for strand in self._begun if not strand.is_done]
        for strand in self._begun:
            strand.process.is_dead = True
        return self._begun[-1] if self._begun else None

    def switch(self, request: str) -> None:
        """The current strand comes to a switch point. Raises `Killed` or `Terminated` in the name of its process."""
        strand = self.current
        assert strand is not None, "a request that no process makes"
        process = strand.process
        if process.is_dead:
            raise Killed(request)
        strand.request = request
        chosen = self._ask(strand)
        if chosen is not strand:
            worker = strand.worker
            assert worker is not None
            self._hand_over(chosen)
            worker.baton.acquire()
            self.current = strand
        if process.is_dead:
            raise Killed(request)
        if process.is_told_to_end and not strand.is_helper:
            process.is_told_to_end = False
            raise Terminated(request)

    def sleep(self, until_s: float) -> None:
        """The current strand sleeps until ``until_s``: ``choose`` may let it go on, and must advance its clock then."""
        strand = self.current
        assert strand is not None
        strand.wakes_at_s = until_s
        self.switch("sleeps")

    def join(self, other: Awaited) -> None:
        """The current strand waits until ``other`` is over: has ended, or its process has died."""
        strand = self.current
        assert strand is not None
        if strand.process.is_dead:
            raise Killed("waits")
        strand.waits_for = other
        try:
            while not other.is_over:
                self.switch("waits")
        finally:
            strand.waits_for = None

    def _ask(self, last: Strand | None) -> Strand | None:
        if self._error is not None:
            return None
        try:
            return self._choose(last)
        except BaseException as error:
            self._error = error
            return None

    def _hand_over(self, chosen: Strand | None) -> None:
        if chosen is None:
            self._over.release()
            return
        if chosen.worker is None:
            chosen.worker = _idle.pop() if _idle else _Worker()
            chosen.worker.strand, chosen.worker.runner = chosen, self
            self._begun.append(chosen)
        chosen.worker.baton.release()

    def perform(self, strand: Strand) -> None:
        """In a worker's thread: run a strand to its end and hand over."""
        self.current = strand
        try:
            if strand.process.is_dead:
                raise Killed("begins")
            strand.body()
        except (Killed, Terminated):
            pass
        except BaseException as error:
            self._error = self._error or error
        strand.is_done = True
        worker, strand.worker = strand.worker, None
        assert worker is not None
        # The chosen one may be new, and take this very thread.
        chosen = self._ask(strand)
        _idle.append(worker)
        self._hand_over(chosen)


class _Worker:
    """A thread that performs one strand after another, and sleeps in between."""

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.strand: Strand | None = None
        self.runner: StrandRunner | None = None
        threading.Thread(target=self._work, name="simulated process", daemon=True).start()

    def _work(self) -> None:
        while True:
            self.baton.acquire()
            assert self.runner is not None
            assert self.strand is not None
            self.runner.perform(self.strand)


_idle: list[_Worker] = []
_runner: StrandRunner | None = None


def current_runner() -> StrandRunner:
    """The one that is running in this interpreter; one runs at a time."""
    assert _runner is not None, "no simulation is running"
    return _runner
