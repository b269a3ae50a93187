"""What commands and the sweeper write is in the history too."""

from __future__ import annotations

import logging
from typing import cast

import pytest
from example_events import EXAMPLE_EVENTS, IDENTITY, read
from test_codec import EXAMPLES

from airflow_recovery.journal import recorded
from airflow_recovery.journal.history import Gap
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.model.records import Lost, Released
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing import Fault, FaultKind, FaultyStore, Verb

RELEASED = cast(Released, EXAMPLES["released"])
assert len(EXAMPLE_EVENTS) > 1


def test_what_is_done_is_told_when_it_is_done(local_store: LocalStore) -> None:
    with recorded_journal(Journal(local_store, IDENTITY, writer="gc")) as journal:
        journal.release(RELEASED)
        journal.report_lost(Lost("raw", 1, "ann", ()))
        assert read(local_store) == []
    gaps: list[Gap] = []
    assert [each.type for each in read(local_store, gaps)] == ["PartitionsReleased", "ResultLost"]
    assert gaps == []


def test_where_nothing_is_done_nothing_is_written(local_store: LocalStore) -> None:
    with recorded_journal(Journal(local_store, IDENTITY, writer="gc")) as journal:
        journal.list(())
    assert list(local_store.list()) == []


def test_what_was_done_before_a_failure_is_told(local_store: LocalStore) -> None:
    with pytest.raises(KeyError), recorded_journal(Journal(local_store, IDENTITY, writer="gc")) as journal:  # noqa: PT012
        journal.release(RELEASED)
        raise KeyError
    assert len(read(local_store)) == 1


def test_a_stream_that_can_not_be_written_is_a_warning(
    local_store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    denied = FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.DENIED, key="_streams", times=None)])
    with caplog.at_level(logging.WARNING), recorded_journal(Journal(denied, IDENTITY, writer="gc")) as journal:
        journal.release(RELEASED)
    assert "lacks 1 events" in caplog.text
    assert len(list(local_store.list())) == 1


def test_much_of_it_is_several_segments(local_store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "MAX_SEGMENT_BYTES", 2_000)
    with recorded_journal(Journal(local_store, IDENTITY, writer="gc")) as journal:
        for number in range(1, 21):
            journal.release(Released("raw", number, "gc"))
    assert [each.subject.attempt for each in read(local_store)] == list(range(1, 21))
    assert sum(each.key.startswith("_streams/") for each in local_store.list()) > 5
