"""Reading a channel from outside: its log at one go, and what its consumer has committed so far."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.store.write_once import Slots
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.folder import ChannelFolder

_SLOT = re.compile("[^/_][^/]*/[0-9]+/log/[0-9]+")


def read_channel(store: ObjectStore, identity: ChannelIdentity) -> ChannelState:
    """The fold over all slots that are there now; ``slots`` is 0 where nobody has opened the channel.

    For those who look once, and conclude something: the end of the log is confirmed by the store. A process that stays
    uses a `ChannelClient`. Raises the store's errors, `RecordInvalid` and `ChannelInconsistent`.
    """
    client = ChannelClient(store, identity, "reader")
    while True:
        state = client.refresh()
        if client.is_end():
            return state


def is_opened(store: ObjectStore, identity: ChannelIdentity) -> bool:
    """Whether the channel has a log: one request. Raises the store's errors."""
    return Slots(store, ChannelFolder(identity).slots).get(0) is not None


def control_logs(store: ObjectStore, run: RunIdentity) -> list[ObjectInfo]:
    """The slots of all control logs of a run, as listed: to copy them. Segments are listed with them, and left out."""
    prefix = JournalLayout(run).channels
    return [channel for channel in store.list(prefix) if _SLOT.fullmatch(channel.key, len(prefix))]


def committed_outputs(client: ChannelClient, *, newest_batch: bool = False) -> tuple[str, ...]:
    """What the last region's commits in this generation name, in their order: it alone exists for readers.

    Keys relative to the channel's folder (`ChannelFolder.object`). ``newest_batch``: of a running table
    (``output="complete"``), of which the newest batch is all. Folds what was written since the client's last request.
    Raises as `ChannelClient.refresh`.
    """
    outputs = client.refresh().outputs
    return newest_of(outputs) if newest_batch else tuple(outputs)


def newest_of(outputs: Iterable[str]) -> tuple[str, ...]:
    """Those of the newest batch. Raises `ValueError` for a key that is no output."""
    batches = [(batch_of(output), output) for output in outputs]
    newest = max((batch for batch, _ in batches), default=-1)
    return tuple(output for batch, output in batches if batch == newest)


def batch_of(key: str) -> int:
    """The batch of an output ``out/<attempt>/<batch>-<token>[/...]``. Raises `ValueError` for any other key."""
    kind, attempt, name = [*key.split("/", 2), "", ""][:3]
    number = name.partition("/")[0].partition("-")[0]
    if kind != "out" or not attempt.isdecimal() or not number.isdecimal():
        raise ValueError(f"expected an output out/<attempt>/<batch>-<token>, found {key!r}")
    return int(number)
