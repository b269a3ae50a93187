"""What has really happened, read from the bytes of every slot and the rows of every object. No code of the product.

Only the ledger itself is taken from the product, since it is what is checked: `check` is handed the folded state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.channel_state import ChannelState
from channel_simulation.settings import Violation

Place = tuple[int, int]
"""(subpartition, sequence number)."""


class ChannelTruth:
    """One channel: who owns its sides, which row has which number, and what was delivered."""

    def __init__(self) -> None:
        self.producer = self.view = 0
        self.epoch = -1
        self.published: dict[Place, int] = {}
        """The number that the source gave the row."""
        self.delivered: dict[Place, int] = {}
        self._ends: dict[int, int] = {}

    def slot(self, body: bytes, objects: Mapping[str, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        """A slot was filled. Return the rows that it makes count: those of an epoch, or of a sink's outputs."""
        document = json.loads(body)
        kind, record = document["kind"], document["body"]
        attempt = record["attempt"]
        if kind == "producer" and attempt > self.producer:
            self.producer = attempt
        elif kind == "view" and attempt > self.view:
            self.view = attempt
        elif kind == "epoch" and attempt == self.producer and record["epoch"] > self.epoch:
            self.epoch = record["epoch"]
            return self._publish(record, objects)
        elif kind == "commit" and attempt == self.view:
            return [row for key in record["outputs"] for row in objects[key]]
        return []

    def _publish(self, record: Any, objects: Mapping[str, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        rows = []
        for segment in record["segments"]:
            sub, content = segment["sub"], objects[segment["key"]]
            first = self._ends.get(sub, 0)
            for number, row in enumerate(content, first):
                self.published[sub, number] = row[0]
            self._ends[sub] = first + len(content)
            rows += content
        return rows

    def deliver(self, row: tuple[Any, ...], step: int) -> None:
        """A row was read here and made to count further down; ``step``: which of its places is this channel's."""
        place = row[step]
        if place in self.delivered:
            raise Violation(f"record {row[0]} at {place} was committed twice")
        published = self.published.get(place)
        if published != row[0]:
            raise Violation(f"record {row[0]} was committed for {place}, where {published} was published")
        self.delivered[place] = row[0]

    def check(self, channel: ChannelIdentity, state: ChannelState) -> None:
        """Behind the checkpoint every record was delivered once or is in the ledger: none both, none missing."""
        where = f"{channel.edge} generation {channel.generation}"
        lost: set[Place] = set()
        for entry in state.ledger:
            for number in range(entry.start, entry.stop):
                if (entry.sub, number) in lost:
                    raise Violation(f"{where}: {entry.sub, number} is in the ledger twice")
                lost.add((entry.sub, number))
        for sub, done in enumerate(state.done):
            if done > self._ends.get(sub, 0):
                raise Violation(f"{where}: the checkpoint {done} of {sub} lies behind what is published")
            for number in range(done):
                place = sub, number
                if place in lost and place in self.delivered:
                    raise Violation(f"{where}: {place} is in the ledger, and was delivered")
                if place not in lost and place not in self.delivered:
                    raise Violation(f"{where}: {place} vanished: neither delivered nor in the ledger")
        outside = {place for place in lost if place[1] >= state.done[place[0]]}
        if outside:
            raise Violation(f"{where}: {sorted(outside)} are in the ledger before their checkpoint")
        if state.budget.max_lost_records is not None and len(lost) > state.budget.max_lost_records:
            raise Violation(f"{where}: {len(lost)} lost, the budget is {state.budget.max_lost_records}")
