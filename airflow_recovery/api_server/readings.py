"""Read journals for the Recovery tab and the REST API, without Airflow.

The API server calls each function in a thread. For a large journal it calls the function in another process
(`airflow_recovery.api_server.reader_process`). Values of Airflow's database are arguments. The results are JSON.
"""

from __future__ import annotations

import hashlib
import marshal
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from airflow_recovery.attempt.task_instances import Observation, TaskTry
from airflow_recovery.errors import JournalError, NothingRecorded
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.sharded_listing import is_large, list_whole
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.places import Asker, ResultPlaces
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore
from airflow_recovery.story import what_if
from airflow_recovery.story.asked import AskedDag, AskedRun
from airflow_recovery.story.question import Question
from airflow_recovery.story.region_status import RegionStatus
from airflow_recovery.story.run_document import RunDocument, region_page, run_document
from airflow_recovery.story.run_lookup import groups_of
from airflow_recovery.story.run_view import RunView, view_run

_SEGMENTS = 2000
"""How many segments of event streams are listed to notice new events. A run with more has no history on the page."""


class LargeJournal(Exception):
    """The journals have more objects than one page of a listing. Another process must read them."""


@plain_dataclass(frozen=True)
class Tries:
    """The task instances of a run, packed. No bytes if the process has them from an earlier question.

    In the API server they become objects again for a small run only. The objects of a large run would live as long as
    its reading, and all threads would wait while the garbage collector looks through them. All threads would also wait
    for `pickle`, which packs them in one call; `marshal` takes a tenth of the time for plain values.
    """

    digest: bytes
    packed: bytes | None

    @classmethod
    def of(cls, observation: Observation) -> Tries:
        """Pack the task instances, in an order that does not depend on the database."""
        tries = observation.tries
        packed = marshal.dumps([tuple(vars(tries[key]).values()) for key in sorted(tries)])
        return cls(hashlib.sha256(packed).digest(), packed)

    def observation(self) -> Observation:
        """Return the task instances. There must be bytes."""
        assert self.packed is not None
        tries = [TaskTry(*values) for values in marshal.loads(self.packed)]
        return Observation({each.key: each for each in tries})


@plain_dataclass
class Kept:
    """The last run that a process has read, with the listing of its journal."""

    folder: str = ""
    listed_at: float = 0.0
    listed: tuple[ObjectInfo, ...] = ()
    version: str = ""
    view: RunView | None = None


@plain_dataclass
class Access:
    """The stores for one question.

    ``refuses_large``: raise `LargeJournal` for a large journal, and for many journals that are large together.
    ``kept``: a cache, for a process that answers several questions; listings from before ``asked_at``
    (`time.monotonic`) are not used. ``audit`` writes an action into Airflow's audit log; only functions that change a
    run call it.
    """

    journal: ObjectStore
    results: ObjectStore
    open_location: Callable[[str], ObjectStore]
    may_open: Callable[[str], bool]
    refuses_large: bool
    kept: Kept | None = None
    asked_at: float = 0.0
    audit: Callable[[Mapping[str, Any]], None] = lambda said: None
    objects: int = 0
    """How many objects of journals were listed so far."""

    def view(self, journal: Journal, listed: Sequence[ObjectInfo] | None = None) -> RunView:
        """Read the run of ``journal``. ``listed``: its objects, if the caller has just listed them."""
        objects = self.listed(journal) if listed is None else listed
        if self.kept is None:
            return view_run(journal, objects)
        version = version_of(journal, objects, Observation({}), journal.layout.prefix)
        if self.kept.view is None or self.kept.version != version:
            self.kept.view = None  # never hold two runs in memory
            self.kept.version, self.kept.view = version, view_run(journal, objects)
        return replace(self.kept.view, journal=journal)

    def listed(self, journal: Journal) -> Sequence[ObjectInfo]:
        """List all objects of the journal except heartbeats. Raises `LargeJournal`."""

        def regions() -> Iterable[str]:
            if self.refuses_large:
                raise LargeJournal
            return journal.recorded_regions()

        kept, folder = self.kept, journal.layout.prefix
        if kept is not None and kept.folder == folder and kept.listed_at >= self.asked_at:
            return kept.listed
        begun = time.monotonic()
        listed = tuple(list_whole(self.journal, journal.layout, regions))
        self.objects += len(listed)
        if self.refuses_large and is_large(self.objects):
            raise LargeJournal
        if kept is not None:
            kept.folder, kept.listed_at, kept.listed = folder, begun, listed
        return listed

    def view_of(self, dag_id: str, run_key: str, group_id: str | None) -> RunView:
        """One group of a run, read once. Raises as `journal_of`."""
        return self.view(self.journal_of(dag_id, run_key, group_id))

    def journal_of(self, dag_id: str, run_key: str, group_id: str | None) -> Journal:
        """Return the journal of a group of the run, as the function `journal_of` does."""
        return journal_of(self.journal, dag_id, run_key, group_id, groups_of(self.journal, dag_id, run_key))


def journal_of(store: ObjectStore, dag_id: str, run_key: str, group_id: str | None, groups: list[str]) -> Journal:
    """The journal of one of the ``groups`` of a run; the first, where none is named. Raises `NothingRecorded`."""
    if not groups:
        raise NothingRecorded(
            f"Nothing is recorded of run {run_key} of DAG {dag_id!r}: no region has begun.", code="run-has-not-begun"
        )
    if group_id is not None and group_id not in groups:
        raise NothingRecorded(f"Run {run_key} of DAG {dag_id!r} has no group {group_id!r}. It has {', '.join(groups)}.")
    return Journal(store, RunIdentity(dag_id, run_key, group_id or groups[0]), writer=uuid.uuid4().hex)


def version_of(journal: Journal, listed: Iterable[ObjectInfo], observation: Observation, *more: str | None) -> str:
    """Return a version that changes if anything that a page shows changes. Changes of caches do not change it.

    ``listed``: all objects of the journal but heartbeats.
    """
    digest = hashlib.sha256(repr(more).encode())
    for info in listed:
        if info.key != journal.layout.snapshot:
            digest.update(f"{info.key} {info.etag}\n".encode())
    for key, task in sorted(observation.tries.items()):
        digest.update(f"{key} {task.ti_id} {task.state}\n".encode())
    return digest.hexdigest()[:32]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def as_json(answer: Any, kind: Any = None) -> bytes:
    """Return the answer as JSON. ``kind``: its type, if that is not its class."""
    wanted: Any = kind or type(answer)
    written: bytes = _adapter(wanted).dump_json(answer, by_alias=True)
    return written


# --- a run -----------------------------------------------------------------------------------------------------------


@plain_dataclass(frozen=True)
class RunRead:
    """A `RunDocument` as JSON, and its version. No document if the caller knows this version."""

    version: str
    document: bytes | None


def read_run(
    access: Access,
    *,
    dag_id: str,
    run_id: str,
    run_key: str,
    run_state: str | None,
    group: str | None,
    observation: Observation,
    known: str | None,
) -> RunRead:
    """Read a whole run. ``known``: the version of the document that the caller has."""
    groups = groups_of(access.journal, dag_id, run_key)
    journal = journal_of(access.journal, dag_id, run_key, group, groups)
    listed = access.listed(journal)
    streams = islice(access.journal.list(journal.layout.streams), _SEGMENTS)
    version = version_of(journal, (*listed, *streams), observation, run_state, *groups)
    if version == known:
        return RunRead(version, None)
    others = tuple(each for each in groups if each != journal.identity.group_id)
    view = access.view(journal, listed)
    document = run_document(view, run_id=run_id, run_state=run_state, observation=observation, others=others)
    return RunRead(version, as_json(document, RunDocument))


def read_regions(  # noqa: PLR0913 - a parameter each
    access: Access,
    *,
    dag_id: str,
    run_key: str,
    group: str | None,
    observation: Observation,
    of: str | None,
    status: RegionStatus | None,
    search: str,
    offset: int,
    limit: int,
) -> bytes:
    """Read one page of the regions of a run."""
    view = access.view_of(dag_id, run_key, group)
    return as_json(region_page(view, observation, of=of, status=status, search=search, offset=offset, limit=limit))


def read_answer(
    access: Access,
    *,
    question: Question,
    dag_id: str,
    group: str | None,
    arguments: Mapping[str, Any],
    run_key: str | None = None,
) -> bytes:
    """Ask a question about a run or, without ``run_key``, about the runs of a DAG."""
    asked: Any
    if run_key is None:
        asked = AskedDag(access.journal, dag_id, group, access.view)
    else:
        journal = access.journal_of(dag_id, run_key, group)
        if question.shape.reads is RunView:
            asked = access.view(journal)
        else:
            asked = AskedRun(journal, access.results)
            if access.refuses_large:
                access.listed(journal)
    return as_json(question.ask(asked, dict(arguments)))


# --- the runs of a DAG -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupSummary:
    """One group of a run. ``problem``: why its journal could not be read; then the rest is empty."""

    group_id: str
    statuses: dict[str, int]
    regions: int
    seconds_saved: float
    problem: str | None = None


@dataclass(frozen=True)
class RunSummary:
    """One run. No groups: nothing of it is recorded."""

    run_id: str
    run_key: str
    state: str | None
    run_after: str | None
    groups: list[GroupSummary]


@dataclass(frozen=True)
class RunsAnswer:
    """The newest runs of a DAG, the newest first."""

    dag_id: str
    runs: list[RunSummary]


@plain_dataclass(frozen=True)
class KnownRun:
    """A run as Airflow has it, with its task instances."""

    run_id: str
    run_key: str
    state: str | None
    run_after: str | None
    tries: Tries


def read_runs(access: Access, *, dag_id: str, runs: Sequence[KnownRun]) -> bytes:
    """Count the regions of each run by status. For a run that can't be read, report why."""
    summaries = []
    for run in runs:
        groups = groups_of(access.journal, dag_id, run.run_key)
        found = [_group(access, dag_id, run, group, groups) for group in groups]
        summaries.append(RunSummary(run.run_id, run.run_key, run.state, run.run_after, found))
    return as_json(RunsAnswer(dag_id, summaries))


def _group(access: Access, dag_id: str, run: KnownRun, group: str, groups: list[str]) -> GroupSummary:
    try:
        view = access.view(journal_of(access.journal, dag_id, run.run_key, group, groups))
        observation = run.tries.observation()
        document = run_document(view, run_id=run.run_id, run_state=run.state, observation=observation)
    except JournalError as error:
        # The other groups may be readable. Errors of the store concern all groups, so they are raised.
        return GroupSummary(group, {}, 0, 0.0, " ".join(str(error).split()))
    return GroupSummary(group, document.statuses, sum(document.statuses.values()), document.saved.seconds_saved)


# --- where results lie -----------------------------------------------------------------------------------------------


def places_of(access: Access, view: RunView) -> ResultPlaces:
    """Where the API server looks for results of a run: where a plan of the run has them, and nowhere else."""
    base, identity = access.results.base_uri, view.journal.identity
    return ResultPlaces.of(base, identity, Asker.API_SERVER, view.in_use.recorded, access.may_open)


def evaluation_of(access: Access, view: RunView) -> Evaluation:
    """Evaluate the run for one plan. Assumes that cached results exist: only tasks can query their Spark server."""
    return what_if.evaluate_run(view, places_of(access, view), access.open_location, lambda manifest: None)
