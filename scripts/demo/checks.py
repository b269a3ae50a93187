"""What has to be true at the end. Each check is one line of the output; one that fails makes the demo fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from airflow_recovery.store import ObjectStore
from scripts.demo.acts import DAYS, DROP_IN_KILLED, FAILS, KILLED, KILLED_READING, LOST
from scripts.demo.journal_view import JournalView
from scripts.demo.reference import reference_report, reference_rows
from scripts.demo.results import sink_rows
from scripts.demo.rows import difference

READS_LOST = "route_delays"
"""The other reader of the lost result: it had finished, and runs again on the new one."""


def all_checks(
    acts: Sequence[JournalView], lake: Path, open_data: Callable[[str], ObjectStore]
) -> Iterator[tuple[str, str | None]]:
    """Each check as (what is claimed, what is wrong or `None`). ``open_data`` opens the store of a result."""
    one, two, three = acts
    first, second = sink_rows(one, open_data), sink_rows(two, open_data)
    reference = reference_rows(lake)
    yield "the job has the three sinks", unequal(sorted(reference), sorted(second))
    for sink in sorted(reference):
        rows = len(reference[sink])
        yield f"{sink}: both acts are equal row for row ({rows} rows)", difference(first[sink], second[sink])
        yield f"{sink}: agrees with a computation without Spark", difference(reference[sink], second[sink])
    undisturbed = [story.name for story in one.stories() if story.attempts != 1]
    yield "act one: every region ran once", unequal([], undisturbed)
    expected = {KILLED_READING, FAILS, KILLED, LOST, READS_LOST}
    yield "act two: exactly the regions that had to run again did", unequal(sorted(expected), _ran_again(two))
    kept, read = next((story.splits_kept, story.splits) for story in two.stories() if story.name == KILLED_READING)
    yield (
        f"act two: of the {DAYS} files of {KILLED_READING}, {kept} were read once",
        (None if 0 < kept < read == DAYS else f"expected some of {DAYS} splits to be kept, found {kept} of {read}"),
    )
    current = {story.name: story.attempts for story in two.stories()}
    yield "act two: the publish names every region's newest attempt", unequal(current, dict(two.published()))
    yield (
        f"act three: of the two applications, only {DROP_IN_KILLED} ran again",
        unequal([DROP_IN_KILLED], _ran_again(three)),
    )
    report = sink_rows(three, open_data)
    yield (
        "act three: its report agrees with a computation without Spark",
        (
            unequal([f"{DROP_IN_KILLED}.report"], sorted(report))
            or difference(reference_report(lake), report[f"{DROP_IN_KILLED}.report"])
        ),
    )


def _ran_again(act: JournalView) -> list[str]:
    return sorted(story.name for story in act.stories() if story.ran_again)


def unequal(expected: object, found: object) -> str | None:
    """What is wrong if these are not equal."""
    return None if expected == found else f"expected {expected}, found {found}"
