"""A seeded simulation of the real protocol code: one scheduler decides who makes the next request.

Every try of a task is a process (a thread that stops before each request to the journal, the results or Airflow). A
process whose task instance was taken away goes on as a zombie, at any later step or never. Faults come from outside:
Airflow gives up on a running task, an outsider deletes an attempt's objects, a user clears, or restarts a region.

Checked at every step: the invariants of PROTOCOL section 11 that `Violation` names.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fakes import PUBLISH, Hooks, Killed, MemoryStore, Process, World

from airflow_recovery.errors import InputUnreachable, RecoveryError
from airflow_recovery.execution.publish import PublishTask
from airflow_recovery.journal.records import AttemptState, InputPin, Reset
from airflow_recovery.journal.replay import EventFold, differences
from airflow_recovery.storage.object_store import ObjectInfo
from airflow_recovery.testing import SeededFaults
from airflow_recovery.topology.determinism import Determinism

MAX_STEPS = 4_000
MAX_TRIES = 20


class Violation(AssertionError):
    """A promise was broken."""


class Actor:
    """A process, or a person, that makes one request at a time."""

    def __init__(self, name: str, body: Callable[[Process], None]) -> None:
        self.name = name
        self.process = Process(gate=self._wait)
        self.next = "begins"
        self.is_done = False
        self.error: BaseException | None = None
        self._body = body
        self._go = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Make the request at which it stands, and go on to the next."""
        self._go.release()
        self._arrived.acquire()
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """Let it die."""
        self.process.is_dead = True
        while not self.is_done:
            self._go.release()
            self._arrived.acquire()
        self._thread.join()

    def _wait(self, request: str) -> None:
        self.next = request
        self._arrived.release()
        self._go.acquire()

    def _main(self) -> None:
        self._go.acquire()
        try:
            self._body(self.process)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.is_done = True
        self._arrived.release()


class CheckedStore(MemoryStore):
    """The journal's store: every write is compared with what was written before.

    What is wrong is noted, not raised: the code under test would take it for a failure of its own.
    """

    def __init__(self, world: World) -> None:
        super().__init__("memory://journal")
        self.wrong: list[str] = []
        self._world = world

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        had = self.objects.get(key)
        info = super().put_if_absent(key, body)
        parsed = self._world.journal().layout.parse_attempt(key)
        if parsed is not None and parsed.kind == "claim" and parsed.attempt > 1:
            before = key.replace(f"{parsed.attempt:08d}", f"{parsed.attempt - 1:08d}")
            if before not in self.objects:
                self.wrong.append(f"{parsed.region}@{parsed.attempt} was claimed, and no attempt below it")
        if parsed is not None and parsed.kind == "outcome":
            if had is not None:
                self.wrong.append(f"{parsed.region}@{parsed.attempt} has two outcomes")
            self._check_outcome(parsed.region, parsed.attempt)
        return info

    def _check_outcome(self, region: str, attempt: int) -> None:
        journal = self._world.journal()
        outcome = journal.read_outcome(region, attempt)
        assert outcome is not None
        if outcome.state is not AttemptState.FINISHED:
            return
        if journal.layout.attempt(region, attempt + 1, "claim") in self.objects:
            self.wrong.append(f"{region}@{attempt} finished after its successor was claimed")
        for pin in outcome.inputs:
            read = journal.read_outcome(pin.region, pin.attempt)
            if read is None or read.state is not AttemptState.FINISHED:
                self.wrong.append(f"{region}@{attempt} names {pin.region}@{pin.attempt}, which never finished")


@dataclass
class Simulation:
    """One run of ``upstream`` under ``faults`` (kind -> how often), decided by ``seed``.

    ``max_attempts`` bounds how often a region may be claimed: more would be waste. With ``page_keys`` a listing is one
    request a page, and others may write between two. ``store_faults`` requests to the journal are answered with a
    time-out, a conflict or a lost reply. ``modes`` and ``unstable`` are those of `World`.
    """

    upstream: Mapping[str, tuple[str, ...]]
    seed: int
    faults: Mapping[str, int]
    max_attempts: Mapping[str, int] = field(default_factory=dict)
    compares: bool = True
    page_keys: int | None = None
    store_faults: int = 0
    modes: Mapping[str, Determinism] = field(default_factory=dict)
    unstable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.world = World(self.upstream, retries=1_000, modes=self.modes, unstable=self.unstable)
        self.store = CheckedStore(self.world)
        self.world.journal_store = self.store
        self.world.airflow.compares = self.compares
        self.world.page_keys = self.page_keys
        if self.store_faults:
            faulty = SeededFaults(self.store, self.seed, rate=0.1, limit=self.store_faults)
            self.world.between_process_and_journal = lambda store: faulty
        self.actors: list[Actor] = []
        self.left = dict(self.faults)
        self.acknowledged = dict.fromkeys(self.upstream, 0)
        self.served = dict.fromkeys(self.upstream, 0)
        self.trace: list[str] = []
        # Some seeds let one process run for long, others change at every request.
        self._stickiness = self.rng.choice([0.0, 0.5, 0.8, 0.95])
        self._fault_rate = self.rng.choice([0.01, 0.03, 0.1])
        self._last: Actor | None = None
        self._has_died = False

    def run(self) -> None:
        """To the end. Raises `Violation` with the seed and what happened."""
        try:
            for _ in range(MAX_STEPS):
                if self._is_over():
                    self._check_history()
                    return
                self._step()
                self._check()
            raise Violation(f"no end in {MAX_STEPS} steps")
        except Violation as violation:
            tail = "\n  ".join(self.trace[-150:])
            raise Violation(f"seed {self.seed}, faults {dict(self.faults)}: {violation}\n  {tail}") from violation
        finally:
            for actor in self.actors:
                actor.kill()

    def _is_over(self) -> bool:
        airflow = self.world.airflow
        return airflow.is_green and not self.actors and (not any(self.left.values()) or self.rng.random() < 0.3)

    def _step(self) -> None:
        options = self._fault_options() if self.rng.random() < self._fault_rate or self._is_stuck() else []
        if options:
            label, act = self.rng.choice(options)
            self.trace.append(label)
            act()
            return
        ready = self.world.airflow.ready()
        if self._last in self.actors and self.rng.random() < self._stickiness:
            assert self._last is not None
            self._advance(self._last)
        elif ready and (not self.actors or self.rng.random() < 0.4):
            self._start(self.rng.choice(ready))
        elif self.actors:
            actor = self.rng.choice(self.actors)
            if self._is_zombie(actor) and self.rng.random() < 0.05:
                self.trace.append(f"{actor.name} dies")
                self._has_died = True
                actor.kill()
                self.actors.remove(actor)
            else:
                self._advance(actor)
        elif not self.world.airflow.is_green:
            states = {each: self.world.airflow.state(each) for each in self.world.airflow.upstream}
            raise Violation(f"stuck: {states}")

    def _is_stuck(self) -> bool:
        return self.world.airflow.is_green and not self.actors

    def _advance(self, actor: Actor) -> None:
        self.trace.append(f"{'zombie ' if self._is_zombie(actor) else ''}{actor.name}: {actor.next}")
        self._last = actor
        try:
            actor.step()
        finally:
            if actor.is_done:
                self.actors.remove(actor)

    def _is_zombie(self, actor: Actor) -> bool:
        own = getattr(actor, "own", None)
        return own is not None and not self.world.airflow.is_mine(own)

    # what can happen

    def _start(self, task: str) -> None:
        own = self.world.airflow.start(task)

        def body(process: Process) -> None:
            try:
                attempt = self._execute(task, own, process)
            except InputUnreachable as error:
                raise Violation(f"{task}: {error}") from error
            except Violation:
                raise
            except RecoveryError as error:
                process.request(f"reports failure: {type(error).__name__}: {error}"[:160])
                self.world.airflow.end(own, "failed")
            else:
                process.request(f"reports success with {attempt}")
                if self.world.airflow.end(own, "success") and task != PUBLISH:
                    self.served[task] = attempt

        actor = Actor(f"{task} try {own.try_number}", body)
        actor.own = own  # type: ignore[attr-defined]
        self.actors.append(actor)
        self.trace.append(f"airflow starts {actor.name}")

    def _execute(self, task: str, own: object, process: Process) -> int:
        if task != PUBLISH:
            return self.world.region_task(own, process, Hooks()).execute().attempt  # type: ignore[arg-type]
        self.world._writers += 1
        run = self.world.run(own, process, f"writer-{self.world._writers}")  # type: ignore[arg-type]
        publish = PublishTask(run).execute()
        cut = {each.region: each.attempt for each in publish.regions}
        for region, attempt in cut.items():
            outcome = self.world.journal().read_outcome(region, attempt)
            assert outcome is not None
            for pin in outcome.inputs:
                if pin.region not in cut or self._counted(pin, cut) != cut[pin.region]:
                    raise Violation(f"publish {publish.number} is not coherent: {cut}, {region} read {pin}")
        return publish.number

    def _fault_options(self) -> list[tuple[str, Callable[[], None]]]:
        options: list[tuple[str, Callable[[], None]]] = []
        airflow = self.world.airflow
        for region in self.upstream:
            if airflow.state(region) == "running":
                options.append(
                    self._fault("heartbeat", f"AIRFLOW gives up on {region}", airflow.lose_heartbeat, region)
                )
            if airflow.now(region).try_number:
                options.append(self._fault("clear", f"USER clears {region}", airflow.clear, region))
            top = self.world.attempts(region)
            if top:
                options.append(self._fault("restart", f"USER restarts {region}@{top}", self._restart, region, top))
            for n in range(1, top + 1):
                if list(self.world.results.list(self.world.journal().layout.data_of(region, n))):
                    what = f"OUTSIDER deletes {region}@{n}"
                    options.append(self._fault("delete", what, self.world.delete_results, region, n))
        return [(label, act) for kind, label, act in options if self.left.get(kind)]  # type: ignore[misc]

    def _fault(
        self, kind: str, label: str, act: Callable[..., None], *args: object
    ) -> tuple[str, str, Callable[[], None]]:
        def happen() -> None:
            self.left[kind] -= 1
            act(*args)

        return kind, label, happen

    def _restart(self, region: str, top: int) -> None:
        """Reset first, then clear, with whatever else in between; acknowledged when both are done."""

        def body(process: Process) -> None:
            process.request(f"resets {region}@{top}")
            self.world.journal(writer="user").reset(Reset(region, top, "user", "asked for"))
            process.request(f"clears {region}")
            self.world.airflow.clear(region)
            self.acknowledged[region] = max(self.acknowledged[region], top)

        self.actors.append(Actor("USER", body))

    # what must hold

    def _check(self) -> None:
        if self.store.wrong:
            raise Violation("; ".join(self.store.wrong))
        for region in self.upstream:
            if self.world.airflow.now(region).try_number > MAX_TRIES:
                raise Violation(f"storm: {region} has more than {MAX_TRIES} tries")
        if not self.world.airflow.is_green:
            return
        for region, most in self.max_attempts.items():
            if self.world.attempts(region) > most:
                raise Violation(f"waste: {region} was claimed {self.world.attempts(region)} times")
        current = {region: self.world.current(region) for region in self.upstream}
        bad = self._why_incoherent(current)
        if bad and self._why_incoherent(self.served):
            raise Violation(f"false green: {bad}; current {current}, served {self.served}")

    def _check_history(self) -> None:
        """Whoever replays the events comes to the same state, where nobody has died with an event unsaid."""
        fold = EventFold({})
        for event in self.world.events:
            fold.add(event)
        unlike = differences(self.world.state(), fold.state())
        if unlike and not self._has_died:
            raise Violation(f"the history is not the journal's: {'; '.join(unlike)}")

    def _why_incoherent(self, cut: Mapping[str, int]) -> str | None:
        for region, number in cut.items():
            if number <= self.acknowledged[region]:
                return f"the restart of {region}@{self.acknowledged[region]} was not done"
        todo = [(region, cut[region]) for region in self.world.leaves]
        seen: dict[str, int] = {}
        while todo:
            region, number = todo.pop()
            outcome = self.world.journal().read_outcome(region, number)
            if outcome is None or outcome.state is not AttemptState.FINISHED:
                return f"{region}@{number} has not finished"
            if number <= self.acknowledged[region]:
                return f"the results rest on {region}@{number}, which was reset"
            if seen.setdefault(region, number) != number:
                return f"the results rest on {region}@{number} and on {region}@{seen[region]}"
            todo += [(pin.region, self._counted(pin, cut)) for pin in outcome.inputs]
        return None

    def _counted(self, pin: InputPin, cut: Mapping[str, int]) -> int:
        """The attempt that ``pin`` stands for in ``cut``: the cut's own, where the mode of its region lets it.

        Rows are compared by the objects' etags, not by the digests that the code under test compares.
        """
        mode, now = self.world.mode(pin.region), cut[pin.region]
        if mode is Determinism.ASSUME:
            return now
        if mode is Determinism.VERIFY and self._etags(pin.region, pin.attempt) == self._etags(pin.region, now):
            return now
        return pin.attempt

    def _etags(self, region: str, attempt: int) -> tuple[str, ...]:
        outcome = self.world.journal().read_outcome(region, attempt)
        return tuple(each.etag for one in outcome.outputs for each in one.objects) if outcome is not None else ()
