"""What a run's plans tell: the hash that names each, the groups in it; and a digest of what an attempt reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar

from airflow_recovery.model.codec import digest_of, to_json
from airflow_recovery.model.groups import GroupedRegions, RegionGroup
from airflow_recovery.model.inputs import InputGroupRef, InputRef, Inputs
from airflow_recovery.model.records import Claim, Outcome, PlanRecord, Record

R = TypeVar("R", bound=Record)


def plan_hash(plan: PlanRecord) -> str:
    """The hash of ``plan``, 32 hex digits; equal plans have equal hashes on every machine."""
    return digest_of(to_json(plan))[:32]


def reading_of(fingerprint: str | None, inputs: Iterable[InputRef]) -> str:
    """Digest of what an attempt reads but for what it may take over: the code, and the rows of its side inputs.

    A side input that was made again with equal rows is the same; one without digests is another with each attempt.
    """
    parts = inputs.parts if isinstance(inputs, Inputs) else inputs
    refs = sorted(map(_rows_of, parts), key=itemgetter(0))
    return hashlib.sha256(json.dumps([fingerprint, refs]).encode()).hexdigest()[:32]


def _rows_of(part: InputRef | InputGroupRef) -> list[Any]:
    if isinstance(part, InputRef):
        return [part.region, sorted(part.digests) or part.token or part.attempt]
    return [part.group, part.keys, sorted(part.digests) or part.tokens or to_json(part.attempts)]


class GroupsOfRun:
    """The groups that the plans of a run have, by which the inputs of its records are told (`Inputs`).

    ``read_plans`` has every recorded plan `taken`. It is called where a record names a group that no plan has so far.
    """

    def __init__(self, read_plans: Callable[[], None]) -> None:
        self._read_plans = read_plans
        self._groups: dict[tuple[str, str], RegionGroup | None] = {}

    def add(self, plan: PlanRecord) -> None:
        """Know the groups of ``plan`` from now on."""
        if isinstance(plan.regions, GroupedRegions):
            self._groups |= {(group.name, group.keys_digest): group for group in plan.groups if group.is_wide}

    def taken(self, record: R) -> R:
        """A record that was read: a plan's groups are known now, and the inputs of others told, as far as they are."""
        if isinstance(record, PlanRecord):
            self.add(record)
        if not isinstance(record, (Claim, Outcome)) or type(record.inputs) is not Inputs:
            return record
        return replace(record, inputs=record.inputs.with_groups(self._find))

    def _find(self, name: str, keys: str) -> RegionGroup | None:
        if (name, keys) not in self._groups:
            self._read_plans()
            self._groups.setdefault((name, keys), None)
        return self._groups[name, keys]
