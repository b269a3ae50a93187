"""Groups of regions in records of format 2, written out: every region of a plan, every input of an attempt."""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from airflow_recovery.verify.records import InputRef, Named, PlannedRegion

DigestOf = Callable[[Named, str], "str | None"]
"""The digest of a result of an attempt, as its outcome has it; `None` where there is none."""


def has_groups(kind: str, body: dict[str, Any]) -> bool:
    """Whether a record's body is one that format 1 has not."""
    if kind == "plan":
        return any("template" in region for region in body["regions"])
    return kind in ("claim", "outcome") and any("group" in ref for ref in body["inputs"])


def planned_regions(body: dict[str, Any]) -> tuple[PlannedRegion, ...]:
    """The regions of a plan. Raises `ValueError` where a group reads one that does not stand before it."""
    if not has_groups("plan", body):
        return tuple(map(PlannedRegion.read, body["regions"]))
    names: dict[str, tuple[str, ...]] = {}
    regions: list[PlannedRegion] = []
    for group in body["regions"]:
        regions += _regions_of(group, names)
        names[group["template"]["name"]] = _names(group)
    return tuple(regions)


def _regions_of(group: dict[str, Any], before: dict[str, tuple[str, ...]]) -> Iterator[PlannedRegion]:
    template, keys, edges = group["template"], group["keys"], group["inputs"]
    unknown = [producer for producer, _ in edges if producer not in before]
    if unknown:
        raise ValueError(f"{template['name']} reads {unknown[0]}, which does not stand before it")
    whole = tuple(name for producer, _ in edges for name in before[producer])
    is_shared = all(pattern == "ALL_TO_ALL" for _, pattern in edges)
    for index, name in enumerate(_names(group)):
        ends = [before[to] if pattern == "ALL_TO_ALL" else (before[to][index],) for to, pattern in edges]
        inputs = whole if is_shared else tuple(chain.from_iterable(ends))
        region = {**template, "name": name, "inputs": inputs}
        if keys is not None:
            vertices = {**dict(template["vertex_fingerprints"]), **_own_fingerprints(group, index)}
            content = {
                "subtask": keys[index],
                "vertices": [[vertex, vertices[vertex]] for vertex in template["vertices"]],
                "results": template["results"],
            }
            region |= {"fingerprint": _hash(content)[:32], "subtask": {"of": template["name"], "key": keys[index]}}
        yield PlannedRegion.read(region)


def _own_fingerprints(group: dict[str, Any], index: int) -> dict[str, str]:
    return {vertex: fingerprints[index] for vertex, fingerprints in group.get("own_fingerprints", ())}


def _names(group: dict[str, Any]) -> tuple[str, ...]:
    name = group["template"]["name"]
    return (name,) if group["keys"] is None else tuple(f"{name}[{key}]" for key in group["keys"])


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Groups:
    """The groups of the plans of a run that were added so far, and what attempts have read of them."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], tuple[str, ...]] = {}
        self._read: dict[str, tuple[InputRef, ...]] = {}

    def add(self, plan: dict[str, Any]) -> None:
        """Know the groups of the plan with this body."""
        for group in plan["regions"]:
            if "template" in group:
                name = group["template"]["name"]
                self._names[name, _hash([name, group["keys"]])[:16]] = _names(group)

    def without(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a claim or an outcome with its single inputs alone.

        Raises `ValueError` where it names a group that no plan has.
        """
        for ref in body["inputs"]:
            if "group" in ref:
                self._attempts(ref)
        return {**body, "inputs": [ref for ref in body["inputs"] if "group" not in ref]}

    def written_out(self, body: dict[str, Any], digest_of: DigestOf) -> dict[str, Any]:
        """The body of a claim or an outcome with each input of its groups by itself. Raises as `without`."""
        parts = [self._of_group(ref, digest_of) if "group" in ref else (InputRef.read(ref),) for ref in body["inputs"]]
        return {**body, "inputs": parts[0] if len(parts) == 1 else tuple(chain.from_iterable(parts))}

    def _of_group(self, ref: dict[str, Any], digest_of: DigestOf) -> tuple[InputRef, ...]:
        # All readers of a group name it alike, and share what that stands for.
        text = json.dumps(ref, sort_keys=True)
        if text not in self._read:
            read = self._attempts(ref)
            digests: list[dict[str, str]] = [{} for _ in read]
            for result, combined in ref.get("digests", ()):
                single = [digest_of(of, result) or "" for of in read]
                if _combined((of.region, digest) for of, digest in zip(read, single, strict=True)) == combined:
                    for known, digest in zip(digests, single, strict=True):
                        known[result] = digest
                else:
                    digests[0][result] = f"that, with those of {len(read)} attempts, comes to {combined}"
            self._read[text] = tuple(map(InputRef, read, digests))
        return self._read[text]

    def _attempts(self, ref: dict[str, Any]) -> list[Named]:
        names = self._names.get((ref["group"], ref["keys"]), ())
        attempts = ref["attempts"]
        others = _others(attempts.get("except", ()))
        if not names or len(names) != attempts["count"] or not others.keys() <= set(range(len(names))):
            raise ValueError(f"it has read the group {ref['group']} with the keys {ref['keys']}, which no plan has")
        return [Named(name, int(others.get(at, attempts["attempt"]))) for at, name in enumerate(names)]


def _others(written: Any) -> dict[int, int]:
    """The attempts by index, as pairs or as runs: ``.120b3``, the regions 120 to 122 at attempt 2.

    In ``60,61:.120b3`` it is attempt 61: the second of those that are named.
    """
    if not isinstance(written, str):
        return dict(written)
    others: dict[int, int] = {}
    named, _, runs = written.rpartition(":")
    attempts = [int(number) for number in named.split(",")] if named else list(range(1, 53))
    at = 0
    for run in re.findall("[^0-9][0-9]*", runs):
        length = int(run[1:] or 1)
        if run[0] != ".":
            others |= dict.fromkeys(range(at, at + length), attempts[string.ascii_letters.index(run[0])])
        at += length
    return others


def _combined(digests: Iterable[tuple[str, str]]) -> str:
    total = sum(int.from_bytes(hashlib.sha256(json.dumps(pair).encode()).digest(), "big") for pair in digests)
    return f"{total % 2**256:064x}"
