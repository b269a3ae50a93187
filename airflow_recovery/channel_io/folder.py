"""Where a channel's objects lie: beside the journal's records, so that no pre-check's listing pages through them."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.channel.records import ChannelIdentity
from airflow_recovery.storage.names import encode


@dataclass(frozen=True)
class ChannelFolder:
    """Keys of one generation of one channel."""

    identity: ChannelIdentity

    @property
    def prefix(self) -> str:
        """``_channels/<dag>/<run key>/<group>/<edge>/<generation>``."""
        run = self.identity.run
        names = [run.dag_id, run.run_key, run.group_id, self.identity.edge]
        return f"_channels/{'/'.join(map(encode, names))}/{self.identity.generation}"

    def slot(self, number: int) -> str:
        """The key of a slot of the control log."""
        return f"{self.prefix}/log/{number:08d}"

    def object(self, key: str) -> str:
        """The key of a segment or an output, as records name it."""
        return f"{self.prefix}/{key}"
