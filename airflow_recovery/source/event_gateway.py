"""Flink's event gateways and the checkpoint of their coordinator, as built (FLINK-21996, FLINK-18071, FLINK-23233).

Batch recovery here needs no checkpoints: `airflow_recovery.source.split_coordinator` has snapshots only. This is the
behaviour that it is compared with, as a pure class: events in, what goes out as an answer, ids and no clock.

    mark(id)  ──▶  the coordinator takes its snapshot  ──▶  close all, and collect what is open, in one step
                                                            ──▶  all confirmed: the checkpoint is complete
                                                            ──▶  one failed:    the checkpoint has failed
    closed: events queue under the newest checkpoint.   open: per subtask when its task acknowledges the checkpoint,
    for all on abort, completion or reset.

1. A gateway belongs to one attempt. Where a send fails and that attempt still runs, that task is failed, not the job.
2. A send is open until its failure was *handled*.
3. With several checkpoints under way, the queue of one that is acknowledged, and is not the oldest, passes to the next
   older one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import CheckpointRefused


class CheckpointState(str, Enum):
    """How far the checkpoint of a coordinator has come."""

    MARKED = "marked"
    WAITING = "waiting for open sends"
    COMPLETE = "complete"
    FAILED = "failed"


class EventGateway:
    """From a coordinator to one attempt of ``subtask``. ``send`` and the openings answer what goes out now."""

    def __init__(self, subtask: int, attempt: int, *, is_running: bool = True) -> None:
        self.subtask = subtask
        self.attempt = attempt
        self.is_running = is_running
        self._newest = 0
        self._marked: set[int] = set()
        self._queues: dict[int, list[str]] = {}
        self._open: set[str] = set()

    @property
    def is_closed(self) -> bool:
        """Do events queue?"""
        return bool(self._queues)

    @property
    def open_sends(self) -> frozenset[str]:
        """Sent, and neither confirmed nor, where the send failed, handled."""
        return frozenset(self._open)

    def send(self, event: str) -> list[str]:
        """Hand in one event, by a name that no other has. Raises `CheckpointRefused` before the task runs."""
        if not self.is_running:
            raise CheckpointRefused(
                f"subtask {self.subtask}, attempt {self.attempt}: expected a task that runs, found one that does not: "
                "send after it was announced as ready"
            )
        if self._queues:
            self._queues[max(self._queues)].append(event)
            return []
        return self._sent([event])

    def confirmed(self, event: str) -> None:
        """It has arrived."""
        self._open.discard(event)

    def failure_handled(self, event: str) -> bool:
        """Its call had failed, and this is the main thread dealing with it. True: the task must be failed for it."""
        was_open = event in self._open
        self._open.discard(event)
        return was_open and self.is_running

    def mark(self, checkpoint: int) -> None:
        """A checkpoint begins. Raises `CheckpointRefused` where its id is not above every one before it."""
        if checkpoint <= self._newest:
            raise CheckpointRefused(
                f"subtask {self.subtask}: expected a checkpoint above {self._newest}, found {checkpoint}: ids only grow"
            )
        self._newest = checkpoint
        self._marked.add(checkpoint)

    def try_close(self, checkpoint: int) -> bool:
        """From now on events queue under it. False: it was not marked, or aborted since."""
        if checkpoint not in self._marked:
            return False
        self._queues.setdefault(checkpoint, [])
        return True

    def reopen(self, checkpoint: int) -> list[str]:
        """This task has acknowledged it. Raises `CheckpointRefused` for a future id; an old or aborted one: nothing."""
        if checkpoint > self._newest:
            raise CheckpointRefused(
                f"subtask {self.subtask}: expected a checkpoint up to {self._newest}, found {checkpoint}, which was "
                "never begun"
            )
        self._marked.discard(checkpoint)
        queue = self._queues.pop(checkpoint, [])
        older = [each for each in self._queues if each < checkpoint]
        if older:
            self._queues[max(older)] += queue
            return []
        return self._sent(queue)

    def open_newest(self) -> list[str]:
        """The newest was aborted."""
        return self.reopen(max(self._marked)) if self._marked else []

    def open_all(self) -> list[str]:
        """Completed, or the coordinator was reset: nothing is under way any more."""
        queued = [event for checkpoint in sorted(self._queues) for event in self._queues[checkpoint]]
        self._queues.clear()
        self._marked.clear()
        return self._sent(queued)

    def _sent(self, events: list[str]) -> list[str]:
        self._open.update(events)
        return events


@dataclass
class _Checkpoint:
    state: CheckpointState
    waits_for: set[tuple[int, str]]


class CoordinatorCheckpoints:
    """Checkpoints of one coordinator over the gateways of its subtasks.

    ``has_concurrent_attempts``: several attempts of a subtask run at once (speculative execution). Checkpoints are off
    then, and no map of gateways is kept.
    """

    def __init__(self, gateways: Iterable[EventGateway] = (), *, has_concurrent_attempts: bool = False) -> None:
        self._is_off = has_concurrent_attempts
        self._gateways = {} if self._is_off else {each.subtask: each for each in gateways}
        self._checkpoints: dict[int, _Checkpoint] = {}
        self._has_failed_job = False

    def ready(self, gateway: EventGateway) -> None:
        """A new attempt of a subtask. Raises `CheckpointRefused` while the one before it still seems to run."""
        before = self._gateways.get(gateway.subtask)
        if before is not None and before.is_running and before is not gateway:
            raise CheckpointRefused(
                f"subtask {gateway.subtask}: expected to hear that attempt {before.attempt} has failed before attempt "
                f"{gateway.attempt} is ready"
            )
        if not self._is_off:
            self._gateways[gateway.subtask] = gateway

    def failed(self, subtask: int) -> None:
        """The attempt is gone; what was open to it is open no more, and fails the checkpoints that wait for it."""
        gateway = self._gateways[subtask]
        gateway.is_running = False
        for event in gateway.open_sends:
            self.failure_handled(subtask, event)

    def begin(self, checkpoint: int) -> None:
        """Mark all gateways; the coordinator takes its snapshot then. Raises `CheckpointRefused`."""
        if self._is_off:
            raise CheckpointRefused(
                "expected one attempt a subtask, found several that run at once: switch speculative execution off, or "
                "checkpoints"
            )
        for each in self._gateways.values():
            each.mark(checkpoint)
        self._checkpoints[checkpoint] = _Checkpoint(CheckpointState.MARKED, set())

    def snapshot_taken(self, checkpoint: int) -> CheckpointState:
        """Close all gateways, and collect what is open in the same step.

        One that was aborted meanwhile closes nothing, and has failed. Raises `CheckpointRefused` where some gateways
        can be closed and others can't: the two sides would not agree on what came before the checkpoint.
        """
        found = self._checkpoints[checkpoint]
        closed = [each.try_close(checkpoint) for each in self._gateways.values()]
        if any(closed) and not all(closed):
            raise CheckpointRefused(
                f"checkpoint {checkpoint}: expected all gateways to close, found {closed.count(False)} that are not "
                "marked for it"
            )
        if closed and not any(closed):
            found.state = CheckpointState.FAILED
            return found.state
        found.state = CheckpointState.WAITING
        found.waits_for = {(each.subtask, event) for each in self._gateways.values() for event in each.open_sends}
        return self._settle(found)

    def confirmed(self, subtask: int, event: str) -> None:
        """A send has arrived."""
        self._gateways[subtask].confirmed(event)
        for each in self._checkpoints.values():
            each.waits_for.discard((subtask, event))
            self._settle(each)

    def failure_handled(self, subtask: int, event: str) -> bool:
        """A failed send is dealt with: checkpoints that wait for it have failed. True: fail that task."""
        must_fail = self._gateways[subtask].failure_handled(event)
        for each in self._checkpoints.values():
            if (subtask, event) in each.waits_for and each.state is CheckpointState.WAITING:
                each.state = CheckpointState.FAILED
        return must_fail

    def state(self, checkpoint: int) -> CheckpointState:
        """How far it has come."""
        return self._checkpoints[checkpoint].state

    def acknowledged(self, checkpoint: int, subtask: int) -> list[str]:
        """The task has it: what goes out to it now."""
        return self._gateways[subtask].reopen(checkpoint)

    def aborted(self) -> list[str]:
        """The newest is given up: what goes out now, to anybody."""
        return [event for each in self._gateways.values() for event in each.open_newest()]

    def completed(self) -> list[str]:
        """All tasks have it: what goes out now, to anybody."""
        return [event for each in self._gateways.values() for event in each.open_all()]

    def reset(self) -> list[str]:
        """The coordinator goes back to an earlier state; it may fail the job once more."""
        self._has_failed_job = False
        self._checkpoints.clear()
        return self.completed()

    def fail_job(self) -> bool:
        """The coordinator asks to fail the job. True the first time; then not until it was `reset`."""
        is_first = not self._has_failed_job
        self._has_failed_job = True
        return is_first

    @staticmethod
    def _settle(checkpoint: _Checkpoint) -> CheckpointState:
        if checkpoint.state is CheckpointState.WAITING and not checkpoint.waits_for:
            checkpoint.state = CheckpointState.COMPLETE
        return checkpoint.state
