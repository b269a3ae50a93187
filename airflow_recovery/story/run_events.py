"""The events of a run, read once for everything that is told of them. Best effort: streams may be torn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_recovery.errors import RecordInvalid, StoreError
from airflow_recovery.journal.events import RegionKept
from airflow_recovery.journal.history import Gap, GapKind, Recorded, read_stream
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Claim

_NOT_NORMAL = (GapKind.DROPPED, GapKind.IN_DOUBT, GapKind.DAMAGED)


@dataclass(frozen=True)
class RunEvents:
    """Writer by writer, each in its own order."""

    recorded: tuple[Recorded, ...] = ()
    holes: tuple[str, ...] = ()
    """Why events are missing or may be, where that is not the way of things: one line each."""

    def newest_kept(self) -> Mapping[str, RegionKept]:
        """Of each region, the event that says why it was kept, at the highest attempt."""
        newest: dict[str, RegionKept] = {}
        for recorded in self.recorded:
            event = recorded.event
            if isinstance(event, RegionKept):
                before = newest.get(event.region)
                if before is None or (before.attempt, before.occurred_at) <= (event.attempt, event.occurred_at):
                    newest[event.region] = event
        return newest

    def claims(self) -> Mapping[tuple[str, int], Claim]:
        """The claims that the events hold, by region name and number of the attempt."""
        claims = (recorded.event.subject for recorded in self.recorded if isinstance(recorded.event.subject, Claim))
        return {(claim.region, claim.attempt): claim for claim in claims}


def events_of(journal: Journal) -> RunEvents:
    """All that can be read. Raises nothing that is wrong with a stream."""
    recorded: list[Recorded] = []
    gaps: list[Gap] = []
    holes = []
    try:
        for event in read_stream(journal.store, journal.identity, gaps=gaps):
            recorded.append(event)  # noqa: PERF402 - one by one, so that what was read before an error stays
    except (RecordInvalid, StoreError) as error:
        holes.append(str(error))
    holes += [gap.text for gap in gaps if gap.kind in _NOT_NORMAL]
    return RunEvents(tuple(recorded), tuple(" ".join(hole.split()) for hole in holes))
