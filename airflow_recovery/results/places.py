"""Where the results of a run may lie (fault 86): the location in a record is checked before it is opened.

A process that looks whether a result is there opens its location with its own rights. A manifest can be written by
anybody who may write the journal, so its location is compared with what others say: a managed result lies below the
results of its run, and one at a fixed location lies where a plan declares it. Pure: nothing is opened here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from airflow_recovery.errors import RecordInvalid
from airflow_recovery.journal.layout import SHARED_FOLDER, JournalLayout
from airflow_recovery.locations import ICEBERG, comparable, scheme_of
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.model.result_type import kept_by

_TEMPLATE = re.compile(r"\{[{%#].*[}%#]\}", re.DOTALL)
"""From the first expression to the last one: what stands between two of them is not looked at."""
_BUCKET = re.compile(r"[^/]+://[^/]+/")


class Asker(str, Enum):
    """Whose rights a location is opened with, and who is told what is found there."""

    PERSON = "person"
    """A command opens with the rights of the person who typed it, and shows what it finds to that person."""
    TASK = "task"
    """A task looks where today's code says that its DAG writes."""
    API_SERVER = "api server"
    """It looks for people who may have no such right. So it opens only what a plan of the run declares, and shows no
    more than whether the data is as registered."""


class Look(str, Enum):
    """What is done about the location of one result: whether it is opened, and how much of it is shown."""

    OPEN = "open"
    OPEN_AND_TELL_NOTHING = "open, and tell no names, sizes and etags"
    TAKEN_TO_BE_THERE = "not asked"
    """No client is made for it: it is not declared, or the credentials may not be used there."""
    NOT_DECLARED = "no code declares it: it is made again"


@dataclass(frozen=True)
class ResultPlaces:
    """Where results of the run ``identity`` may lie. ``results`` is the base URI of the deployment's results.

    ``fixed`` are (result, URI as declared) of the results at locations of the user's own; a URI may be a template.
    ``may_open``: whether the deployment's credentials may be used at a location. A task asks that when it opens one.
    """

    results: str
    identity: RunIdentity
    asker: Asker
    fixed: frozenset[tuple[str, str]] = field(default=frozenset())
    may_open: Callable[[str], bool] = lambda location: True

    @classmethod
    def of(
        cls,
        results: str,
        identity: RunIdentity,
        asker: Asker,
        plans: Iterable[PlanRecord],
        may_open: Callable[[str], bool] = lambda location: True,
    ) -> ResultPlaces:
        """The places of ``identity``'s results, with the fixed locations that ``plans`` declare."""
        fixed = frozenset(pair for plan in plans for group in plan.groups for pair in group.template.fixed)
        return cls(results, identity, asker, fixed, may_open)

    def look_at(self, manifest: PartitionManifest) -> Look:
        """Whether its location is opened. Raises `RecordInvalid` for a managed result outside the results of the run.

        Not for results that a keeper has, which are no objects of a store.
        """
        assert not kept_by(manifest.location)
        text = comparable(manifest.location)
        if text.startswith(self._managed):
            return Look.OPEN
        if manifest.managed:
            raise RecordInvalid(
                f"{manifest.result}: expected its data below {self._managed[0]}, found them registered at "
                f"{manifest.location}: nothing was asked there. Set [recovery] results (--results) as it was when "
                "they were written; else somebody has changed the record: restart the region.",
                code="result-elsewhere",
            )
        if not self.is_opened(manifest.location):
            return Look.TAKEN_TO_BE_THERE
        if self.asker is Asker.PERSON:
            return Look.OPEN
        declared = [uri for result, uri in self.fixed if result == manifest.result and declares(uri, manifest.location)]
        if self.asker is Asker.TASK:
            return Look.OPEN if declared else Look.NOT_DECLARED
        if any(self._is_served(uri, text) for uri in declared):
            return Look.OPEN_AND_TELL_NOTHING
        return Look.TAKEN_TO_BE_THERE

    def is_opened(self, location: str) -> bool:
        """Whether ``location`` is opened at all. A task opens it, and fails if it is not allowed."""
        return self.asker is Asker.TASK or self.may_open(location)

    @cached_property
    def _managed(self) -> tuple[str, str]:
        """Where the run's results begin, and those that outlive runs."""
        base = comparable(self.results).rstrip("/")
        return f"{base}/{JournalLayout(self.identity).data}", f"{base}/{SHARED_FOLDER}/"

    def _is_served(self, declared: str, text: str) -> bool:
        """No file of this machine, unless the results are files too; and no bucket that a template names."""
        if text.startswith("file:"):
            return comparable(self.results).startswith("file:")
        head = _TEMPLATE.split(declared)[0]
        return scheme_of(head) is not None and _BUCKET.match(head) is not None


def declares(declared: str, location: str) -> bool:
    """Whether ``location`` is what ``declared`` says. Of a template only what stands before and behind it is known."""
    literal = _TEMPLATE.split(declared.rstrip().rstrip("/"))
    if len(literal) == 1:
        return comparable(literal[0]) == comparable(location)
    head, tail = literal
    text = location.rstrip("/")
    # A table's one spelling does not name the branch main; a template may.
    spellings = (text, f"{text}?branch=main") if text.startswith(ICEBERG) and "?" not in text else (text,)
    return any(
        (each.startswith(head) or comparable(each).startswith(comparable(head))) and each.endswith(tail)
        for each in spellings
    )
