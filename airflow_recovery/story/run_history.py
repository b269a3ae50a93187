"""Is the event history of a run whole? What a person, or a program, is told of its holes."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import RecordInvalid, StoreError
from airflow_recovery.journal.history import GapKind
from airflow_recovery.journal.replay import differences, replay
from airflow_recovery.planning.plan_text import cut
from airflow_recovery.story.run_view import RunView

SHOWN = 10
"""So many holes are named in the text; all of them are in ``holes``."""


@dataclass(frozen=True)
class RunHistory:
    """``holes``: what is missing, each in words; empty for a history that says all that the journal says."""

    events: int
    processes: int
    holes: tuple[str, ...]

    def text(self) -> str:
        """Some lines for people: the counts, and at most `SHOWN` holes."""
        heading = f"History: {self.events:,} events of {self.processes:,} processes"
        if not self.holes:
            return f"{heading}, complete."
        shown = [cut(f"  {hole}") for hole in self.holes[:SHOWN]]
        more = [f"  and {len(self.holes) - SHOWN} more"] if len(self.holes) > SHOWN else []
        return "\n".join([f"{heading}. It has holes (recovery does not need it):", *shown, *more])


def history_of(view: RunView) -> RunHistory:
    """Read the run's event streams, and compare them with its journal. Raises nothing that is wrong with a stream."""
    try:
        replayed = replay(view.journal)
    except (RecordInvalid, StoreError) as error:
        return RunHistory(0, 0, (f"it can't be read: {error}",))
    unlike = differences(view.in_use.state, replayed.state)
    # A stream without an end is normal. It is a hole where something is missing that it could have said.
    gaps = [gap for gap in replayed.gaps if unlike or gap.kind is not GapKind.NOT_ENDED]
    holes = [f"process {gap.writer}: {gap.kind.value}: {gap.text}" for gap in gaps]
    return RunHistory(replayed.events, replayed.writers, (*holes, *unlike))
