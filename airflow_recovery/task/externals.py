"""Today's external input of a region: the splits that its sources, or one subtask's share of them, would read now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_recovery.attempt.assignment_log import AssignmentLog
from airflow_recovery.attempt.mode import AttemptMode
from airflow_recovery.checks import check_location
from airflow_recovery.errors import InputDenied, JobDefinitionError, NotPublished, ObjectMissing
from airflow_recovery.job.context import ONLY_SUBTASK
from airflow_recovery.job.enumerators import ResumedEnumerator
from airflow_recovery.job.parallelism import PerFile
from airflow_recovery.job.sources import Dates, FilePattern
from airflow_recovery.job.templates import uses_subtask
from airflow_recovery.locations import VERSION, is_published, is_table
from airflow_recovery.model.mode import BATCH, answers_of
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.results.availability import why_unreadable
from airflow_recovery.task.inventory import list_objects, object_key
from airflow_recovery.task.published_input import look_up

if TYPE_CHECKING:
    import logging

    from airflow_recovery.attempt.application import ClaimedAttempt
    from airflow_recovery.attempt.job_plan import ExecutionRegion
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.job import Job, Vertex
    from airflow_recovery.job.sources import SplitSource
    from airflow_recovery.journal.journal import Journal
    from airflow_recovery.model.manifest import PartitionManifest

RESTORE = (
    "Restore them (aws s3api restore-object), or leave them out of the input, and clear this task when that is done."
)


@dataclass
class Unreadable:
    """What a listing shows of inputs beside their identity: whether their files can be read.

    An attempt whose result is kept reads no input, so only a task that is about to start Spark calls a check.
    """

    archived: dict[str, str] = field(default_factory=dict)
    """The storage class of each file that must be restored before it can be read, by its URI."""
    published: dict[str, tuple[PartitionManifest, ...]] = field(default_factory=dict)
    """The parts of each result of another DAG, by the URI that names it."""

    def check_published(self, where: str, stores: Stores) -> None:
        """Raise `NotPublished` if a file of a published result is missing, altered or archived."""
        parts = [part for parts in self.published.values() for part in parts]
        why = why_unreadable(parts, stores.results.base_uri, stores.open_location)
        if why is not None:
            raise NotPublished(
                f"{where}: expected a published result that can be read: {why}",
                code="published-unreadable",
                where=where,
            )

    def check(self, where: str, uris: Iterable[str]) -> None:
        """Raise `InputDenied` if one of the files at ``uris``, which are to be read, is archived."""
        found = sorted(uri for uri in uris if uri in self.archived)
        if found:
            raise InputDenied(
                f"{where}: {self.text(found)}. Spark was not started. {RESTORE}", code="external-denied", where=where
            )

    def text(self, uris: Sequence[str]) -> str:
        """What is wrong with these archived files."""
        first = f"{uris[0]} (storage class {self.archived[uris[0]]})"
        if len(uris) == 1:
            return f"{first} is archived, so it can't be read"
        return f"{first} and {len(uris) - 1} more files are archived, so they can't be read"


def list_external(
    stores: Stores, pattern: str, vertex: str, *, reads_tables: bool = False, unreadable: Unreadable | None = None
) -> tuple[ExternalObject, ...]:
    """The objects that ``pattern`` names now. Raises if there is none.

    Uses the connection of the results, as the Spark driver does that reads them. Raises `LocationNotAllowed`, before
    anything is sent, for a place where the credentials may not be used.

    Of another DAG's published result its files, and no others. ``reads_tables``: see `list_objects`. ``unreadable``
    gets what the listing shows beside.
    """
    unreadable = unreadable or Unreadable()
    if is_published(pattern):
        manifests = look_up(stores, pattern, vertex).result.manifests
        unreadable.published[pattern] = manifests
        if is_table(manifests[0].location):
            raise JobDefinitionError(
                f"vertex {vertex!r}: expected a published result in files, found the table {manifests[0].location}: "
                "read the table itself"
            )
        return tuple(
            ExternalObject(vertex, uri, file.size, file.etag)
            for manifest in manifests
            for uri, file in zip(manifest.uris(), manifest.objects, strict=True)
        )
    return list_objects(
        pattern,
        vertex=vertex,
        open_location=stores.opener_of(pattern),
        reads_tables=reads_tables,
        archived=unreadable.archived,
    )


def version_input(vertex: str, name: str, text: str, where: str) -> ExternalObject:
    """The input ``name`` as its rendered ``text`` shows it. Raises `JobDefinitionError` for a text that shows nothing.

    ``vertex``: in whose place it stands in the trace.
    """
    checked: str = check_location(f"{VERSION}{text}", where, templated=False, to_read=True, tables=True)
    return ExternalObject(vertex, f"{VERSION}{name}", 0, checked.removeprefix(VERSION))


class RegionSplits:
    """What the sources of ``region`` read today. ``journal`` is the one that its attempts are in.

    Subtasks that share one listing (a number of them) have their splits assigned in the journal, where each split keeps
    its home whatever comes and goes; so has a source that must know what has vanished, or whose enumerator goes on
    where it was. All others are their listing.
    """

    def __init__(
        self, job: Job, region: ExecutionRegion, stores: Stores, journal: Journal, *, log: logging.Logger
    ) -> None:
        self._job, self._region, self._stores = job, region, stores
        self._journal, self._log = journal, log
        self._gone: set[str] = set()
        self._unreadable = Unreadable()

    def today(self) -> tuple[ExternalObject, ...]:
        """As external inputs, by source.

        Raises `ObjectMissing` where there is nothing to read, `SplitsVanished`, `SplitIdentityError`, what a user's
        enumerator raises, and the errors of the stores.
        """
        return tuple(
            split.external(vertex)
            for vertex, source in self._region.sources.items()
            for split in self._splits(vertex, source)
        )

    def _splits(self, vertex: str, source: SplitSource) -> Sequence[Split]:
        subtask, declared = self._region.subtask or ONLY_SUBTASK, self._job.vertices[vertex]
        today = self._today(vertex, source)
        chosen_later = _mode_of(declared).offered(
            self._journal, declared, today, subtask.parallelism, vanished=source.vanished, log=self._log
        )
        if chosen_later is not None:
            return chosen_later
        has_own_listing = self._region.subtask is None or _names_subtask(declared)
        if has_own_listing and source.vanished is Vanished.DROP and not isinstance(today, ResumedEnumerator):
            return self._listed(vertex, source)
        if isinstance(source, FilePattern) and isinstance(self._job.parallelism_of(vertex), PerFile):
            every = self._listed(vertex, source)
            splits = [info for info in every if object_key(source.pattern, info.uri) == subtask.key]
        else:
            journal = self._journal
            assignments = AssignmentLog(journal.store, journal.identity, vertex, writer=journal.writer)
            assignment = assignments.advanced(today, subtask.parallelism, vanished=source.vanished, log=self._log)
            every = assignment.in_order
            splits = [*assignment.of(subtask.index)]
            if source.vanished is Vanished.KEEP:
                splits += self._kept(vertex, assignment.gone_of(subtask.index))
        if not splits:
            raise ObjectMissing(
                f"Subtask {subtask.key!r} of vertex {vertex!r} has none of the {len(every)} splits that are there now: "
                "a file has gone, or there are fewer splits than subtasks. Clear the task group to have the subtasks "
                "decided anew, or declare fewer.",
                code="subtask-without-splits",
                subtask=subtask.key,
            )
        return splits

    def _kept(self, vertex: str, gone: Sequence[Split]) -> list[Split]:
        """Of what is not listed any more, what was read and committed: nothing else can be had of it."""
        if not gone:
            return []
        committed = _mode_of(self._job.vertices[vertex]).committed(self._journal, self._region.name, vertex)
        kept = [split for split in gone if split.key in committed]
        self._gone |= {split.key for split in kept}
        return kept

    def check_readable(self, attempt: ClaimedAttempt) -> None:
        """Raise `UserCodeError` where a split is to be read of which only what was read of it earlier is left.

        Raise `InputDenied` for a file that is archived.
        """
        for vertex in self._region.sources:
            mode = _mode_of(self._job.vertices[vertex])
            mode.check_readable(self._region.name, attempt.work, self._gone)
            read = [external for external in attempt.externals if external.vertex == vertex]
            self._unreadable.check(f"vertex {vertex!r}", mode.will_read(attempt.work, read))

    def check_published(self) -> None:
        """Raise `NotPublished` for a published result that can't be read."""
        self._unreadable.check_published(self._region.name, self._stores)

    def _today(self, vertex: str, source: SplitSource) -> Callable[[], Sequence[Split]] | ResumedEnumerator:
        resumed = None if isinstance(source, FilePattern) else source.resumed(self._job.vertices[vertex].where)
        return resumed or (lambda: self._listed(vertex, source))

    def _listed(self, vertex: str, source: SplitSource) -> Sequence[Split]:
        if isinstance(source, FilePattern):
            listed = list_external(self._stores, source.pattern, vertex, unreadable=self._unreadable)
            return [Split.of_external(external) for external in listed]
        where = self._job.vertices[vertex].where
        overlap = source.overlap(where) if isinstance(source, Dates) and not source.is_of_run else ""
        if overlap:
            self._log.warning("%s: %s.", where, overlap)
        return source.enumerate(where)


def _mode_of(vertex: Vertex) -> AttemptMode:
    return answers_of(next(iter(vertex.modes), BATCH.name), "attempt", AttemptMode)


def _names_subtask(vertex: Vertex) -> bool:
    return vertex.splits is not None and uses_subtask(vertex.splits.declared)
