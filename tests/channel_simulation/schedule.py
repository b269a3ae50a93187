"""One schedule: who goes on, what goes wrong, and who restarts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from airflow_recovery.errors import ChannelError, ChannelEvicted, LossBudgetExceeded, RecoveryError
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store.log import PutAnswer, PutSlot
from airflow_recovery.streaming.channel_graph import ChannelGraph
from airflow_recovery.streaming.mode import ChannelPlan, StreamingPlan
from airflow_recovery.streaming.preview import taken_along
from airflow_recovery.streaming.restart import StreamingRestartMode
from channel_simulation.programs import (
    Ask,
    Idle,
    OnLog,
    Program,
    RegionAttempt,
    SegmentVanished,
)
from channel_simulation.settings import Fault, Settings, Violation
from channel_simulation.verdict import check_end
from channel_simulation.world import World

MAX_STEPS = 6_000
TRACE_TAIL = 60


@dataclass(frozen=True)
class Report:
    """What a schedule was. ``attempts`` by region; ``lost`` and ``total`` records of the newest generations.

    ``ended``: drained, or how the run has ended by name. ``records``: the steps at which a newest attempt wrote one.
    """

    seed: int
    steps: int
    attempts: dict[str, int]
    lost: int
    committed: int
    lost_races: int
    ended: str
    records: tuple[int, ...]


class _Process:
    def __init__(self, attempt: RegionAttempt) -> None:
        self.attempt = attempt
        self.program: Program[None] = attempt.program()
        self.ask: Ask | None = None
        self.answer: Any = None
        self.idle_at = -1
        self.is_over = False


class Schedule:
    """Runs once. Everything that is random comes from the seed."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.seed, self.settings = seed, settings
        self._rng = random.Random(seed)
        names = ["source", *(f"scorer{number}" for number in range(1, settings.regions - 1)), "sink"]
        self._graph = ChannelGraph(_plan(names))
        self._names = names
        self._attempts = dict.fromkeys(names, 0)
        self._world = World(names[:-1], self._note)
        self._running: dict[str, _Process] = {}
        self._zombies: list[_Process] = []
        self._flying: list[OnLog] = []
        self._steps = 0
        self._records: list[int] = []
        self._trace: list[str] = []

    def run(self) -> Report:
        """To its end. Raises `Violation`."""
        try:
            ended = self._run()
        except Violation as violation:
            tail = "\n  ".join(self._trace[-TRACE_TAIL:])
            raise Violation(f"seed {self.seed}: {violation}\n{self.settings.text()}\n  {tail}") from None
        newest = self._world.newest()
        return Report(
            self.seed,
            self._steps,
            dict(self._attempts),
            sum(channel.state.lost for channel in newest),
            len(newest[-1].truth.delivered),
            self._world.lost_races,
            ended,
            tuple(self._records),
        )

    def _run(self) -> str:
        for name in self._names:
            self._start(name)
        while any(not process.is_over for process in self._running.values()):
            if self._steps > MAX_STEPS:
                raise Violation(f"no end in {MAX_STEPS} steps")
            process = self._choose()
            try:
                self._step(process)
            except LossBudgetExceeded as error:
                self._late()
                return type(error).__name__
        self._late()
        check_end(self._world, self.settings)
        return "drained"

    # --- who goes on -------------------------------------------------------------------------------------------------

    def _choose(self) -> _Process:
        live = [
            process
            for process in self._running.values()
            if not process.is_over and process.idle_at != self._world.version
        ]
        if (self._zombies or self._flying) and (not live or self._rng.random() < 0.1):
            return self._intrude(live)
        if not live:
            raise Violation("nobody can go on: all wait for each other")
        return self._rng.choice(live)

    def _intrude(self, live: list[_Process]) -> _Process:
        """A late write lands, or a zombie wakes for a while."""
        while self._flying and (not live or self._rng.random() < 0.5):
            ask = self._flying.pop(self._rng.randrange(len(self._flying)))
            self._note("a late write lands")
            self._world.execute(ask)
            if not live:
                live = [process for process in self._running.values() if not process.is_over]
        zombies = [zomby for zomby in self._zombies if not zomby.is_over and zomby.idle_at != self._world.version]
        self._zombies = [zomby for zomby in self._zombies if not zomby.is_over]
        if zombies:
            return self._rng.choice(zombies)
        if not live:
            live = [
                process
                for process in self._running.values()
                if not process.is_over and process.idle_at != self._world.version
            ]
        if not live:
            raise Violation("nobody can go on: all wait for each other")
        return self._rng.choice(live)

    def _late(self) -> None:
        """Whatever is still under way comes after the end, and must change nothing."""
        while self._flying:
            self._world.execute(self._flying.pop())
        self._run_zombies()

    def _run_zombies(self) -> None:
        for zomby in self._zombies:
            for _ in range(100):
                if zomby.is_over or zomby.idle_at == self._world.version:
                    break
                self._advance(zomby)

    # --- a step ------------------------------------------------------------------------------------------------------

    def _step(self, process: _Process) -> None:
        fault = self.settings.faults.get(self._steps)
        self._steps += 1
        is_newest = self._running.get(process.attempt.name) is process
        if process.ask is None:
            self._resume(process)
        if is_newest and isinstance(process.ask, OnLog) and isinstance(process.ask.request, PutSlot):
            self._records.append(self._steps - 1)
        if fault is Fault.WAKE:
            self._note("the frozen ones wake")
            self._run_zombies()
        if fault in (None, Fault.WAKE) or not is_newest:
            self._advance(process)
            return
        self._note(f"{process.attempt.process}: {fault.name}")
        if fault is Fault.LOSE_REPLY or fault is Fault.LOSE_REQUEST:
            self._advance(process, lose=fault)
            return
        ask = process.ask
        if fault is Fault.KILL and ask is not None:
            self._world.execute(ask)
        elif fault is Fault.KILL_FLYING and isinstance(ask, OnLog):
            self._flying.append(ask)
        elif fault is Fault.STRAY:
            self._stray(ask)
        if process.is_over:
            return  # it had finished, and its task reports that
        process.is_over = fault is not Fault.FREEZE
        self._restart(process.attempt.name)

    def _advance(self, process: _Process, lose: Fault | None = None) -> None:
        """Let a process make its request, and run to the next one."""
        if process.ask is None:
            self._resume(process)
        ask = process.ask
        if process.is_over or ask is None:
            return
        if isinstance(ask, Idle):
            process.ask = None
            return
        is_write = isinstance(ask, OnLog) and isinstance(ask.request, PutSlot)
        if lose is Fault.LOSE_REQUEST and is_write:
            assert isinstance(ask, OnLog)
            self._flying.append(ask)
            process.answer = PutAnswer.UNKNOWN
        else:
            answer = self._world.execute(ask)
            process.answer = PutAnswer.UNKNOWN if lose is not None and is_write else answer
        process.ask = None
        self._resume(process)

    def _resume(self, process: _Process) -> None:
        name = process.attempt.process
        try:
            process.ask = process.program.send(process.answer)
            process.answer = None
            if isinstance(process.ask, Idle):
                # What it has seen is what was there by now: whatever is written later wakes it.
                process.idle_at = self._world.version
        except StopIteration:
            process.is_over = True
            self._note(f"{name} has ended")
        except LossBudgetExceeded:
            process.is_over = True
            if self._is_owner(process):
                raise
        except (ChannelEvicted, SegmentVanished) as error:
            process.is_over = True
            self._note(f"{name}: {type(error).__name__}")
            if self._is_owner(process):
                raise Violation(f"{name} is the newest attempt, and was refused: {error}") from error
        except RecoveryError as error:
            process.is_over = True
            if isinstance(error, ChannelError) and not self._is_owner(process):
                self._note(f"{name}: {type(error).__name__}")
                return
            raise Violation(f"{name}: {type(error).__name__}: {error}") from error

    def _is_owner(self, process: _Process) -> bool:
        return self._running.get(process.attempt.name) is process

    def _stray(self, ask: Ask | None) -> None:
        """A writer that does not look: the record it has prepared goes to the tail after others have taken over."""
        if isinstance(ask, OnLog) and isinstance(ask.request, PutSlot):
            self._world.strays.append((ask.channel, ask.request))

    # --- restarts ----------------------------------------------------------------------------------------------------

    def _restart(self, failed: str) -> None:
        """As the planner says: whoever restarts and is not dead goes on as a zombie for a while."""
        along = taken_along(self._graph, failed, self._mode(failed))
        for name in along.starting_over & self._world.generation.keys():
            self._world.generation[name] += 1
        for name in (name for name in self._names if name in along.regions):
            old = self._running.get(name)
            if old is not None and not old.is_over:
                self._zombies.append(old)
            self._start(name)

    def _mode(self, failed: str) -> StreamingRestartMode:
        """As `airflow_recovery.streaming.restart` decides of an attempt that has simply ended."""
        if self.settings.strategy is FailoverStrategy.APPROXIMATE_DOWNSTREAM:
            return StreamingRestartMode.BEHIND
        is_alone = self.settings.strategy is FailoverStrategy.APPROXIMATE_SINGLE or not self._graph.readers(failed)
        return StreamingRestartMode.ALONE if is_alone else StreamingRestartMode.START_OVER

    def _start(self, name: str) -> None:
        self._attempts[name] += 1
        number = self._names.index(name)
        reads = self._world.identity(self._names[number - 1]) if number else None
        feeds = self._world.identity(name) if name in self._world.generation else None
        self._running[name] = _Process(RegionAttempt(name, self._attempts[name], reads, feeds, self.settings))

    def _note(self, what: str) -> None:
        self._trace.append(f"{self._steps} {what}")


def _plan(names: list[str]) -> PlanRecord:
    """A chain of streaming regions; each channel has the name of its producer."""
    channels = [ChannelPlan(name, name) for name in names[:-1]]
    return PlanRecord(
        "simulated",
        tuple(
            RegionPlan(name, (name,), (), (), False, None, mode=StreamingPlan(tuple(channels[at - 1 : at]), out))
            for at, name in enumerate(names)
            for out in [tuple(channels[at : at + 1])]
        ),
    )


def simulate(seed: int, settings: Settings) -> Report:
    """Run one schedule. Raises `Violation`."""
    return Schedule(seed, settings).run()
