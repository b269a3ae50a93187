"""What the Spark applications of streaming regions do: programs, each a generator that stops at every request.

A record is a tuple: the number that its source gave it, then for each channel on its way (subpartition, sequence
number). So every record carries the proof of where it has been, and the checker need not believe any log.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_recovery.store.log import Request, Steps
from airflow_recovery.streaming.appending import ChannelLog
from airflow_recovery.streaming.channel_records import ChannelIdentity, CheckpointPlanned, Consumed, Offsets
from airflow_recovery.streaming.channel_retention import Room, make_room
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.consuming import commit_batch, create_view, make_plan, next_end, published_of, release
from airflow_recovery.streaming.producing import WrittenSegment, finish, open_producer, publish
from channel_simulation.settings import Settings

Rows = list[tuple[Any, ...]]
R = TypeVar("R")


@dataclass(frozen=True)
class OnLog:
    """A request to a channel's log."""

    channel: ChannelIdentity
    request: Request


@dataclass(frozen=True)
class PutRows:
    """Write an object that nobody else writes."""

    channel: ChannelIdentity
    key: str
    rows: Rows


@dataclass(frozen=True)
class GetRows:
    """Read one; the answer is `None` where it is not there."""

    channel: ChannelIdentity
    key: str


@dataclass(frozen=True)
class DeleteRows:
    """Delete objects."""

    channel: ChannelIdentity
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Idle:
    """Nothing to do before a log has grown."""


@dataclass(frozen=True)
class Arrived:
    """Ask the outside world for the next records of a source that can't replay."""

    count: int


Ask = OnLog | PutRows | GetRows | DeleteRows | Idle | Arrived
Program = Generator[Ask, Any, R]


class SegmentVanished(Exception):
    """A segment of the plan is not there."""


@dataclass(frozen=True)
class RegionAttempt:
    """One attempt of a streaming region. ``reads`` and ``feeds`` are its channels, `None` at the ends of the chain."""

    name: str
    attempt: int
    reads: ChannelIdentity | None
    feeds: ChannelIdentity | None
    settings: Settings

    @property
    def process(self) -> str:
        """A name that no other process has."""
        return f"{self.name}@{self.attempt}"

    def program(self) -> Program[None]:
        """What it does from its start to its end."""
        if self.reads is None:
            return self._source()
        return self._consumer(self.reads)

    # --- source ------------------------------------------------------------------------------------------------------

    def _source(self) -> Program[None]:
        out = yield from self._opened()
        # Every other attempt replays its last batch, as Spark does when its own commit file is missing.
        batch = out.log.state.epoch + 1
        batch -= 1 if self.settings.replays and batch and self.attempt % 2 == 0 else 0
        while batch < self.settings.batches and not out.log.state.is_finished:
            if self.settings.replays:
                numbers = range(batch * self.settings.batch_records, (batch + 1) * self.settings.batch_records)
            else:
                numbers = yield Arrived(self.settings.batch_records)
            yield from out.publish(batch, _spread([(number,) for number in numbers], self.settings.subpartitions))
            batch += 1
        yield from out.append(lambda state: finish(state, self.attempt))

    # --- scorer and sink ---------------------------------------------------------------------------------------------

    def _consumer(self, reads: ChannelIdentity) -> Program[None]:
        source = _Channel(self, reads)
        while not (yield from source.refresh()).producer:
            yield Idle()  # the gate: a region takes neither Spark nor a slot before its channel is open
        out = None if self.feeds is None else (yield from self._opened())
        published = None if out is None else published_of(out.log.state, reads)
        yield from source.append(
            lambda state: create_view(state, self.attempt, self.settings.reconnect, published=published)
        )
        batch = max(source.log.state.checkpoint, -1 if out is None else out.log.state.epoch) + 1
        while True:
            state = yield from source.refresh()
            start, end = state.done, next_end(state, self.settings.max_records)
            if end == start:
                if state.is_drained:
                    break
                yield Idle()
                continue
            yield from source.append(_planning(self.attempt, start, end))
            plan = source.log.state.plan
            assert plan is not None
            rows = yield from source.read(plan)
            yield from self._commit(source, out, batch, rows, plan)
            # The commit hook of batch n comes while batch n + 1 is built: the release is one batch late.
            yield from source.append(_releasing(self.attempt, start))
            batch += 1
        if out is not None:
            yield from out.append(lambda state: finish(state, self.attempt))

    def _commit(
        self, source: _Channel, out: _Channel | None, batch: int, rows: list[Rows], plan: CheckpointPlanned
    ) -> Program[None]:
        counts = tuple(map(len, rows))
        outputs: tuple[str, ...] = ()
        if out is not None:
            # The output first: death between the two logs is decided by the next attempt's view.
            consumed = (Consumed(source.identity.edge, source.identity.generation, plan.end),)
            yield from out.publish(batch, rows, consumed)
        else:
            outputs = (f"out/{self.attempt}/{batch}",)
            yield PutRows(source.identity, outputs[0], [row for sub in rows for row in sub])
        yield from source.append(lambda state: commit_batch(state, self.attempt, batch, counts, outputs))

    def _opened(self) -> Program[_Channel]:
        assert self.feeds is not None
        out = _Channel(self, self.feeds)
        yield from out.append(
            lambda state: open_producer(
                state,
                self.attempt,
                subpartitions=self.settings.subpartitions,
                schema="rows",
                replays=self.settings.replays or self.reads is not None,
                budget=self.settings.budget,
            )
        )
        return out


def _planning(attempt: int, start: Offsets, end: Offsets) -> Callable[[ChannelState], CheckpointPlanned | None]:
    return lambda state: make_plan(state, attempt, start, end)


def _releasing(attempt: int, upto: Offsets) -> Callable[[ChannelState], Any]:
    return lambda state: release(state, attempt, upto)


def _spread(rows: Rows, subpartitions: int) -> list[Rows]:
    return [rows[number::subpartitions] for number in range(subpartitions)]


class _Channel:
    """One end of one channel."""

    def __init__(self, owner: RegionAttempt, identity: ChannelIdentity) -> None:
        self.owner = owner
        self.identity = identity
        self.log = ChannelLog(identity, owner.process)
        self._objects = 0

    def refresh(self) -> Program[ChannelState]:
        return (yield from self._run(self.log.refresh()))

    def append(self, prepare: Callable[[ChannelState], Any]) -> Program[Any]:
        """Whoever writes the record that lets segments go deletes them."""
        before = None

        def remembering(state: ChannelState) -> Any:
            nonlocal before
            before = set(state.retained)
            return prepare(state)

        record = yield from self._run(self.log.append(remembering))
        gone = (before or set()) - self.log.state.retained.keys()
        if record is not None and gone:
            yield DeleteRows(self.identity, tuple(sorted(gone)))
        return record

    def publish(self, batch: int, rows: list[Rows], consumed: tuple[Consumed, ...] = ()) -> Program[None]:
        owner = self.owner
        written = []
        for number, sub_rows in enumerate(rows):
            if sub_rows:
                self._objects += 1
                key = f"seg/{owner.attempt}/{self._objects}/{number}"
                yield PutRows(self.identity, key, sub_rows)
                written.append(WrittenSegment(number, 0, key, len(sub_rows), len(sub_rows)))
        size = sum(segment.bytes for segment in written)
        while True:
            yield from self.refresh()
            settings = owner.settings
            decision = make_room(
                self.log.state, owner.attempt, size, overflow=settings.overflow, max_bytes=settings.max_bytes
            )
            if decision.drop is not None:
                yield from self.append(self._dropping(size))
            elif decision.room is Room.WAIT:
                yield Idle()
            else:
                break
        yield from self.append(lambda state: publish(state, owner.attempt, batch, written, consumed))

    def _dropping(self, size: int) -> Callable[[ChannelState], Any]:
        """Decided anew against the state right before the record: a plan may have pinned something meanwhile."""
        settings, attempt = self.owner.settings, self.owner.attempt
        return lambda state: (
            make_room(state, attempt, size, overflow=settings.overflow, max_bytes=settings.max_bytes).drop
        )

    def read(self, plan: CheckpointPlanned) -> Program[list[Rows]]:
        """The rows of the plan by subpartition, each with where it was read added to it."""
        by_subpartition: list[Rows] = []
        for number, ranges in enumerate(plan.read):
            rows: Rows = []
            for segment in list(self.log.state.segments_of(number)):
                wanted = [number for number in range(segment.first, segment.end) if _holds(ranges, number)]
                if wanted:
                    content = yield GetRows(self.identity, segment.key)
                    if content is None:
                        raise SegmentVanished(segment.key)
                    rows += [
                        (*content[wanted_number - segment.first], (number, wanted_number)) for wanted_number in wanted
                    ]
            by_subpartition.append(rows)
        return by_subpartition

    def _run(self, steps: Steps[R]) -> Program[R]:
        try:
            request = next(steps)
            while True:
                answer = yield OnLog(self.identity, request)
                request = steps.send(answer)
        except StopIteration as end:
            value: R = end.value
            return value


def _holds(ranges: tuple[tuple[int, int], ...], number: int) -> bool:
    return any(start <= number < stop for start, stop in ranges)
