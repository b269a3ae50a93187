"""The store of a simulation, and the checker that looks at every slot as it is filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from airflow_recovery.errors import RecoveryError
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.log import PutAnswer, PutSlot
from airflow_recovery.streaming.channel_codec import decode_entry, encode_entry
from airflow_recovery.streaming.channel_folding import apply
from airflow_recovery.streaming.channel_records import ChannelIdentity, ProducerRecord
from airflow_recovery.streaming.channel_state import ChannelState
from channel_simulation.programs import Arrived, Ask, DeleteRows, GetRows, OnLog, PutRows, Rows
from channel_simulation.settings import Violation
from channel_simulation.truth import ChannelTruth

RUN = RunIdentity("simulated", "2024-01-01", "group")


class SimulatedChannel:
    """Slots and objects, what is true of them, and the product's fold over the same slots."""

    def __init__(self) -> None:
        self.slots: list[bytes] = []
        self.objects: dict[str, Rows] = {}
        self.ever: dict[str, Rows] = {}
        self.truth = ChannelTruth()
        self.state = ChannelState()


class World:
    """The channels of a chain, by the names of the regions that feed them, in every generation.

    ``strays`` are prepared writes that land at the tail, unchecked, once their attempt has been superseded.
    """

    def __init__(self, edges: Sequence[str], note: Callable[[str], None]) -> None:
        self.edges = list(edges)
        self.generation = dict.fromkeys(edges, 1)
        self.strays: list[tuple[ChannelIdentity, PutSlot]] = []
        self.version = 0
        """Grows with every record."""
        self.arrived = 0
        self.lost_races = 0
        self._channels: dict[ChannelIdentity, SimulatedChannel] = {}
        self._note = note

    def identity(self, edge: str) -> ChannelIdentity:
        """The newest generation of a channel."""
        return ChannelIdentity(RUN, edge, self.generation[edge])

    def channel(self, identity: ChannelIdentity) -> SimulatedChannel:
        """One generation of one channel."""
        return self._channels.setdefault(identity, SimulatedChannel())

    def newest(self) -> list[SimulatedChannel]:
        """The newest generation of every channel, from the source on."""
        return [self.channel(self.identity(edge)) for edge in self.edges]

    def execute(self, ask: Ask) -> Any:
        """The store's answer. Raises `Violation`."""
        if isinstance(ask, OnLog):
            slots = self.channel(ask.channel).slots
            if isinstance(ask.request, PutSlot):
                return self._put(ask.channel, ask.request)
            return slots[ask.request.slot] if ask.request.slot < len(slots) else None
        if isinstance(ask, Arrived):
            self.arrived += ask.count
            return range(self.arrived - ask.count, self.arrived)
        if isinstance(ask, PutRows):
            channel = self.channel(ask.channel)
            channel.objects[ask.key] = channel.ever[ask.key] = ask.rows
        elif isinstance(ask, GetRows):
            return self.channel(ask.channel).objects.get(ask.key)
        elif isinstance(ask, DeleteRows):
            for key in ask.keys:
                self.channel(ask.channel).objects.pop(key, None)
        return None

    def _put(self, identity: ChannelIdentity, request: PutSlot) -> PutAnswer:
        tail = len(self.channel(identity).slots)
        if request.slot < tail:
            self.lost_races += 1
            return PutAnswer.EXISTS
        if request.slot > tail:
            raise Violation(f"{identity.edge}: a writer skipped slot {tail}")
        self._fill(identity, request.body)
        self._land_strays(identity)
        return PutAnswer.CREATED

    def _land_strays(self, identity: ChannelIdentity) -> None:
        channel = self.channel(identity)
        for stray_write in [stray for stray in self.strays if stray[0] == identity]:
            entry = decode_entry(identity, stray_write[1].slot, stray_write[1].body, where="stray")
            is_of_producer = isinstance(entry.record, ProducerRecord)
            owner = channel.truth.producer if is_of_producer else channel.truth.view
            if entry.record.attempt < owner:
                self.strays.remove(stray_write)
                self._note("a stray record lands")
                self._fill(identity, encode_entry(identity, len(channel.slots), entry))

    def _fill(self, identity: ChannelIdentity, body: bytes) -> None:
        channel = self.channel(identity)
        slot = len(channel.slots)
        entry = decode_entry(identity, slot, body, where="simulated")
        self._note(f"{identity.edge}.{identity.generation} {slot}: {entry.writer} {entry.record}")
        channel.slots.append(body)
        self.version += 1
        rows = channel.truth.slot(body, channel.ever)
        try:
            apply(channel.state, entry.record)
        except RecoveryError as error:
            raise Violation(f"{identity.edge}: {error}") from error
        self._deliver(identity, rows)
        for identity in map(self.identity, self.edges):
            self.channel(identity).truth.check(identity, self.channel(identity).state)

    def _deliver(self, identity: ChannelIdentity, rows: Rows) -> None:
        """Rows that count now were delivered by the channel that they were read from: the last place they name."""
        number = self.edges.index(identity.edge)
        for row in rows:
            places = len(row) - 1
            if not number <= places <= number + 1:
                raise Violation(f"{identity.edge}: a row with {places} places: {row}")
            if places:
                reads = replace(identity, edge=self.edges[places - 1])
                self.channel(reads).truth.deliver(row, places)
