"""The table of record kinds: what is read from it, and what a new kind needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from example_events import AT, IDENTITY
from expected_errors import fails_with

from airflow_recovery.errors import AttemptLost
from airflow_recovery.journal.events import JobEvent, RecordWritten, event_from_json, event_to_json
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout, names_record
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.replay import EventFold
from airflow_recovery.model.codec import Id
from airflow_recovery.model.record_kinds import RECORD_KINDS, RecordKind, kind_of
from airflow_recovery.store.local import LocalStore
from airflow_recovery.story.event_list import about, words


@dataclass(frozen=True)
class Approval:
    """``t/<region>/<n>.approved-<turn>``: a person has looked at the rows."""

    region: Id
    attempt: int
    turn: int
    who: str


ROW = RecordKind(
    "approved", Approval, "a person", number="turn", mark="pin_turn", events=("Approved",), event_key="approval"
)
APPROVAL = Approval("daily", 3, 2, "ann")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kind more than there are: its class and its row, and nothing else."""
    monkeypatch.setitem(RECORD_KINDS, ROW.name, ROW)


@pytest.fixture
def put(local_store: LocalStore) -> Callable[[Approval], list[JobEvent]]:
    """Write one, and say which events were told of it."""

    def put(approval: Approval) -> list[JobEvent]:
        told: list[JobEvent] = []
        journal = Journal(local_store, IDENTITY, writer="w", listener=Recorder(told.append, lambda: AT))
        key = journal.layout.of_attempt(approval)
        assert key is not None
        journal._put(approval, key, lambda found: found == approval)  # type: ignore[type-var]
        return told

    return put


@pytest.mark.usefixtures("made_up")
def test_a_new_kind_needs_a_class_and_a_row_to_be_written_listed_read_and_told(
    local_store: LocalStore, put: Callable[[Approval], list[JobEvent]]
) -> None:
    events = put(APPROVAL)
    journal = Journal(local_store, IDENTITY, writer="r")
    key = "t/daily/00000003.approved-0002"
    assert [each.key for each in local_store.list(journal.layout.prefix)] == [journal.layout.prefix + key]
    assert names_record(key)
    assert journal._read(Approval, journal.layout.prefix + key) == APPROVAL  # type: ignore[type-var]
    assert journal.list(["daily"]).state.of("daily").attempts[3].pin_turn == 2

    (event,) = events
    document = event_to_json(event)
    assert document == {
        "type": "Approved",
        "optional": False,
        "occurred_at": AT,
        "approval": {"region": "daily", "attempt": 3, "turn": 2, "who": "ann"},
    }
    assert event_from_json(document, where="here") == event == RecordWritten(occurred_at=AT, record=APPROVAL)
    assert (about(event), words(event)) == ("daily@3", "")
    fold = EventFold({})
    for each in (event, replace(event, record=replace(APPROVAL, turn=1))):
        fold.add(each)
    assert fold.state().of("daily").attempts[3].pin_turn == 2


@pytest.mark.usefixtures("made_up")
def test_a_new_kind_is_as_strict_as_the_others(
    local_store: LocalStore, put: Callable[[Approval], list[JobEvent]]
) -> None:
    put(APPROVAL)
    with pytest.raises(AttemptLost):
        put(replace(APPROVAL, who="bob"))
    layout = JournalLayout(IDENTITY)
    copied = layout.attempt("daily", 4, "approved", 2)
    local_store.put(copied, local_store.get(layout.attempt("daily", 3, "approved", 2)).body)
    with fails_with("record-copied"):
        Journal(local_store, IDENTITY, writer="r")._read(Approval, copied)  # type: ignore[type-var]


def test_control_without_its_row_it_is_a_kind_of_a_newer_version(local_store: LocalStore) -> None:
    local_store.put(JournalLayout(IDENTITY).attempt("daily", 3, "approved", 2), b"{}")
    assert not names_record("t/daily/00000003.approved-0002")
    with fails_with("record-kind-unknown"):
        Journal(local_store, IDENTITY, writer="r").list(["daily"])
    with pytest.raises(LookupError, match="add a row for it"):
        kind_of(Approval)


def test_every_kind_is_found_by_its_class_and_no_two_events_share_a_type() -> None:
    assert all(kind_of(kind.record) is kind and kind.name == name for name, kind in RECORD_KINDS.items())
    types = [event for kind in RECORD_KINDS.values() for event in kind.events]
    assert len(types) == len(set(types))
