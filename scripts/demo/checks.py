"""What has to be true at the end. Each check is one line of the output; one that fails makes the demo fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from airflow_recovery.store import ObjectStore
from scripts.demo.acts import DAYS, FAILS, KILLED, KILLED_READING, LOST, Act
from scripts.demo.reference import reference_rows
from scripts.demo.results import sink_rows
from scripts.demo.rows import difference

READS_LOST = "route_delays"
"""The other reader of the lost result: it had finished, and runs again on the new one."""


def all_checks(
    one: Act, two: Act, lake: Path, open_data: Callable[[str], ObjectStore]
) -> Iterator[tuple[str, str | None]]:
    """Each check as (what is claimed, what is wrong or `None`). ``open_data`` opens the store of a result."""
    first, second = sink_rows(one.journal, open_data), sink_rows(two.journal, open_data)
    reference = reference_rows(lake)
    yield "the job has the three sinks", _unequal(sorted(reference), sorted(second))
    for sink in sorted(reference):
        rows = len(reference[sink])
        yield f"{sink}: both acts are equal row for row ({rows} rows)", difference(first[sink], second[sink])
        yield f"{sink}: agrees with a computation without Spark", difference(reference[sink], second[sink])
    undisturbed = [story.name for story in one.journal.stories() if story.attempts != 1]
    yield "act one: every region ran once", _unequal([], undisturbed)
    again = {story.name for story in two.journal.stories() if story.ran_again}
    expected = {KILLED_READING, FAILS, KILLED, LOST, READS_LOST}
    yield "act two: exactly the regions that had to run again did", _unequal(sorted(expected), sorted(again))
    kept, read = next(
        (story.splits_kept, story.splits) for story in two.journal.stories() if story.name == KILLED_READING
    )
    yield (
        f"act two: of the {DAYS} files of {KILLED_READING}, {kept} were read once",
        (None if 0 < kept < read == DAYS else f"expected some of {DAYS} splits to be kept, found {kept} of {read}"),
    )
    current = {story.name: story.attempts for story in two.journal.stories()}
    yield "act two: the publish names every region's newest attempt", _unequal(current, dict(two.journal.published()))


def _unequal(expected: object, found: object) -> str | None:
    return None if expected == found else f"expected {expected}, found {found}"
