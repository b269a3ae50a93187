"""The table at the end of the demo, and what was saved."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from scripts.demo.journal_view import RegionStory

WHY_WIDTH = 62


def table(stories: Sequence[RegionStory]) -> str:
    """One line a region (more where the reason is long): attempts, ran again or kept, why, Spark seconds.

    Where several subtasks were kept, they are one line; one that ran again has its own.
    """
    rows = _folded(stories)
    wide = max(len("region"), *(len(row.name) for row in rows))
    lines = [f"{'region':{wide}}  attempts  {'':10}  {'why':{WHY_WIDTH}}  Spark s"]
    lines.append("-" * len(lines[0]))
    for row in rows:
        verdict = "ran again" if row.ran_again else "kept"
        first, *more = textwrap.wrap(row.why, WHY_WIDTH)
        lines.append(
            f"{row.name:{wide}}  {row.attempts:8}  {verdict:10}  {first:{WHY_WIDTH}}  {row.spark_seconds:7.1f}"
        )
        lines += [f"{'':{wide}}  {'':8}  {'':10}  {line}" for line in more]
    return "\n".join(lines)


def _folded(stories: Sequence[RegionStory]) -> list[RegionStory]:
    rows: list[RegionStory] = []
    for story in stories:
        kept = [one for one in stories if one.subtask_of == story.subtask_of and not one.ran_again]
        if story.subtask_of is None or story.ran_again or len(kept) == 1:
            rows.append(story)
        elif story is kept[0]:
            rows.append(
                replace(
                    story,
                    name=f"{story.subtask_of}: {len(kept)} subtasks",
                    attempts=sum(one.attempts for one in kept),
                    why="their results stand",
                    spark_seconds=sum(one.spark_seconds for one in kept),
                )
            )
    return rows


def saved(stories: Sequence[RegionStory]) -> str:
    """What "clear everything and start again" would have cost more: running also the regions that were kept.

    At the times of this very run: what the newest attempt of each region took, from its claim to its outcome.
    """
    kept = [story for story in stories if not story.ran_again]
    whole = sum(story.worker_seconds for story in stories)
    spared = sum(story.worker_seconds for story in kept)
    spark = sum(story.spark_seconds for story in kept)
    return (
        f"saved against clearing everything: {spared:.1f} s of {whole:.1f} s worker time "
        f"({spared / whole:.0%}; {spark:.1f} s of it in Spark jobs)"
    )
