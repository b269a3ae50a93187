"""A run whose journal and results are in real stores, and the real ``gc`` command over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fakes import PAIR, World

from airflow_recovery.console.main import main
from airflow_recovery.journal.journal import Journal
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.s3_server import REGION


def in_background(store: ObjectStore, name: str) -> Any:
    """The store below ``store`` whose base is called ``name``."""
    uri = f"{store.base_uri}/{name}"
    return LocalStore(uri) if isinstance(store, LocalStore) else store.sibling(uri)  # type: ignore[attr-defined]


@dataclass
class Kept:
    """``store`` holds journals and results; ``options`` say how the command line reaches it."""

    store: ObjectStore
    options: tuple[str, ...]

    def world(self, journal: str = "journal", results: str = "results") -> World:
        """P and C, with their journal and results there."""
        world = World(PAIR)
        world.journal_store, world.results = in_background(self.store, journal), in_background(self.store, results)
        return world

    def superseded(self, journal: str = "journal", results: str = "results") -> World:
        """P@1 was superseded by P@2, and C@1 by C@2: `gc` without a grace time deletes the data of both."""
        world = self.world(journal, results)
        world.go_all()
        world.restart("P")
        world.until_green()
        return world

    def gc(self, *arguments: str, journal: str = "journal", results: str = "results") -> int:
        base = self.store.base_uri
        uris = ("--journal", f"{base}/{journal}", "--results", f"{base}/{results}")
        return main(["gc", *uris, *self.options, *arguments])


@pytest.fixture
def kept(store: ObjectStore, request: pytest.FixtureRequest, start_s3_server: Callable[[str], S3Server]) -> Kept:
    """In each kind of store."""
    kind = request.node.callspec.params["store"]
    if kind == "local":
        return Kept(store, ())
    return Kept(store, ("--endpoint-url", start_s3_server(kind).endpoint_url, "--s3-region", REGION))


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [each.key for each in store.list(prefix)]


def data(world: World, region: str, attempt: int) -> list[str]:
    return keys(world.results, world.journal().layout.data_of_number(region, attempt))


def record_of(journal: Journal) -> bytes:
    """Any record of its run."""
    return journal.store.get(keys(journal.store, journal.layout.prefix)[0]).body
