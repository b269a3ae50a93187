"""The part of the checker that hears of regions that commit split by split. It reads JSON, and shares no code.

I1  a batch is written by whoever has claimed its attempt, in order, and never overwritten
I3  a claim adopts batches that are there, of attempts that have ended and were made of the same
I8  nothing is deleted that a finish that counts, or the base of the newest claim, names
I14 a finish is made of the batches that its claim adopts and of its own; each split is in exactly one of them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_recovery.verify.splits import content_key

if TYPE_CHECKING:
    from airflow_recovery.testing.simulation.region_objects import Region

MIXED = "mixed: "


class SplitLedger:
    """``regions`` commit split by split. ``bodies``: every object of a result as it was written."""

    def __init__(self, regions: Iterable[str], wrong: list[str]) -> None:
        self.regions = frozenset(regions)
        self.bodies: dict[str, str] = {}
        self._wrong = wrong
        self._batches: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def batch(self, name: str, n: int, body: dict[str, Any], region: Region) -> None:
        """A batch was committed."""
        log = self._batches.setdefault((name, n), [])
        if n <= region.floor:
            return
        if n not in region.claims or region.claims[n]["writer"] != body["writer"]:
            self._wrong.append(f"I1: batch {body['number']} of {name}@{n} is by a process that has not claimed it")
        if body["number"] != len(log):
            self._wrong.append(f"I1: batch {body['number']} of {name}@{n} follows {len(log)} batches")
        log.append(body)

    def claimed(self, name: str, n: int, body: dict[str, Any], region: Region) -> None:
        """An attempt has begun."""
        for adopted in body.get("base", ()):
            before = adopted["attempt"]
            claim = region.claims.get(before, {})
            if before not in region.outcomes or claim.get("reading") != body["reading"]:
                self._wrong.append(f"I3: {name}@{n} adopts of {name}@{before}, which is open or made of something else")
            if adopted["length"] > len(self._batches.get((name, before), ())):
                self._wrong.append(
                    f"I3: {name}@{n} adopts {adopted['length']} batches of {name}@{before}, which has less"
                )

    def finished(self, name: str, n: int, body: dict[str, Any], region: Region) -> None:
        """An attempt has ended with a result."""
        if name not in self.regions:
            return
        named = {(batch["attempt"], batch["number"]) for batch in body.get("parts", ())}
        own = {(n, number) for number in range(len(self._batches.get((name, n), ())))}
        if named != own | set(_numbers(region.claims[n].get("base", ()))):
            self._wrong.append(f"I14: {name}@{n} is made of {sorted(named)}, and has adopted or written other batches")
        counts = Counter(key for batch in body.get("parts", ()) for key in batch["splits"])
        if counts != dict.fromkeys(_assigned(body), 1):
            self._wrong.append(f"I14: {name}@{n} does not have each of its splits once: {sorted(counts.values())}")

    def deleted(self, name: str, n: int, key: str, region: Region, published: Iterable[int], by: str) -> None:
        """An object of a result was removed, and not by an outsider."""
        if n <= region.floor:
            return  # purged
        for number in {region.current, *published}:
            counts = number > region.floor and region.has_finished(number) and number not in region.released_at
            if counts and key in _keys(region.finish(number)["outputs"]):
                self._wrong.append(f"I8: {by} deletes {key}, of which {name}@{number} is made")
        latest_attempt = region.latest_attempt
        if latest_attempt in region.claims and latest_attempt > max([region.floor, *region.resets]):
            base = _numbers(region.claims[latest_attempt].get("base", ()))
            log = [(latest_attempt, number) for number in range(len(self._batches.get((name, latest_attempt), ())))]
            for a, number in (*base, *log):
                marked_at = region.released_at.get(a)
                is_seen = latest_attempt in region.outcomes or a == latest_attempt
                if marked_at is not None and (is_seen or marked_at < region.claimed_at[latest_attempt]):
                    continue  # let go of, and the next claim takes nothing of it
                if key in _keys(self._batches[name, a][number]["outputs"]):
                    self._wrong.append(
                        f"I8: {by} deletes {key}, which {name}@{latest_attempt} has adopted or committed"
                    )

    def rows_of(self, finish: dict[str, Any], result: str) -> str:
        """What a finish has as rows of a result: those of every split once, of one making; else something else."""
        outputs = [output for output in finish["outputs"] if output["result"] == result]
        lines = [line for key in _keys(outputs) for line in self.bodies[key].splitlines()]
        parsed = [line.partition(" in a file of ")[0].partition(" of split ") for line in lines]
        made = {parts[0] for parts in parsed}
        if len(made) == 1 and Counter(parts[2] for parts in parsed) == dict.fromkeys(_assigned(finish), 1):
            return made.pop()
        return MIXED + "; ".join(sorted(lines))


def _assigned(finish: dict[str, Any]) -> list[str]:
    return [content_key(external["uri"], external["size"], external["etag"]) for external in finish["externals"]]


def _numbers(base: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    return [
        (adopted["attempt"], number)
        for adopted in base
        for number in range(adopted["length"])
        if number not in adopted.get("dropped", ())
    ]


def _keys(outputs: Iterable[dict[str, Any]]) -> set[str]:
    return {
        f"{output['location'].partition('://')[2].partition('/')[2]}/{path}"
        for output in outputs
        for path, _, _ in output["objects"]
    }
