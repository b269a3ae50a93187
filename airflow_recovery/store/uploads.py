"""Multipart uploads that nobody has completed: they are in no listing, and are paid for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Upload:
    """One unfinished upload to ``key``, begun at ``initiated_s`` (seconds since the epoch, by the store's clock)."""

    key: str
    upload_id: str
    initiated_s: float


@runtime_checkable
class UploadStore(Protocol):
    """A store that has unfinished uploads; a directory has none."""

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        """All unfinished uploads to keys that begin with ``prefix``."""
        ...

    def abort_upload(self, upload: Upload) -> None:
        """Delete what was uploaded. One that is completed or aborted already is not an error."""
        ...
