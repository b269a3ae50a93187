"""The table at the end of the demo, and what was saved."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from scripts.demo.journal_view import RegionStory

WHY_WIDTH = 62


def table(stories: Sequence[RegionStory]) -> str:
    """One line a region (more where the reason is long): attempts, ran again or kept, why, Spark seconds.

    The subtasks that were kept are one line; one that ran again has its own.
    """
    rows = _folded(stories)
    wide = max(len("region"), *(len(each.name) for each in rows))
    lines = [f"{'region':{wide}}  attempts  {'':10}  {'why':{WHY_WIDTH}}  Spark s"]
    lines.append("-" * len(lines[0]))
    for each in rows:
        verdict = "ran again" if each.ran_again else "kept"
        first, *more = textwrap.wrap(each.why, WHY_WIDTH)
        lines.append(
            f"{each.name:{wide}}  {each.attempts:8}  {verdict:10}  {first:{WHY_WIDTH}}  {each.spark_seconds:7.1f}"
        )
        lines += [f"{'':{wide}}  {'':8}  {'':10}  {line}" for line in more]
    return "\n".join(lines)


def _folded(stories: Sequence[RegionStory]) -> list[RegionStory]:
    rows: list[RegionStory] = []
    for each in stories:
        kept = [one for one in stories if one.subtask_of == each.subtask_of and not one.ran_again]
        if each.subtask_of is None or each.ran_again:
            rows.append(each)
        elif each is kept[0]:
            rows.append(
                replace(
                    each,
                    name=f"{each.subtask_of}: {len(kept)} subtasks",
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
    kept = [each for each in stories if not each.ran_again]
    whole = sum(each.worker_seconds for each in stories)
    spared = sum(each.worker_seconds for each in kept)
    spark = sum(each.spark_seconds for each in kept)
    return (
        f"saved against clearing everything: {spared:.1f} s of {whole:.1f} s worker time "
        f"({spared / whole:.0%}; {spark:.1f} s of it in Spark jobs)"
    )
