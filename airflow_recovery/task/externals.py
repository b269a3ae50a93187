"""Today's external input of a region: the splits that its sources, or one subtask's share of them, would read now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from airflow_recovery.attempt.assignment_log import AssignmentLog
from airflow_recovery.attempt.mode import AttemptMode
from airflow_recovery.checks import check_location
from airflow_recovery.errors import JobDefinitionError, ObjectMissing
from airflow_recovery.job.context import ONLY_SUBTASK
from airflow_recovery.job.enumerators import ResumedEnumerator
from airflow_recovery.job.parallelism import PerFile
from airflow_recovery.job.sources import Dates, FilePattern
from airflow_recovery.job.templates import uses_subtask
from airflow_recovery.locations import VERSION, is_published, is_table, scheme_of
from airflow_recovery.model.mode import BATCH, AttemptWork, answers_of
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_matching import Vanished
from airflow_recovery.task.inventory import list_objects, object_key
from airflow_recovery.task.published_input import look_up

if TYPE_CHECKING:
    import logging

    from airflow_recovery.attempt.job_plan import ExecutionRegion
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.job import Job, Vertex
    from airflow_recovery.job.sources import SplitSource
    from airflow_recovery.journal.journal import Journal


def list_external(
    stores: Stores, pattern: str, vertex: str, *, reads_tables: bool = False
) -> tuple[ExternalObject, ...]:
    """The objects that ``pattern`` names now, reached as the journal is. Raises if there is none.

    Raises `LocationNotAllowed`, before anything is sent, for a place where the credentials may not be used.

    Of another DAG's published result its files, and no others. ``reads_tables``: see `list_objects`.
    """
    if is_published(pattern):
        manifests = look_up(stores, pattern, vertex).result.manifests
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
    if scheme_of(pattern) != "s3":
        return list_objects(pattern, vertex=vertex, open_location=stores.opener_of(pattern), reads_tables=reads_tables)
    stores.opener_of(pattern)  # raises if the pattern is not allowed
    spec = stores.journal_spec if stores.journal_spec.endpoint_url else stores.results_spec
    return list_objects(
        pattern,
        vertex=vertex,
        endpoint_url=spec.endpoint_url,
        region_name=spec.region_name,
        reads_tables=reads_tables,
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
                "decided anew, or declare fewer."
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

    def check_readable(self, work: AttemptWork) -> None:
        """Raises `UserCodeError` where a split is to be read of which only what was read of it earlier is left."""
        for vertex in self._region.sources:
            _mode_of(self._job.vertices[vertex]).check_readable(self._region.name, work, self._gone)

    def _today(self, vertex: str, source: SplitSource) -> Callable[[], Sequence[Split]] | ResumedEnumerator:
        resumed = None if isinstance(source, FilePattern) else source.resumed(self._job.vertices[vertex].where)
        return resumed or (lambda: self._listed(vertex, source))

    def _listed(self, vertex: str, source: SplitSource) -> Sequence[Split]:
        if isinstance(source, FilePattern):
            return [Split.of_external(external) for external in list_external(self._stores, source.pattern, vertex)]
        where = self._job.vertices[vertex].where
        overlap = source.overlap(where) if isinstance(source, Dates) else ""
        if overlap:
            self._log.warning("%s: %s.", where, overlap)
        return source.enumerate(where)


def _mode_of(vertex: Vertex) -> AttemptMode:
    return answers_of(next(iter(vertex.modes), BATCH.name), "attempt", AttemptMode)


def _names_subtask(vertex: Vertex) -> bool:
    return vertex.splits is not None and uses_subtask(vertex.splits.declared)
