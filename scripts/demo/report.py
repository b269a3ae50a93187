"""The table at the end of the demo, and what was saved."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from scripts.demo.journal_view import RegionStory

WHY_WIDTH = 62


def table(stories: Sequence[RegionStory]) -> str:
    """One line a region (more where the reason is long): attempts, ran again or kept, why, Spark seconds."""
    wide = max(len("region"), *(len(each.name) for each in stories))
    lines = [f"{'region':{wide}}  attempts  {'':10}  {'why':{WHY_WIDTH}}  Spark s"]
    lines.append("-" * len(lines[0]))
    for each in stories:
        verdict = "ran again" if each.ran_again else "kept"
        first, *more = textwrap.wrap(each.why, WHY_WIDTH)
        lines.append(
            f"{each.name:{wide}}  {each.attempts:8}  {verdict:10}  {first:{WHY_WIDTH}}  {each.spark_seconds:7.1f}"
        )
        lines += [f"{'':{wide}}  {'':8}  {'':10}  {line}" for line in more]
    return "\n".join(lines)


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
