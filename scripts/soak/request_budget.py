"""Whether an undisturbed run makes as few requests to its journal as is counted (docs/benchmarks.md#requests-to-s3)."""

from __future__ import annotations

from collections.abc import Mapping

REGIONS: Mapping[str, int] = {"numbers": 0, "thirds": 1, "halves": 1, "total": 2}
"""The regions of `chain`, and how many others each reads."""
LEAVES = ("total",)


def budget(heartbeats: int = 0) -> dict[str, int]:
    """The most requests of each method to the records of one run of `chain`, in which nothing happens.

    A region without failure: 2 PUT, 1 LIST (2 of a leaf), a GET for each input; and besides, while Spark starts, a LIST
    for each input, which looks for who releases it. The first one writes the plan. The publish: 1 LIST, a GET for each
    region and 1 PUT. And with each of its ``heartbeats`` but the first a driver looks by a LIST whether it was fenced:
    they go by time, so that a region which takes longer has more of them.
    """
    looks = max(0, heartbeats - len(REGIONS))
    inputs = sum(REGIONS.values())
    return {
        "PUT": 1 + 2 * len(REGIONS) + 1,
        "LIST": len(REGIONS) + len(LEAVES) + inputs + 1 + looks,
        "GET": inputs + len(REGIONS),
    }


def beyond_budget(counted: Mapping[str, int], budget: Mapping[str, int]) -> list[str]:
    """A text for each method with more requests than it may have. Heartbeats go by time, and are not counted here."""
    return [
        f"{count} {method} to the records of an undisturbed run, expected at most {budget.get(method, 0)}"
        for method, count in sorted(counted.items())
        if method != "heartbeat" and count > budget.get(method, 0)
    ]
