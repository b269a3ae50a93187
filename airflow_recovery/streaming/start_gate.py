"""May a region start that reads a channel? Not before its producer has opened it: it would hold a slot for nothing.

    all of it is there                                -> start
    the producer's task has failed                    -> end by name
    the channel is open, and was not given up         -> start
    the producer was skipped                          -> skip
    the producer has run, and it was never opened     -> start: the first read says what is wrong
    else                                              -> wait

Asked right before the claim, and again by whoever waits, so that a retry, a clear or a restart of the triggerer asks
anew; a generation that has moved on meanwhile is followed, since both ask the journal for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import RecoveryError
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.reading import read_channel
from airflow_recovery.streaming.task_channels import InputChannel

GIVEN_UP_STATES = frozenset({"failed", "upstream_failed", "removed"})
"""Of a producer's task: no more will come of it, until somebody clears it."""

OVER_STATES = GIVEN_UP_STATES | {"success"}
"""... once it has opened the channel. It says that all is there before it succeeds: else a person has marked it."""


class Gate(str, Enum):
    """What a consumer may do now."""

    START = "start"
    WAIT = "wait"
    END = "end"
    SKIP = "skip"


@dataclass(frozen=True)
class GateLook:
    """What a consumer may do now, and ``why`` in words, for its task's log."""

    gate: Gate
    why: str


class ChannelNotOpen(RecoveryError):
    """A streaming region has to wait for the producer of ``channel``. Nothing was claimed, and nothing has failed."""

    def __init__(self, channel: InputChannel, why: str) -> None:
        super().__init__(why)
        self.channel = channel


def look(store: ObjectStore, channel: InputChannel, producer_state: Callable[[], str | None]) -> GateLook:
    """One question to Airflow, and one read of the log: a GET where it is not there. ``store`` holds the results."""
    name = f"channel {channel.identity.edge!r} (generation {channel.generation})"
    # The state first: of a producer that has ended by then, it is certain whether it has opened the channel.
    state = producer_state()
    log = read_channel(store, channel.identity)
    opened = log.slots > 0
    if log.is_finished:
        return GateLook(Gate.START, f"{name}: all of it is there")
    if state in (OVER_STATES if opened else GIVEN_UP_STATES):
        reason = f": {log.failed}" if log.failed else ""
        why = f"{name}: the task of its producer {channel.producer!r} is {state}{reason}"
        return GateLook(Gate.END, why)
    # A producer that had given up, and is made to run once more, opens the channel again.
    if opened and log.failed is None:
        return GateLook(Gate.START, f"{name} is open")
    if state == "skipped":
        return GateLook(Gate.SKIP, f"{name}: its producer {channel.producer!r} was skipped")
    if state == "success":
        return GateLook(Gate.START, f"{name} was never opened, and its producer has ended")
    why = f"{name} is not open; its producer {channel.producer!r} is {state or 'not scheduled'}"
    return GateLook(Gate.WAIT, why)
