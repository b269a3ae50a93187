"""A run's journal and results in memory, and ways to spoil them as JSON."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Any

import fakes

from airflow_recovery.verify import Report, verify_run

PREFIX = "dag/date~202026-01-01T00~3A00~3A00~2B00~3A00/flights/"


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Spoiled:
    """A run's objects, which a test may spoil: keys are relative to the run's journal."""

    def __init__(self, world: fakes.World) -> None:
        self.world = world
        self.journal = world.journal_store
        self.results = world.results

    def body(self, key: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.journal.objects[PREFIX + key])["body"]
        return document

    def edit(self, key: str, change: Callable[[dict[str, Any]], object], to: str | None = None) -> None:
        """Rewrite an object's body, at its key or another."""
        document = json.loads(self.journal.objects[PREFIX + key])
        change(document["body"])
        self.write(to or key, document)

    def write(self, key: str, document: dict[str, Any]) -> None:
        """As the product would: with a checksum that fits."""
        document["crc"] = zlib.crc32(canonical(document["body"]))
        self.journal.objects[PREFIX + key] = canonical(document)

    def replan(self, change: Callable[[list[dict[str, Any]]], object]) -> None:
        """Change the regions of the only plan, its hash, and the claims that name it."""
        (key,) = self.keys("plan/")
        document = json.loads(self.journal.objects[PREFIX + key])
        change(document["body"]["regions"])
        hashed = hashlib.sha256(canonical(document["body"])).hexdigest()[:32]
        self.delete(key)
        self.write(f"plan/{hashed}", document)
        for claim in (each for each in self.keys("t/") if each.endswith(".claim")):
            self.edit(claim, lambda body: body.update(plan_hash=hashed))

    def delete(self, *keys: str) -> None:
        self.journal.delete([PREFIX + key for key in keys])

    def keys(self, prefix: str) -> list[str]:
        return [each.key.removeprefix(PREFIX) for each in self.journal.list(PREFIX + prefix)]

    def verify(self, **settings: Any) -> Report:
        identity = self.world.journal().identity
        return verify_run(
            self.journal,
            lambda location: self.results,
            dag_id=identity.dag_id,
            run_key=identity.run_key,
            group_id=identity.group_id,
            **settings,
        )
