"""What a recorded attempt is made of, put into the claim that it has."""

from __future__ import annotations

from dataclasses import replace

from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.components import Component
from airflow_recovery.model.records import FingerprintRecord


def made_of(journal: Journal, region: str, *components: Component) -> None:
    """Let the claim of attempt 1 of ``region`` name these components."""
    record = FingerprintRecord(components)
    journal.put_components(record)
    claim = replace(journal.read_claim(region, 1), components=record.name)
    journal.store.delete([journal.layout.attempt(region, 1, "claim")])
    journal.claim(claim)
