"""Results of other DAGs as inputs of a task: looked up at each try, and looked at again before its finish."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_recovery.errors import InputReleased, JobDefinitionError, NotPublished
from airflow_recovery.hooks.result import result_run_key
from airflow_recovery.job.templates import checked_moment
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.published import PublishedResult, published_result
from airflow_recovery.locations import PublishedLocation
from airflow_recovery.model.records import ExternalObject, RunIdentity

if TYPE_CHECKING:
    from airflow_recovery.hooks.stores import Stores
    from airflow_recovery.model.manifest import PartitionManifest


@dataclass(frozen=True)
class PublishedInput:
    """One published result: as an external input, and where it is."""

    external: ExternalObject
    result: PublishedResult
    journal: Journal

    def folder(self, where: str) -> PartitionManifest:
        """Its manifest, whose folder or table a job can be given. Raises `JobDefinitionError` for one of many parts."""
        if not self.result.is_one_folder:
            raise JobDefinitionError(
                f"{where}: expected a result that lies in one folder, found {len(self.result.manifests)} parts of "
                f"{self.result.region}, beside files that are none of it. Read exactly the files of "
                "RecoveryResultHook().get_result(...), or publish it as one result"
            )
        return self.result.manifests[0]

    def ensure_kept(self, where: str) -> None:
        """Raise `InputReleased` if its data may have gone while it was read, and `NotPublished` if it was withdrawn."""
        state = self.journal.list(ref.region for ref in self.result.read).state
        for ref in self.result.read:
            attempt = state.of(ref.region).attempts.get(ref.attempt)
            if state.of(ref.region).may_be_gone(ref.attempt):
                raise InputReleased(
                    f"{where}: {ref.region}@{ref.attempt} of {self.journal.identity.dag_id} was released while it was "
                    "read: the application may have read a part of it. The next try reads what is published then.",
                    code="published-released",
                )
            if attempt is not None and attempt.is_withdrawn:
                raise NotPublished(
                    f"{where}: {ref.region}@{ref.attempt} of {self.journal.identity.dag_id} was withdrawn while it was "
                    "read. The next try reads what is published then."
                )


def look_up(stores: Stores, uri: str, vertex: str) -> PublishedInput:
    """What is published now of ``uri``, the rendered text of `airflow_recovery.published`, for ``vertex``.

    Raises `NotPublished` with the reason, and the store's errors.
    """
    location = PublishedLocation.parse(uri)
    key, run = location.run_key, location
    if key is None:
        date = location.logical_date
        if date is not None:
            date = (checked_moment(date, vertex) - timedelta(seconds=location.before_s)).isoformat()
        key = result_run_key(logical_date=date, partition_key=location.partition_key, run_id=location.run_id)
        run = replace(location, before_s=0.0, logical_date=None, partition_key=None, run_id=None, run_key=key)
    identity = RunIdentity(location.dag_id, key, location.group_id)
    journal = Journal(stores.journal, identity, writer=uuid.uuid4().hex)
    result = published_result(journal, location.result)
    return PublishedInput(result.external(vertex, run.uri), result, journal)
