"""Registered results, for code outside the run that made them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import (
    JobDefinitionError,
    NotPublished,
    ObjectMissing,
    PagesDisagree,
    StoreTimeout,
    StoreUnavailable,
)
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.job.templates import checked_moment
from airflow_recovery.locations import PublishedLocation
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import ExternalObject

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_recovery.journal.journal import Journal
    from airflow_recovery.journal.published import PublishedResult
    from airflow_recovery.model.records import RunIdentity
    from airflow_recovery.results.mode import CommittedBatches


READ_BY_HOOK = "RecoveryResultHook"
"""In place of an input's name, in the trace of an attempt whose function has asked the hook."""
NOT_PUBLISHED = "not published"
"""In place of the identity of a result that was asked for and not there."""
_recorded: list[ExternalObject] | None = None


@contextmanager
def reads_recorded() -> Iterator[list[ExternalObject]]:
    """Collect what the hook hands out in this process inside the ``with`` block, in all of its threads.

    One item a result, by ``uri`` and identity. A result that was not published counts as well: it may be, later.
    """
    global _recorded  # threads of a user's function have no context of their own
    before, _recorded = _recorded, []
    try:
        yield _recorded
    finally:
        _recorded = before


NOT_YET = (NotPublished, ObjectMissing, PagesDisagree, StoreTimeout, StoreUnavailable)
"""For whoever waits: worth another look. Anything else (access denied, damaged) will not go away by waiting."""


@dataclass(frozen=True)
class RegisteredResult:
    """One result that the newest publish of a run names and that is valid.

    ``location`` is the folder, ``files`` are the absolute URIs that the manifest names, of a parallel vertex those of
    all its subtasks: read exactly these, never a listing. ``rows`` and ``schema`` (Spark's JSON form) are `None` for
    applications that our runner does not run.
    """

    location: str
    files: tuple[str, ...]
    rows: int | None
    schema: str | None
    region: str
    attempt: int
    publish: int


class RecoveryResultHook(BaseHook):
    """Finds where a result is. Reads the journal: neither the DAG's code nor Airflow's database is needed.

    What it hands out to the function of a recoverable operator belongs to the trace of that attempt, as an input that
    is declared with `airflow_recovery.published` does.

    It also lists the files of the result. If one of them is missing, altered or archived, `get_result` raises
    `NotPublished`. If the store does not let this process list the files, the hook relies on the journal alone.
    """

    def __init__(self, settings: RecoverySettings | None = None) -> None:
        super().__init__()
        self._settings = settings

    def get_result(
        self,
        dag_id: str,
        vertex: str,
        *,
        group_id: str = OPERATORS_GROUP,
        logical_date: datetime | str | None = None,
        partition_key: str | None = None,
        run_id: str | None = None,
        accept_failed: bool = False,
    ) -> RegisteredResult:
        """The result ``vertex`` of one run, named by its logical date, else its partition key, else its run id.

        ``group_id`` is that of the `SparkJobTaskGroup`; without it the DAG's recoverable operators are meant, of which
        ``vertex`` is ``<task id>.<output>``. ``accept_failed``: also a result that a newer attempt was to replace, if
        that has failed. Raises `NotPublished` with the reason if there is no result (yet), or if its files can't be
        read; the store's errors if the journal can't be read; and `ValueError` if the run is not named by exactly one
        of the three, or if an argument has another type.
        """
        check_arguments(RecoveryResultHook.get_result, locals(), "RecoveryResultHook.get_result()")
        key = result_run_key(logical_date=logical_date, partition_key=partition_key, run_id=run_id)
        journal = self.journal(dag_id, key, group_id)
        uri = PublishedLocation(dag_id, vertex, group_id, run_key=key).uri
        try:
            found = self.find(journal, vertex, accept_failed=accept_failed)
            result = self.readable(journal, vertex, found)
        except NotPublished:
            _record(ExternalObject(READ_BY_HOOK, uri, 0, NOT_PUBLISHED))
            raise
        _record(found.external(READ_BY_HOOK, uri))
        return result

    def find(self, journal: Journal, vertex: str, *, accept_failed: bool) -> PublishedResult:
        """What the newest publish in ``journal`` names ``vertex``. Does not look at the data.

        Raises as `get_result`.
        """
        from airflow_recovery.journal.published import published_result

        try:
            return published_result(journal, vertex, accept_failed=accept_failed)
        except NotPublished as error:
            raise NotPublished(
                f"{error}{self._other_groups(journal.identity)}", code=error.code, **error.fields
            ) from None

    def readable(self, journal: Journal, vertex: str, result: PublishedResult) -> RegisteredResult:
        """``result``, if its files are as they were registered. Raises `NotPublished` if one can't be read."""
        from airflow_recovery.results.availability import why_unreadable

        why = why_unreadable(result.manifests, self._stores.results.base_uri, self._stores.open_location)
        if why is not None:
            run = journal.identity
            raise NotPublished(
                f"{run.dag_id} / {run.run_key} / {run.group_id}: publish {result.publish} names {vertex!r}, and its "
                f"data can't be read: {why}",
                code="result-unreadable",
                vertex=vertex,
            )
        rows = [manifest.rows for manifest in result.manifests]
        return RegisteredResult(
            location=_folder_of([manifest.location for manifest in result.manifests]),
            files=tuple(uri for manifest in result.manifests for uri in manifest.uris()),
            rows=None if None in rows else sum(row or 0 for row in rows),
            schema=result.manifests[0].schema,
            region=result.region,
            attempt=result.attempt,
            publish=result.publish,
        )

    def get_committed(
        self,
        dag_id: str,
        vertex: str,
        *,
        group_id: str = OPERATORS_GROUP,
        logical_date: datetime | str | None = None,
        partition_key: str | None = None,
        run_id: str | None = None,
        newest_batch: bool = False,
    ) -> CommittedBatches:
        """What the last streaming region has committed of ``vertex`` so far, while its run is going on.

        The run is named as in `get_result`. ``newest_batch``: of a running table (``output="complete"``), whose newest
        batch is all of it. Raises `NotPublished` where that vertex is not made from a channel, `NothingRecorded` where
        the run has not begun, and the store's errors.
        """
        from airflow_recovery.journal.in_use import read_run
        from airflow_recovery.model.mode import all_answers
        from airflow_recovery.results.mode import ResultsMode

        check_arguments(RecoveryResultHook.get_committed, locals(), "RecoveryResultHook.get_committed()")
        key = result_run_key(logical_date=logical_date, partition_key=partition_key, run_id=run_id)
        journal = self.journal(dag_id, key, group_id)
        run = read_run(journal)
        for mode in all_answers("results", ResultsMode):
            committed = mode.committed(self._stores.results, journal, run, vertex, newest_batch=newest_batch)
            if committed is not None:
                return committed
        raise NotPublished(f"expected a mode that commits {vertex!r} batch by batch, found none on this machine")

    def journal(self, dag_id: str, key: str, group_id: str) -> Journal:
        """The journal of one run, by its run key (`result_run_key`). Reads nothing yet."""
        from airflow_recovery.journal.journal import Journal
        from airflow_recovery.model.records import RunIdentity

        return Journal(self._stores.journal, RunIdentity(dag_id, key, group_id), writer=uuid.uuid4().hex)

    def _other_groups(self, run: RunIdentity) -> str:
        """Where the run has not the group that was asked for, those that it has."""
        from airflow_recovery.story.run_lookup import groups_of

        groups = groups_of(self._stores.journal, run.dag_id, run.run_key)
        if not groups or run.group_id in groups:
            return ""
        return f" This run has no group {run.group_id!r}; it has {', '.join(groups)}: say which one with group_id=."

    @cached_property
    def _stores(self) -> Stores:
        """Of all questions to this hook: whoever asks again and again has one set of clients."""
        return open_stores(self._settings or RecoverySettings.load())


def _record(external: ExternalObject) -> None:
    if _recorded is not None and external not in _recorded:
        _recorded.append(external)


def _folder_of(locations: Sequence[str]) -> str:
    """The folder itself, or the one that all of several are in."""
    segments = zip(*(location.split("/") for location in locations), strict=False)
    return "/".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, segments))


def result_run_key(
    *, logical_date: datetime | str | None = None, partition_key: str | None = None, run_id: str | None = None
) -> str:
    """The run key that the run's own tasks use. Raises `ValueError` unless exactly one of the three is given."""
    from airflow_recovery.journal.layout import run_key

    names = [name for name in (logical_date, partition_key, run_id) if name is not None]
    if len(names) != 1:
        raise JobDefinitionError(
            "Expected a run to be named by exactly one of logical_date, partition_key and run_id, found "
            f"logical_date={logical_date!r}, partition_key={partition_key!r}, run_id={run_id!r}: "
            f"{'leave out all but one' if names else 'give one, such as the logical_date of the context'}.",
            code="result-run-ambiguous",
        )
    date = None
    if logical_date is not None:
        date = checked_moment(logical_date, "RecoveryResultHook").in_timezone("UTC").isoformat()
    return run_key(logical_date=date, partition_key=partition_key, run_id=run_id or "")
