"""What crashes have left in a channel's folder: segments and outputs that no record names."""

from __future__ import annotations

from airflow_recovery.streaming.channel_retention import orphans
from airflow_recovery.streaming.client import ChannelClient


def sweep(client: ChannelClient) -> int:
    """Delete the orphans of one generation, and return how many; the only place where a channel is listed.

    For the end of a channel. While it is open, what its newest attempts have written is left alone. Raises the store's
    errors; what is left then is found by the next sweep.
    """
    store, prefix = client.store, f"{client.folder.prefix}/"
    listed = [info.key.removeprefix(prefix) for kind in ("seg/", "out/") for info in store.list(prefix + kind)]
    # The log is read after the listing: what was listed and is named by now is no orphan.
    text = orphans(client.refresh(), listed)
    store.delete([client.folder.object(orphan) for orphan in text])
    return len(text)
