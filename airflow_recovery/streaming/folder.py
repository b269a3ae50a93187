"""Where a channel's objects lie: beside the journal's records, so that no pre-check's listing pages through them."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.streaming.channel_records import ChannelIdentity

CHECKPOINTS = "_stages"
"""Beside the folders of channels. No channel can be named so: no encoded name begins with an underscore."""


@dataclass(frozen=True)
class ChannelFolder:
    """Keys of one generation of one channel."""

    identity: ChannelIdentity

    @property
    def prefix(self) -> str:
        """``_channels/<dag>/<run key>/<group>/<edge>/<generation>``."""
        return f"{JournalLayout(self.identity.run).channels}{encode(self.identity.edge)}/{self.identity.generation}"

    @property
    def slots(self) -> str:
        """What the keys of the control log's slots begin with."""
        return f"{self.prefix}/log/"

    def slot(self, number: int) -> str:
        """The key of a slot of the control log."""
        return f"{self.slots}{number:08d}"

    def object(self, key: str) -> str:
        """The key of a segment or an output, as records name it."""
        return f"{self.prefix}/{key}"


@dataclass(frozen=True)
class CheckpointFolder:
    """Keys of Spark's checkpoints of one streaming region: each attempt has a folder of its own."""

    run: RunIdentity
    region: str

    def attempt(self, folder: str) -> str:
        """``_channels/<dag>/<run key>/<group>/_stages/<region>/<folder>``, by `checkpoints_of`."""
        return f"{JournalLayout(self.run).channels}{CHECKPOINTS}/{encode(self.region)}/{folder}"


def checkpoints_of(attempt: int, folder: str | None) -> str:
    """The name of the folder of an attempt's checkpoints. ``folder``: `Claim.folder`."""
    return folder or str(attempt)
