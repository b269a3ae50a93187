"""What a look at an open channel asks of S3, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from channel_consumer import ChannelConsumer
from channel_ends import Source, client, drain

from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.write_once import PeekedSlots, Slots

pytestmark = pytest.mark.s3


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations, in their order."""
    found: list[str] = []
    ask = S3Store._ask

    def noting(self: S3Store, operation: str, arguments: dict[str, Any]) -> Any:
        found.append(operation)
        return ask(self, operation, arguments)

    monkeypatch.setattr(S3Store, "_ask", noting)
    return found


def live_channel(store: S3Store, asked: list[str]) -> None:
    """Three epochs are published and committed, and each side looks for more. ``asked``: since both ends are open."""
    source = Source(store)
    consumer = ChannelConsumer(client(store), 1)
    consumer.connect(Reconnect.REWIND)
    asked.clear()
    for _ in range(3):
        source.emit(1, 2, 3)
        drain(consumer, 4)
    reader = client(store)
    for _ in range(2):
        reader.refresh()


def test_an_open_channel_is_never_listed(s3_store: S3Store, asked: list[str]) -> None:
    live_channel(s3_store, asked)
    assert "get_object" in asked
    assert "list_objects_v2" not in asked


@pytest.mark.slow
def test_control_with_confirmed_looks_each_empty_slot_is_listed(
    s3_store: S3Store, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PeekedSlots, "peek", Slots.get)
    live_channel(s3_store, asked)
    assert asked.count("list_objects_v2") >= 8
