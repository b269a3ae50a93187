"""Both ends of a channel without Spark: rows are integers, a segment and an output are JSON lists of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

from channel_consumer import Batch, ChannelConsumer

from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.write_once import Backoff
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.producer import ChannelProducer, SegmentBody

SUBS = 2
NO_PAUSE = Backoff(initial_s=0.0)


def client(store: ObjectStore, edge: str = "raw", generation: int = 1, **options: Any) -> ChannelClient:
    identity = ChannelIdentity(RunIdentity("dag", "2024-01-01", "group"), edge, generation)
    return ChannelClient(store, identity, uuid.uuid4().hex, backoff=NO_PAUSE, **options)


class Source:
    """Publishes epochs of rows, spread over the subpartitions. ``sent`` says which row has which place."""

    def __init__(self, store: ObjectStore, attempt: int = 1, edge: str = "raw", **options: Any) -> None:
        opening = {name: options.pop(name) for name in ("budget", "restart_budget") if name in options}
        self.producer = ChannelProducer(client(store, edge), attempt, poll_s=0.01, **options)
        self.producer.open(subpartitions=SUBS, schema="int", **opening)
        self.sent: dict[tuple[int, int], int] = {}

    def emit(self, *rows: int) -> None:
        ends = self.producer.client.state.ends
        by_subpartition = spread(rows)
        for number, each in enumerate(by_subpartition):
            self.sent.update({(number, place): row for place, row in enumerate(each, ends[number])})
        epoch = self.producer.client.state.epoch + 1
        self.producer.publish(epoch, bodies(by_subpartition))


def spread(rows: Sequence[int]) -> list[Sequence[int]]:
    """Over the subpartitions, in turn."""
    return [rows[number::SUBS] for number in range(SUBS)]


def bodies(by_subpartition: Sequence[Sequence[int]]) -> list[SegmentBody]:
    return [
        SegmentBody(number, len(rows), json.dumps(rows).encode()) for number, rows in enumerate(by_subpartition) if rows
    ]


def rows_of(consumer: ChannelConsumer, batch: Batch) -> list[list[int]]:
    """By subpartition."""
    found: list[list[int]] = [[] for _ in range(SUBS)]
    for segment in batch.slices:
        content = json.loads(consumer.read(segment))
        for start, stop in segment.ranges:
            found[segment.sub] += content[start - segment.first : stop - segment.first]
    return found


def sink_batch(consumer: ChannelConsumer, batch: Batch) -> None:
    """Read, write and commit one batch."""
    rows = rows_of(consumer, batch)
    key = f"out/{consumer.attempt}/{batch.number}-{uuid.uuid4().hex[:6]}"
    consumer.client.put(key, json.dumps([row for candidate in rows for row in candidate]).encode())
    consumer.commit(batch, tuple(map(len, rows)), (key,))


def drain(consumer: ChannelConsumer, max_records: int | None = None) -> None:
    """Batch after batch while there is something."""
    while (batch := consumer.next_batch(max_records)) is not None:
        sink_batch(consumer, batch)


def committed_rows(store: ObjectStore, edge: str = "raw") -> list[int]:
    """What the files hold that the commits of the log name: neither the plan nor the ledger is asked."""
    folder = client(store, edge).folder
    view = 0
    rows: list[int] = []
    for slot, info in enumerate(store.list(f"{folder.prefix}/log/")):
        assert info.key == folder.slot(slot)
        record = json.loads(store.get(info.key).body)
        body = record["body"]
        if record["kind"] == "view":
            view = max(view, body["attempt"])
        elif record["kind"] == "commit" and body["attempt"] == view:
            for key in body["outputs"]:
                rows += json.loads(store.get(folder.object(key)).body)
    return rows


def lost_rows(store: ObjectStore, sent: dict[tuple[int, int], int], edge: str = "raw") -> list[int]:
    """The rows that the ledger says are lost, by identity."""
    state = client(store, edge).refresh()
    return [sent[each.sub, place] for each in state.ledger for place in range(each.start, each.stop)]
