"""What can happen next in a `World`, and what it makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

from airflow_recovery.source.reconcile import SubtaskOutcome, Support
from airflow_recovery.source.split_events import (
    Acked,
    AttemptFailed,
    Claimed,
    Event,
    Fence,
    FenceAnswered,
    Finished,
    NoMoreSplits,
    PartCommitted,
    Ready,
    Requested,
    RetryDue,
    Send,
    SendFailed,
    Snapshot,
    SnapshotTimedOut,
    SnapshotWritten,
    SubtaskReset,
)
from airflow_recovery.source.split_log import Discovered, Message, Reset
from airflow_recovery.source.subtask_gateway import Apply
from airflow_recovery.testing.split_exploration.case import Case, Fault
from airflow_recovery.testing.split_exploration.world import (
    Call,
    Enumerator,
    Process,
    World,
    split_of,
    unit_of,
)

Step: TypeAlias = tuple[Any, ...]
"""What happens, as the name of a method of `Steps`, and to what."""


class Violation(Exception):
    """A state that must not be: the text says why."""


class Steps:
    """The steps of the worlds of one case. A world is changed in place."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._cuts = 2 + sum(each is Fault.CRASH for each in case.kinds) * case.faults
        self._is_told_late = case.support is Support.BATCH_SNAPSHOT

    def first(self) -> World:
        """Before anything has happened."""
        world = World(faults=self.case.faults)
        self._new_coordinator(world)
        return world

    def possible(self, world: World) -> list[Step]:
        """What can happen without a fault: one of it is enough where it `_is_too_late`, or where it `_is_calm`."""
        steps = self._possible(world)
        late = next((each for each in steps if self._is_too_late(world, each)), None)
        if late is not None:
            return [late]
        return steps[:1] if steps and not self.case.in_every_order and self._is_calm(world) else steps

    def _is_too_late(self, world: World, step: Step) -> bool:
        """Is this for an attempt that has a successor, or that nobody waits for? When it happens changes nothing."""
        if step[0] == "deliver":
            subtask, attempt, _ = _call(step[1])
            return (subtask, attempt) not in world.processes and (subtask, world.newest(subtask)) in world.processes
        if step[0] in ("ack", "handle_failure") and world.coordinator is not None:
            subtask, attempt, _ = step[1] if isinstance(step[1], tuple) else _call(step[1])
            return bool(world.coordinator._lanes[subtask].running != attempt)
        return False

    def _is_calm(self, world: World) -> bool:
        """Can nothing go wrong any more, and is nothing left of what did? Then every order comes to the same."""
        coordinator = world.coordinator
        if world.faults or coordinator is None or world.failed or coordinator._unheard:
            return False
        running = {(subtask, lane.running) for subtask, lane in coordinator._lanes.items()}
        return (
            all(lane.fencing is None for lane in coordinator._lanes.values())
            and running.issuperset(world.processes)
            and all((each.subtask, each.attempt) in running for each in world.sends)
        )

    def _possible(self, world: World) -> list[Step]:
        steps: list[Step] = []
        alive = world.coordinator is not None
        if not alive:
            steps.append(("restore",))
        steps += [("deliver", each) for each in dict.fromkeys(world.sends)]
        for (subtask, attempt), process in world.processes.items():
            if process.unread:
                steps.append(("read", subtask, attempt))
            elif process.gateway.may_finish:
                steps.append(("finish", subtask, attempt))
        if not alive:
            return steps
        steps += [("hear", at) for at in _first_of_each(world.events)]
        steps += [("act", at) for at in _first_of_each(world.todo)]
        steps += [("ack", each) for each in dict.fromkeys(world.acks)]
        steps += [("handle_failure", each) for each in world.failed]
        if world.enumerator is not None and world.enumerator.told <= self.case.splits:
            steps.append(("enumerate_next",))
        steps += [("start", subtask) for subtask in range(self.case.subtasks) if self._may_start(world, subtask)]
        return steps

    def faulty(self, world: World) -> list[Step]:
        """What can go wrong now."""
        return [*self._faulty(world)] if world.faults else []

    def _faulty(self, world: World) -> Iterator[Step]:
        kinds = self.case.kinds
        if Fault.LOSE_SEND in kinds:
            yield from (("lose_send", each) for each in dict.fromkeys(world.sends) if self._is_waited_for(world, each))
        if Fault.LOSE_ACK in kinds:
            yield from (("lose_ack", each) for each in dict.fromkeys(world.acks) if self._is_waited_for(world, each))
        if Fault.TIME_OUT in kinds:
            late = dict.fromkeys(_call(each) for each in (*world.sends, *world.acks))
            yield from (("time_out", each) for each in late if self._is_waited_for(world, each))
        for subtask, attempt in world.processes:
            if Fault.KILL in kinds:
                yield ("kill", subtask, attempt)
            if Fault.PRESUME_DEAD in kinds and world.coordinator is not None:
                yield ("presume_dead", subtask, attempt)
        if Fault.CRASH in kinds and world.coordinator is not None:
            yield ("crash",)
        if Fault.RESET in kinds and world.coordinator is not None:
            for subtask in range(self.case.subtasks):
                current = world.current(subtask)
                if current is not None and current[1] == world.newest(subtask):
                    yield ("reset", subtask, current[1])
        if Fault.SLOW_SNAPSHOT in kinds:
            yield from (("give_up_snapshot", at) for at, each in enumerate(world.todo) if isinstance(each, Snapshot))

    def take(self, world: World, step: Step, *, is_fault: bool) -> None:
        """Let ``step`` happen. Raises `Violation`, and whatever the explored classes raise."""
        if is_fault:
            world.faults -= 1
        getattr(self, f"_{step[0]}")(world, *step[1:])
        self._forget_the_dead(world)

    def check_end(self, world: World) -> None:
        """Raise `Violation` where a world in which nothing more can happen is not as it should be."""
        finishes = [world.current(subtask) for subtask in range(self.case.subtasks)]
        if None in finishes:
            stuck = [subtask for subtask, each in enumerate(finishes) if each is None]
            raise Violation(f"dead end: subtask {stuck[0]} has not finished, and nothing more can happen")
        read = Counter(self._unit(key) for each in finishes if each is not None for key in world.outcomes[each] or ())
        lost = [unit for unit in range(self.case.splits) if unit not in read]
        twice = [unit for unit, times in read.items() if times > 1]
        if twice:
            raise Violation(f"doubled: split {twice[0]} is in the result more than once")
        if lost:
            raise Violation(f"lost: split {lost[0]} is in no finish that counts")

    # the coordinator

    def _tell(self, world: World, event: Event) -> None:
        if world.coordinator is None:
            return
        for action in world.coordinator.on(event):
            if isinstance(action, Send):
                self._send(world, action.message)
            elif isinstance(action, (Fence, Snapshot, Reset)):
                world.todo.append(action)

    def _send(self, world: World, message: Message) -> None:
        subtask, attempt, seq = _call(message)
        world.sends.append(message)
        process = world.processes.get((subtask, attempt))
        if process is None or seq not in process.gateway._applied:
            world.unsettled.setdefault((subtask, attempt), set()).add(seq)

    def _new_coordinator(self, world: World) -> None:
        enumerator = Enumerator(self.case.splits, world.lives) if self._is_told_late else None
        world.coordinator = self.case.rules.coordinator(
            self.case.subtasks, min_pause_s=0.0, enumerator=enumerator, is_drained=not self._is_told_late
        )
        world.lives += 1
        if not self._is_told_late:
            self._tell(world, self._listing())

    def _listing(self) -> Discovered:
        return Discovered(tuple(split_of(unit, 0) for unit in range(self.case.splits)))

    def _enumerate_next(self, world: World) -> None:
        enumerator = world.enumerator
        assert enumerator is not None
        if enumerator.told == self.case.splits:
            self._tell(world, NoMoreSplits())
        else:
            self._tell(world, Discovered((split_of(enumerator.told, enumerator.cut),)))
        enumerator.told += 1

    def _crash(self, world: World) -> None:
        world.coordinator = None
        for gone in (world.todo, world.events, world.acks, world.failed):
            gone.clear()
        world.unsettled.clear()

    def _restore(self, world: World) -> None:
        found = []
        for subtask in range(self.case.subtasks):
            newest, current = world.newest(subtask), world.current(subtask)
            if current is not None and current[1] == newest:
                found.append(SubtaskOutcome(subtask, newest, tuple(dict.fromkeys(world.outcomes[current] or ()))))
            elif newest:
                found.append(SubtaskOutcome(subtask, newest))
        self._new_coordinator(world)
        assert world.coordinator is not None
        plan = self.case.rules.reconcile(
            world.snapshot, found, self.case.support, None if self._is_told_late else self._listing()
        )
        world.todo += [each for each in world.coordinator.restore(plan) if isinstance(each, (Fence, Reset))]

    def _act(self, world: World, at: int) -> None:
        action = world.todo.pop(at)
        if isinstance(action, Fence):
            self._fence(world, action.subtask, action.attempt)
        elif isinstance(action, Reset):
            world.resets[action.subtask] = max(action.attempt, world.resets.get(action.subtask, 0))
        elif isinstance(action, Snapshot):
            if any(world.unsettled.values()) and not self.case.rules.may_snapshot_in_limbo:
                attempt, seqs = next((each, seqs) for each, seqs in world.unsettled.items() if seqs)
                raise Violation(
                    f"limbo: a snapshot is written while it is unknown whether number {min(seqs)} of subtask "
                    f"{attempt[0]}, attempt {attempt[1]} has arrived"
                )
            world.snapshot = action.state
            world.events.append(SnapshotWritten(action.number))

    def _fence(self, world: World, subtask: int, attempt: int) -> None:
        finished = None
        if self.case.rules.is_fenced:
            finished = world.outcomes.setdefault((subtask, attempt), None)
        self._tell(world, FenceAnswered(subtask, attempt, tuple(dict.fromkeys(finished)) if finished else finished))
        if finished is not None:
            world.unsettled.pop((subtask, attempt), None)

    def _give_up_snapshot(self, world: World, at: int) -> None:
        action = world.todo.pop(at)
        assert isinstance(action, Snapshot)
        self._tell(world, SnapshotTimedOut(action.number))

    def _hear(self, world: World, at: int) -> None:
        event = world.events.pop(at)
        if isinstance(event, Claimed) and self.case.rules.looks_again:
            before = (event.subtask, event.attempt - 1)
            seen = (*world.claims.get(before, ()), *world.parts.get(before, ()))
            event = Claimed(event.subtask, event.attempt, frozenset(key for part in seen for key in part))
        self._tell(world, event)
        if isinstance(event, Claimed):
            world.unsettled.pop((event.subtask, event.attempt - 1), None)
            gateway = self.case.rules.gateway(event.subtask, event.attempt)
            world.processes[event.subtask, event.attempt] = Process(gateway)
            self._tell(world, Ready(event.subtask, event.attempt))
            for _ in range(self.case.window):
                self._tell(world, Requested(event.subtask, event.attempt))
        elif isinstance(event, Finished):
            world.unsettled.pop((event.subtask, event.attempt), None)

    # messages

    def _deliver(self, world: World, message: Message) -> None:
        world.sends.remove(message)
        key = (message.subtask, message.attempt)
        # A subtask's address stays the same: what comes late reaches whoever lives there now.
        process = world.processes.get(key) or world.processes.get((message.subtask, world.newest(message.subtask)))
        if process is None:
            return
        for reaction in process.gateway.on(message):
            if isinstance(reaction, Apply):
                process.unread.append(reaction.splits)
            elif world.coordinator is not None:
                world.acks.append(reaction)
                world.unsettled.get((reaction.subtask, reaction.attempt), set()).discard(reaction.seq)

    def _ack(self, world: World, ack: Any) -> None:
        world.acks.remove(ack)
        self._tell(world, Acked(*_call(ack)))

    def _is_waited_for(self, world: World, what: Any) -> bool:
        """Would the coordinator notice that it is lost? What an earlier coordinator sent is lost unnoticed."""
        if world.coordinator is None:
            return False
        subtask, attempt, seq = what if isinstance(what, tuple) else _call(what)
        lane = world.coordinator._lanes[subtask]
        return lane.running == attempt and seq in lane.in_flight and (subtask, attempt, seq) not in world.failed

    def _lose_send(self, world: World, message: Message) -> None:
        world.sends.remove(message)
        self._call_fails(world, _call(message))

    def _lose_ack(self, world: World, ack: Any) -> None:
        world.acks.remove(ack)
        self._call_fails(world, _call(ack))

    def _time_out(self, world: World, call: Call) -> None:
        self._call_fails(world, call)

    def _call_fails(self, world: World, call: Call) -> None:
        world.failed.append(call)
        self._tell(world, SendFailed(*call))

    def _handle_failure(self, world: World, call: Call) -> None:
        world.failed.remove(call)
        self._tell(world, RetryDue(*call))

    # attempts

    def _may_start(self, world: World, subtask: int) -> bool:
        """Airflow starts the next attempt: the first, or when the one before is over and does not count."""
        newest = world.newest(subtask)
        if newest == 0:
            return True
        if any(getattr(each, "subtask", None) == subtask for each in (*world.todo, *world.events)):
            return False
        if (subtask, newest) not in world.outcomes:
            return not self.case.rules.is_fenced and self._is_given_up(world, subtask, newest)
        return world.outcomes[subtask, newest] is None or newest <= world.resets.get(subtask, 0)

    def _is_given_up(self, world: World, subtask: int, attempt: int) -> bool:
        return world.coordinator is not None and world.coordinator._lanes[subtask].fencing == attempt

    def _start(self, world: World, subtask: int) -> None:
        newest = world.newest(subtask)
        key = (subtask, newest)
        adopts = newest and newest > world.resets.get(subtask, 0)
        base = (*world.claims.get(key, ()), *world.parts.get(key, ())) if adopts else ()
        world.claims[subtask, newest + 1] = base
        world.events.append(Claimed(subtask, newest + 1, frozenset(each for part in base for each in part)))

    def _read(self, world: World, subtask: int, attempt: int) -> None:
        part = world.processes[subtask, attempt].unread.pop(0)
        world.parts.setdefault((subtask, attempt), []).append(part)
        self._tell(world, PartCommitted(subtask, attempt, part))
        self._tell(world, Requested(subtask, attempt))

    def _finish(self, world: World, subtask: int, attempt: int) -> None:
        key = (subtask, attempt)
        del world.processes[key]
        if key in world.outcomes:
            return
        parts = (*world.claims[key], *world.parts.get(key, ()))
        splits = tuple(each for part in parts for each in part)
        world.outcomes[key] = splits
        if attempt < world.newest(subtask):
            raise Violation(f"doubled: attempt {attempt} of subtask {subtask} finishes beside its successor")
        if len(set(splits)) < len(splits):
            twice = next(each for each, times in Counter(splits).items() if times > 1)
            raise Violation(f"doubled: split {self._unit(twice)} is twice in the finish of subtask {subtask}")
        if world.coordinator is not None:
            world.events.append(Finished(subtask, attempt, splits))

    def _kill(self, world: World, subtask: int, attempt: int) -> None:
        del world.processes[subtask, attempt]
        self._tell(world, AttemptFailed(subtask, attempt))

    def _presume_dead(self, world: World, subtask: int, attempt: int) -> None:
        self._tell(world, AttemptFailed(subtask, attempt))

    def _reset(self, world: World, subtask: int, attempt: int) -> None:
        world.resets[subtask] = attempt
        self._tell(world, SubtaskReset(subtask, attempt))

    def _forget_the_dead(self, world: World) -> None:
        """Drop what can't matter any more, so that fewer worlds differ."""
        if not self.case.rules.is_fenced:
            return
        for subtask, attempt in [*world.processes]:
            is_superseded = attempt < world.newest(subtask)
            has_been_heard = (subtask, attempt + 1) in world.processes
            if is_superseded and has_been_heard and not self.case.rules.looks_again:
                del world.processes[subtask, attempt]

    def _unit(self, key: str) -> int:
        return unit_of(key, self.case.splits, self._cuts)


def _call(what: Any) -> Call:
    return (what.subtask, what.attempt, what.seq)


def _first_of_each(waiting: list[Any]) -> list[int]:
    """What concerns one subtask happens in its order; what concerns different ones in any."""
    first: dict[Any, int] = {}
    for at, each in enumerate(waiting):
        first.setdefault(getattr(each, "subtask", None), at)
    return [*first.values()]
