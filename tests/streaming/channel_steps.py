"""A channel in a test: each step prepares a record against the state, and folds it, as an undisturbed process would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_recovery.model.channel_options import UNLIMITED, LossBudget, Overflow, Reconnect
from airflow_recovery.streaming.channel_folding import apply
from airflow_recovery.streaming.channel_records import ChannelRecord, Consumed, ViewCreated
from airflow_recovery.streaming.channel_retention import make_room
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.consuming import commit_batch, create_view, make_plan, next_end, release
from airflow_recovery.streaming.ledger import check_ledger
from airflow_recovery.streaming.producing import WrittenSegment, finish, open_producer, publish
from airflow_recovery.streaming.ranges import size


class Channel:
    """Every record leaves the ledger exact."""

    def __init__(self, subpartitions: int = 1, *, budget: LossBudget = UNLIMITED, **options: Any) -> None:
        self.state = ChannelState()
        self.schema = "v bigint"
        self.options = {"subpartitions": subpartitions, "schema": self.schema, "budget": budget, **options}
        self.open(1)

    def wrote(self, record: ChannelRecord | None) -> ChannelRecord | None:
        if record is not None:
            apply(self.state, record)
            check_ledger(self.state)
        return record

    def open(self, attempt: int) -> None:
        self.wrote(open_producer(self.state, attempt, **self.options))

    def emit(self, *counts: int, attempt: int | None = None, epoch: int | None = None) -> ChannelRecord | None:
        """An epoch with so many records of a byte each by subpartition."""
        attempt = attempt or self.state.producer
        number = self.state.epoch + 1 if epoch is None else epoch
        written = [WrittenSegment(i, 0, f"seg/{attempt}/{number}/{i}", n, n) for i, n in enumerate(counts) if n]
        return self.wrote(publish(self.state, attempt, number, written))

    def emit_torn(self, *segments: tuple[int, int, int]) -> None:
        """Epochs of subpartition 0 with one segment each: (leading bytes, whole records, trailing bytes)."""
        for leading, count, trailing in segments:
            number, attempt = self.state.epoch + 1, self.state.producer
            segment = WrittenSegment(
                0, 0, f"seg/{attempt}/{number}/0", count, leading + count + trailing, leading, trailing
            )
            self.wrote(publish(self.state, attempt, number, [segment]))

    def view(self, attempt: int, reconnect: Reconnect = Reconnect.REWIND, published: Any = None) -> ViewCreated:
        record = self.wrote(create_view(self.state, attempt, reconnect, published=published))
        assert isinstance(record, ViewCreated)
        return record

    def plan(self, *end: int, attempt: int | None = None) -> ChannelRecord | None:
        return self.wrote(make_plan(self.state, attempt or self.state.view, self.state.done, end or self.state.ends))

    def commit(self, batch: int, *, attempt: int | None = None, outputs: Sequence[str] = ()) -> ChannelRecord | None:
        plan = self.state.plan
        read = tuple(map(size, plan.read)) if plan else (0,) * len(self.state.subs)
        return self.wrote(commit_batch(self.state, attempt or self.state.view, batch, read, tuple(outputs)))

    def batch(self, *, credit: int | None = None) -> None:
        """One whole batch."""
        self.plan(*next_end(self.state, credit))
        self.commit(self.state.checkpoint + 1)

    def release(self) -> None:
        self.wrote(release(self.state, self.state.view, self.state.done))

    def overflow(self, max_bytes: int, incoming: int = 0) -> str:
        decision = make_room(self.state, self.state.producer, incoming, overflow=Overflow.DROP, max_bytes=max_bytes)
        self.wrote(decision.drop)
        return decision.room.value

    def finish(self) -> None:
        self.wrote(finish(self.state, self.state.producer))

    def lost(self) -> list[tuple[int, int, str]]:
        return [(each.start, each.stop, each.cause.value) for each in self.state.ledger]


def consumed(edge: str, *end: int, generation: int = 1) -> Consumed:
    return Consumed(edge, generation, end)
