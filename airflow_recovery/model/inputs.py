"""What an attempt reads of other regions."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.model.codec import Id, later


@dataclass(frozen=True)
class InputRef:
    """Attempt ``attempt`` of region ``region`` is what an attempt reads.

    ``digests``: (result, digest) for each result read whose rows were digested when they were written.
    """

    region: Id
    attempt: int
    digests: tuple[tuple[str, str], ...] = later(())
