"""A journal whose writes are events as well, for the commands and the sweeper, which have no event stream open.

There is no thread: all events of one command are written when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from airflow_recovery.errors import JournalError, StoreError
from airflow_recovery.journal.events import JobEvent, StreamEnded, event_text
from airflow_recovery.journal.frames import MAX_SEGMENT_BYTES, SegmentHeader, record_line
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.model.names import encode
from airflow_recovery.store.write_once import write_once

log = logging.getLogger(__name__)


@contextmanager
def recorded_journal(journal: Journal) -> Iterator[Journal]:
    """The same journal for the same process, with a stream of its own. Nothing is written where nothing happens.

    Where the stream can't be written, that is a warning: what was done, was done.
    """
    events: list[JobEvent] = []
    try:
        yield journal.sibling(journal.identity, listener=Recorder(events.append, _now))
    except Exception:
        _write(journal, events)
        raise
    _write(journal, events)


def _write(journal: Journal, events: list[JobEvent]) -> None:
    if not events:
        return
    try:
        _write_stream(journal, [*events, StreamEnded(occurred_at=_now())])
    except (StoreError, JournalError) as error:
        log.warning("The history of %s lacks %d events: %s", journal.identity.run_key, len(events), error)


def _write_stream(journal: Journal, events: list[JobEvent]) -> None:
    first = segment = 1
    while first <= len(events):
        body = SegmentHeader(journal.identity, journal.writer, segment, first).line()
        number = first
        while number <= len(events):
            line = record_line(journal.writer, number, event_text(events[number - 1]))
            if number > first and len(body) + len(line) > MAX_SEGMENT_BYTES // 2:
                break
            body += line
            number += 1
        key = f"{journal.layout.streams}{encode(journal.writer)}/{segment:08d}"
        write_once(journal.store, key, body, is_mine=body.__eq__, deadline_s=0)
        first, segment = number, segment + 1


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()
