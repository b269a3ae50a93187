"""Events as JSON."""

from __future__ import annotations

import pytest
from example_events import AT, EXAMPLE_EVENTS
from expected_errors import fails_with

from airflow_recovery.journal.codec import parse_json
from airflow_recovery.journal.events import EVENT_TYPES, JobEvent, event_from_json, event_to_json
from airflow_recovery.model.codec import canonical_json


@pytest.mark.parametrize("event", EXAMPLE_EVENTS, ids=lambda event: event.type)
def test_every_event_gives_itself_back(event: JobEvent) -> None:
    document = parse_json(canonical_json(event_to_json(event)).encode(), where="here")
    assert event_from_json(document, where="here") == event


def test_every_event_type_is_registered_and_tried() -> None:
    assert {example_event.type for example_event in EXAMPLE_EVENTS} == EVENT_TYPES


@pytest.mark.parametrize(
    "change",
    [{"attempt": "2"}, {"attempt": True}, {"files_checked": None}, {"seconds_saved": "1"}, {"type": 1}, {"why": 3}],
)
def test_an_event_with_wrong_fields_is_refused(change: dict[str, object]) -> None:
    kept = next(example_event for example_event in EXAMPLE_EVENTS if example_event.type == "RegionKept")
    with fails_with("event-invalid", "event-without-type", where="here"):
        event_from_json({**event_to_json(kept), **change}, where="here")


@pytest.mark.parametrize("record", [None, [], {}, {"region": "a"}])
def test_an_event_with_half_a_record_is_refused(record: object) -> None:
    claimed = event_to_json(EXAMPLE_EVENTS[1])
    with fails_with("event-invalid"):
        event_from_json({**claimed, "claim": record}, where="here")


def test_a_field_of_a_newer_version_is_ignored() -> None:
    assert event_from_json({**event_to_json(EXAMPLE_EVENTS[0]), "colour": "red"}, where="here") == EXAMPLE_EVENTS[0]


def test_fault_38_an_unknown_event_is_refused_unless_it_is_optional() -> None:
    document = {"type": "FromTheFuture", "occurred_at": AT}
    with fails_with("event-unknown"):
        event_from_json({**document, "optional": False}, where="here")
    assert event_from_json({**document, "optional": True}, where="here") is None
