"""The control log of a channel: one process's view of it, and the only way to change a channel.

Whoever loses a slot folds the winner, and prepares again or is refused. That orders "pinned" and "dropped" without
compare-and-swap, a clock, or a listing.
"""

from __future__ import annotations

from airflow_recovery.store.log import WriteOnceLog
from airflow_recovery.streaming.channel_codec import Entry, decode_entry, encode_entry
from airflow_recovery.streaming.channel_folding import apply
from airflow_recovery.streaming.channel_records import ChannelIdentity, ChannelRecord
from airflow_recovery.streaming.channel_state import ChannelState


class ChannelLog(WriteOnceLog[ChannelState]):
    """The log of ``identity``. ``writer`` must differ from that of every other process.

    `fold` raises `RecordInvalid` and `ChannelInconsistent`.
    """

    def __init__(self, identity: ChannelIdentity, writer: str) -> None:
        super().__init__(ChannelState())
        self.identity = identity
        self.writer = writer

    def encode(self, slot: int, record: ChannelRecord) -> bytes:
        """An entry that names its slot and its writer."""
        return encode_entry(self.identity, slot, Entry(self.writer, record))

    def fold(self, slot: int, body: bytes) -> None:
        """Apply the record, unless it is void."""
        where = f"slot {slot} of channel {self.identity.edge!r}"
        apply(self.state, decode_entry(self.identity, slot, body, where=where).record)
