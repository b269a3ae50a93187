"""Letting the data of attempts go (docs/protocol.md#release). Which may go: `airflow_recovery.results.release_rule`.

    PUT n.released;  LIST again: an open claim that pins P@n -> leave it for the next sweep;  else delete the objects

A reader claims, *then* looks for ``released``. Whoever releases writes ``released``, *then* looks for claims. So of two
that race, one sees the other, and no reader ever holds half of a result. In this sense a claim that adopts batches of
an earlier attempt reads it, and its finish goes on to do so. What was committed in batches is made of files of several
attempts (`airflow_recovery.results.batches_in_use`): they go together, less those that somebody else uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.location import key_below
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import Released, RunAttempt
from airflow_recovery.results.availability import in_pages, list_together
from airflow_recovery.results.batches_in_use import finishes_made_of
from airflow_recovery.results.keeper import kept_below
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


class Candidate(NamedTuple):
    """An attempt of ``region`` that may go, and those that go ``also``. ``data``: what it has, where it was listed."""

    region: str
    attempt: Attempt
    also: tuple[int, ...] = ()
    data: Deleted | None = None

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
            return [self._delete_unless_read(candidate, readers, state, {}) for candidate in candidates]
        self._mark([released for candidate in candidates for released in candidate.markers(self._who)])
        # Readers first: who has adopted a batch has a claim here, or has finished when the state is read.
        readers = look_for_readers(self._journal)
        state = self._state_now(candidates)
        together = self._listed_together(candidates)
        return [self._delete_unless_read(candidate, readers, state, together) for candidate in candidates]

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

    def _listed_together(self, candidates: Sequence[Candidate]) -> dict[str, list[ObjectInfo]]:
        """What lies below the prefixes of very many attempts, as far as a few listings tell."""
        if len(candidates) <= CONNECTIONS:
            return {}
        objects = {
            self._prefix(region, attempt.number): data.objects if data is not None else 0
            for region, attempt, _, data in candidates
        }
        listed: dict[str, list[ObjectInfo]] = {}
        for page in in_pages(objects):
            together = list_together(self._results, page)
            # Fewer than the run's own listing has seen: of a server that lists in an order of its own. Listed alone.
            listed |= {prefix: infos for prefix, infos in together.items() if len(infos) >= objects[prefix]}
        return listed

    def _delete_unless_read(
        self, candidate: Candidate, readers: Readers, state: RunState, listed: dict[str, list[ObjectInfo]]
    ) -> Deleted:
        region, attempt, also, data = candidate
        numbers = (attempt.number, *also)
        texts = readers.of(region, *numbers)
        if attempt.batches or also:
            texts += self._made_of(region, numbers, state.of(region), readers)
        if texts:
            return Deleted(readers=", ".join(texts))
        if self._dry_run and data is not None and not also:
            return data
        by_attempt = [self.delete_data(region, number, listed.get(self._prefix(region, number))) for number in numbers]
        deleted = Deleted(
            sum(deletion.objects for deletion in by_attempt),
            sum(deletion.size for deletion in by_attempt),
            tags_left="; ".join(deletion.tags_left for deletion in by_attempt if deletion.tags_left),
        )
        if attempt.outcome is not None and attempt.outcome.shared is not None and not self._dry_run:
            identity = self._journal.identity
            owner = RunAttempt(*RegionKey.of(identity, region), attempt.number)
            end_reading(self._journal, attempt.outcome.shared, owner, self._who)
        return deleted

    def delete_data(self, region: str, number: int, listed: list[ObjectInfo] | None = None) -> Deleted:
        """Everything below the attempt's own prefix, and its tags; a user's own location or table is never deleted.

        What a keeper has for the attempt goes too. Whoever calls knows that no finish and no base names anything
        there. ``listed``: what lies there, if known.
        """
        deleted = self._delete(self._list(region, number) if listed is None else listed)
        if not self._dry_run:
            for keeper, folder in kept_below(f"{self._results.base_uri}/{self._prefix(region, number)}"):
                keeper.delete(folder)
            self._drop_cached(region, number)
            if self._tags is not None:
                return replace(deleted, tags_left=self._tags.let_go(region, number))
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
        listed = self._list(region, number)
        return self._delete([info for info in listed if info.key not in kept and is_old(info)])

    def delete_folders(self, region: str, names: Iterable[str], is_old: Callable[[ObjectInfo], bool]) -> Deleted:
        """The old objects in these folders of a region, which no claim has. No marker: nobody can read them."""
        below = self._journal.layout.data_of_region(region)
        listed = (info for name in names for info in self._results.list(f"{below}/{name}/"))
        return self._delete([info for info in listed if is_old(info)])

    def _prefix(self, region: str, number: int) -> str:
        return self._journal.layout.data_of_number(region, number)

    def _list(self, region: str, number: int) -> list[ObjectInfo]:
        """Everything in the folders of every claim that had this number."""
        return list(self._results.list(self._prefix(region, number)))

    def _delete(self, infos: list[ObjectInfo]) -> Deleted:
        if infos and not self._dry_run:
            self._results.delete([info.key for info in infos])
        return Deleted(len(infos), sum(info.size for info in infos))
