"""Letting the data of attempts go (docs/protocol.md#release). Which may go: `airflow_recovery.results.release_rule`.

    PUT n.released;  LIST again: an open claim that pins P@n -> leave it for the next sweep;  else delete the objects

A reader claims, *then* looks for ``released``. Whoever releases writes ``released``, *then* looks for claims. So of two
that race, one sees the other, and no reader ever holds half of a result. In this sense a claim that adopts batches of
an earlier attempt reads it, and its finish goes on to do so. What was committed in batches is made of files of several
attempts (`airflow_recovery.results.batches_in_use`): they go together, less those that somebody else uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.location import key_below
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import Released, RunAttempt
from airflow_recovery.results.availability import in_pages, list_together
from airflow_recovery.results.batches_in_use import finishes_made_of
from airflow_recovery.results.readers import Readers, end_reading, look_for_readers
from airflow_recovery.results.table_tags import RunTags
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore


@dataclass(frozen=True)
class Deleted:
    """What a release came to. ``readers``, as text: where there are any, nothing was deleted.

    ``tags_left``: which tag of ours a table has yet, and why; the next sweep takes it away.
    """

    objects: int = 0
    size: int = 0
    readers: str = ""
    tags_left: str = ""


Attempted = tuple[str, int]
"""An attempt by its region and its number."""


class Candidate(NamedTuple):
    """An attempt of ``region`` that may go, and those that go ``also``. ``data``: what it has, where it was listed."""

    region: str
    attempt: Attempt
    also: tuple[int, ...] = ()
    data: Deleted | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """The attempts that go."""
        return (self.attempt.number, *self.also)

    def objects(self) -> Iterator[tuple[Attempted, int]]:
        """The attempts that go, and how many objects each has at least."""
        for number in self.numbers:
            is_known = self.data is not None and number == self.attempt.number
            yield (self.region, number), self.data.objects if self.data is not None and is_known else 0

    def markers(self, who: str) -> list[Released]:
        """What is written before anything is deleted."""
        numbers = self.also if self.attempt.is_released else (self.attempt.number, *self.also)
        return [Released(self.region, number, who) for number in numbers]


CONNECTIONS = 64


class Releaser:
    """Lets attempts of one run go. ``who`` is written into the markers. A dry run looks, and changes nothing.

    ``drop_cached`` has a server forget what it keeps of an attempt; ``tags`` are taken off the tables that it has made.
    """

    def __init__(
        self,
        journal: Journal,
        results: ObjectStore,
        *,
        who: str,
        dry_run: bool = False,
        drop_cached: Callable[[str, int], None] = lambda region, number: None,
        tags: RunTags | None = None,
    ) -> None:
        self._journal = journal
        self._results = results
        self._who = who
        self._dry_run = dry_run
        self._drop_cached = drop_cached
        self._tags = tags

    def release(self, region: str, attempt: Attempt, also: Iterable[int] = ()) -> Deleted:
        """Let one attempt go, as `release_all`.

        ``also``: attempts whose batches go with it (`ReleaseRule.released_with`).
        """
        [deleted] = self.release_all([Candidate(region, attempt, tuple(also))])
        return deleted

    def release_all(self, candidates: Sequence[Candidate], listed: Sequence[ObjectInfo] | None = None) -> list[Deleted]:
        """Markers, one look for readers, delete. Raises the store's errors; may be called again where that happened.

        ``listed``: all objects of the journal, where they were listed before. That is enough for a dry run alone.
        """
        if self._dry_run:
            readers = Readers(self._journal.data_in_use(listed))
            state = self._state_now(candidates, listed)
        else:
            self._mark([released for candidate in candidates for released in candidate.markers(self._who)])
            # Readers first: who has adopted a batch has a claim here, or has finished when the state is read.
            readers = look_for_readers(self._journal)
            state = self._state_now(candidates)
        texts = [self._readers(candidate, readers, state) for candidate in candidates]
        unread = [candidate for candidate, found in zip(candidates, texts, strict=True) if not found]
        deleted: dict[Attempted, Deleted] = {}
        if self._dry_run:
            deleted = {(c.region, c.attempt.number): c.data for c in unread if c.data is not None}
        objects = {key: count for candidate in unread for key, count in candidate.objects() if key not in deleted}
        deleted |= self.delete_all(objects)
        return [
            Deleted(readers=", ".join(found)) if found else self._let_go(candidate, deleted)
            for candidate, found in zip(candidates, texts, strict=True)
        ]

    def _state_now(self, candidates: Sequence[Candidate], listed: Sequence[ObjectInfo] | None = None) -> RunState:
        """The regions of which attempts with batches may go; without a request where there are none."""
        regions = {candidate.region for candidate in candidates if candidate.attempt.batches or candidate.also}
        return self._journal.load(self._journal.list(regions, listed)) if regions else RunState()

    def _mark(self, markers: Sequence[Released]) -> None:
        if len(markers) <= CONNECTIONS:
            for marker in markers:
                self._journal.release(marker)
            return
        with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="recovery-release") as pool:
            for _ in pool.map(self._journal.release, markers):
                pass

    def _listed(self, objects: Mapping[Attempted, int]) -> dict[Attempted, list[ObjectInfo]]:
        """What lies below the prefixes of these attempts: of very many, by a few listings as far as they tell."""
        prefixes = {self._prefix(*attempt): count for attempt, count in objects.items()}
        together: dict[str, list[ObjectInfo]] = {}
        for page in in_pages(prefixes) if len(prefixes) > CONNECTIONS else ():
            # Fewer than the run's own listing has seen: of a server that lists in an order of its own. Listed alone.
            answer = list_together(self._results, page)
            together |= {prefix: infos for prefix, infos in answer.items() if len(infos) >= prefixes[prefix]}
        return {
            attempt: together[prefix] if prefix in together else list(self._results.list(prefix))
            for attempt, prefix in zip(objects, prefixes, strict=True)
        }

    def _readers(self, candidate: Candidate, readers: Readers, state: RunState) -> list[str]:
        texts = readers.of(candidate.region, *candidate.numbers)
        if candidate.attempt.batches or candidate.also:
            texts += self._made_of(candidate.region, candidate.numbers, state.of(candidate.region), readers)
        return texts

    def _let_go(self, candidate: Candidate, deleted: dict[Attempted, Deleted]) -> Deleted:
        region, attempt, *_ = candidate
        # One that goes with two finishes is counted with the first.
        parts = [deleted.pop((region, number), Deleted()) for number in candidate.numbers]
        if attempt.outcome is not None and attempt.outcome.shared is not None and not self._dry_run:
            identity = self._journal.identity
            owner = RunAttempt(*RegionKey.of(identity, region), attempt.number)
            end_reading(self._journal, attempt.outcome.shared, owner, self._who)
        return Deleted(
            sum(part.objects for part in parts),
            sum(part.size for part in parts),
            tags_left="; ".join(part.tags_left for part in parts if part.tags_left),
        )

    def delete_data(self, region: str, number: int) -> Deleted:
        """As `delete_all`, of one attempt."""
        return self.delete_all({(region, number): 0})[region, number]

    def delete_all(self, objects: Mapping[Attempted, int]) -> dict[Attempted, Deleted]:
        """Everything below the attempts' own prefixes, and their tags; a user's own location or table is never deleted.

        Whoever calls knows that no finish and no base names anything there. ``objects``: the attempts, and how many
        objects each has at least.
        """
        listed = self._listed(objects)
        if not self._dry_run:
            self._results.delete(info.key for infos in listed.values() for info in infos)
        deleted = {}
        for (region, number), infos in listed.items():
            tags_left = ""
            if not self._dry_run:
                self._drop_cached(region, number)
                tags_left = self._tags.let_go(region, number) if self._tags is not None else ""
            deleted[region, number] = Deleted(len(infos), sum(info.size for info in infos), tags_left=tags_left)
        return deleted

    @staticmethod
    def _made_of(region: str, numbers: tuple[int, ...], state: RegionState, readers: Readers) -> list[str]:
        """Who needs these attempts for a finish that is made of them.

        It counts by now, claimed before the marker; or it is read, or a person holds it.
        """
        finishes = finishes_made_of(state, numbers)
        if not finishes:
            return []
        counts = [f"{region}@{n}" for n in finishes if state.current is not None and n == state.current.number]
        return [*counts, *readers.of(region, *finishes)]

    def delete_surplus(
        self, region: str, number: int, outputs: Iterable[PartitionManifest], is_old: Callable[[ObjectInfo], bool]
    ) -> Deleted:
        """Of an attempt whose batches are used, what is in none of them: ``outputs`` are theirs. No marker: it counts.

        What a zombie has committed beyond what was adopted, committed batches that were dropped, and what
        was not committed. Only where no later claim can adopt more of it (`batches_in_use.is_decided`).
        """
        base = self._results.base_uri
        kept = {key_below(base, uri) for output in outputs for uri in output.uris()}
        listed = self._results.list(self._prefix(region, number))
        surplus = [info for info in listed if info.key not in kept and is_old(info)]
        if not self._dry_run:
            self._results.delete(info.key for info in surplus)
        return Deleted(len(surplus), sum(info.size for info in surplus))

    def _prefix(self, region: str, number: int) -> str:
        return f"{self._journal.layout.data_of(region, number)}/"
