"""Runs a job of the user's own as one attempt, by spark-submit say, and registers what it has written."""

from __future__ import annotations

import os
import re
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.exceptions import AirflowSkipException

from airflow_recovery.attempt.application import ApplicationStatus, ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.heartbeat_watch import beat_of
from airflow_recovery.attempt.inputs_kept import ensure_inputs_kept
from airflow_recovery.checks import check_no_address
from airflow_recovery.driver.failure import MAX_MESSAGE_CHARACTERS, raised_in
from airflow_recovery.driver.failure_class import ERRORS, classify, read_advice
from airflow_recovery.driver.fencing import FenceWatch, is_fenced
from airflow_recovery.driver.heartbeat import Heartbeat, interval_s
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.driver.start_advice import exit_first, output_of, start_failure
from airflow_recovery.driver.submit_keeper import Order
from airflow_recovery.errors import (
    AttemptLost,
    Failure,
    InputReleased,
    JobDefinitionError,
    NotPublished,
    NotSetUp,
    ObjectMissing,
    OutputAltered,
    Overtaken,
    RegionFailed,
    StoreError,
    UserCodeError,
)
from airflow_recovery.hooks.result import NOT_PUBLISHED, READ_BY_HOOK, reads_recorded
from airflow_recovery.hooks.sinks import AirflowSinkResources
from airflow_recovery.hooks.tables import tables_of
from airflow_recovery.job.bound_values import is_path
from airflow_recovery.job.fingerprint import sink_code
from airflow_recovery.job.row_settings import (
    all_settings,
    other_configuration,
    settings_files,
    settings_of,
    unread_settings,
)
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.locations import (
    VERSION,
    AssetLocation,
    MetastoreTable,
    TableLocation,
    comparable,
    is_asset,
    is_in_metastore,
    is_published,
    is_stated,
    is_table,
    is_version,
    name_of,
)
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Claim, ExternalObject, Outcome, ReadMetrics, StoredXComs
from airflow_recovery.results.availability import probe_manifest
from airflow_recovery.results.finished_write import SUCCESS
from airflow_recovery.results.output_digest import digest_output, import_readers
from airflow_recovery.results.prober import OnAltered, cure_of_altered
from airflow_recovery.results.table_line import OwnCommits
from airflow_recovery.results.tables import DELTA_USER_METADATA, ICEBERG_SETTING, Tables, check_names, tag_of, token_of
from airflow_recovery.task.application_code import ApplicationCode, is_local
from airflow_recovery.task.asset_input import last_event, recorded, triggered_by
from airflow_recovery.task.code_places import Place, places_of_settings, places_of_submit, value_in
from airflow_recovery.task.committed_output import check_prepared
from airflow_recovery.task.driver_pod import PodFailed
from airflow_recovery.task.externals import RESTORE, Unreadable, list_external, version_input
from airflow_recovery.task.finished_output import FinishedOutputs, all_in, spark_writes_success
from airflow_recovery.task.left_in_airflow import (
    LeftInAirflow,
    read_left,
    read_pushed,
    recording,
    set_events,
    store_left,
    store_pushed,
)
from airflow_recovery.task.metastore_input import metastore_input
from airflow_recovery.task.operator_components import UNSEEN
from airflow_recovery.task.outliving_job import key_of
from airflow_recovery.task.published_input import PublishedInput, look_up
from airflow_recovery.task.references import (
    ALL,
    DropIn,
    OutputReference,
    check_read_and_written,
    filled,
    no_version,
    place_of,
    placeholders,
    qualified,
)
from airflow_recovery.task.spark_submission import Keeping, SparkSubmission, described

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import Context

    from airflow_recovery.task.open_run import OpenRun

_MOST_NAMED = 5
_MOST_PATH = 1024
_ENDED_BY_ITSELF = re.compile(r"(?:Error code is:|[Ee]xit ?[Cc]ode:?|exited with status) 1\b")
_HAS_BEGUN = re.compile(r"Submitted application\b|phase: Running|state: RUNNING")
"""What Spark's context logs when it begins; in cluster mode, that a driver runs."""
_OTHER_CHECKPOINT = re.compile(r"BATCH_METADATA_NOT_FOUND|_spark_metadata/\S+ doesn't exist")


def application_document(
    operator: SparkSubmitOperator, drop_in: DropIn, code: ApplicationCode | None = None
) -> dict[str, Any]:
    """What the application computes, as far as it can be told: its code and files, its arguments, its data's names.

    ``code``: each file that spark-submit would load by what is given, with the modules beside a Python application
    (`code_document`); ``java_class``; the arguments as rendered, before the placeholders are filled; where the output
    is committed. Settings of ``conf`` and of a properties file on this machine count, but for those that do not change
    rows (`airflow_recovery.job.row_settings`). ``env_vars`` do not count: they may hold secrets that rotate.
    """
    if not operator.application:
        raise JobDefinitionError(f"{drop_in.task_id}: expected an application, found none.")
    description = described(operator)
    code = code or ApplicationCode(operator)
    code.watch_settings(settings_files(operator), lambda: settings_of(operator))
    arguments = [str(argument) for argument in operator.application_args or ()]
    document = {
        "code": code_document(code, places_of_submit(description, all_settings(operator), arguments))
        + code_document(code, places_of_configuration(operator)),
        "java_class": description["java_class"],
        "arguments": arguments,
        **({"files": files} if (files := _files_told(operator, code)) else {}),
        **{name.strip("_"): text for name in _OF_PACKAGES if (text := getattr(operator, name, None))},
        **({"settings": settings} if (settings := settings_document(operator, code)) else {}),
    }
    check_no_address(document["arguments"], f"{drop_in.task_id}, application_args")
    return drop_in_document(document, drop_in, code)


_OF_PACKAGES = ("exclude_packages", "_repositories")
"""Options that decide which jars ``packages`` brings."""


def _files_told(operator: SparkSubmitOperator, code: ApplicationCode) -> list[str]:
    """The digests of files of this machine that its arguments name.

    By their path: from the application's folder, or from the one in which spark-submit runs.
    """
    folders = (os.path.dirname(str(operator.application).removeprefix("file:")), "")
    texts = [value_in(str(argument)) for argument in operator.application_args or ()]
    texts = [text for text in texts if text and "{" not in text and "\n" not in text and len(text) <= _MOST_PATH]
    paths = [[text] if text.startswith("file:/") else [os.path.join(each, text) for each in folders] for text in texts]
    named = dict.fromkeys(path for each in paths for path in each if is_local(path))
    return [digest for path in named if (digest := code.file_digest(path)) != path]


def settings_document(operator: object, code: ApplicationCode) -> dict[str, Any]:
    """The settings that may change rows. One of your own that is the path of a file counts by its content as well.

    A file of Hadoop's or Hive's properties that can't be read is unseen.
    """

    def described(name: str, value: str) -> Any:
        digest = code.file_digest(value) if is_path(value) and not places_of_settings({name: value}) else value
        return value if digest == value else [value, digest]

    unread = {path.name: {UNSEEN: True, "value": str(path)} for path in unread_settings(operator)}
    return {**{name: described(name, value) for name, value in settings_of(operator).items()}, **unread}


def places_of_configuration(operator: object) -> list[Place]:
    """The files of configuration that spark-submit puts on the class path of a driver."""
    return [Place("configuration", str(path)) for path in other_configuration(operator)]


def code_document(code: ApplicationCode, places: Iterable[Place]) -> list[list[Any]]:
    """The code's components: name, what stands for the content, and whether the content was seen."""
    return [[component.name, component.value, component.seen] for component in code.components(places)]


def drop_in_document(job: Mapping[str, Any], drop_in: DropIn, code: ApplicationCode) -> dict[str, Any]:
    """What ``job`` says that is computed, and the names of its data. Of a version its text is data, as files are."""
    of_sink = sink_code(drop_in.commit, code.found) if drop_in.commit else []
    named = code.watch_found()
    return {
        **job,
        **({"named_files": named} if named else {}),
        "outputs": sorted((name, uri or "") for name, uri in drop_in.outputs.items()),
        "inputs": sorted(
            (
                name,
                f"{read.task_id}/{read.name}"
                if isinstance(read, OutputReference)
                else (VERSION if is_version(read) else read),
            )
            for name, read in drop_in.inputs.items()
        ),
        **({"commit": asdict(drop_in.commit_spec)} if drop_in.commit_spec else {}),
        **({"commit_code": of_sink} if of_sink else {}),
    }


class DropInApplication(SparkApplication):
    """A drop-in operator's job. It knows nothing of attempts: its task registers its outputs, and finishes.

    One that outlives its task and was started with other code or other external inputs than today's is not waited for.
    Where its operator does not recover, its placeholders are filled, and the rest is the job alone. Subclasses say how
    it is started, watched and stopped.
    """

    def __init__(self, drop_in: DropIn, opened: OpenRun, context: Context) -> None:
        self._drop_in = drop_in
        self._run = opened.run
        self._stores = opened.stores
        self._context = context
        self._identity = opened.run.journal.identity
        self._earlier: list[PartitionManifest] = []
        self._left: LeftInAirflow | None = None
        self.returned: Any = None
        """What the operator has returned, in this try or in the one that is kept."""
        self.code = ApplicationCode()
        """What its fingerprint was made from."""
        self.made = ""
        """The files that an argument names and that were made while the job ran, in words for the note."""
        self.declared_now: Callable[[], str | None] = lambda: None
        """What the DAG declares of the operator, with the files of this machine as they are then."""
        self._look: threading.Thread | None = None
        """Looks whether the code was replaced, as soon as the job may have loaded it."""
        self._replaced: list[str] = []
        self._has_loaded = False
        self._signs: Heartbeat | None = None
        self._published: dict[tuple[str, str], PublishedInput] = {}
        self._unreadable: dict[str, Unreadable] = {}
        self._listed: dict[str, tuple[ExternalObject, ...]] = {}
        self._finished = FinishedOutputs(drop_in, opened.stores, self._writes_success, opened.run.log)

    @abstractmethod
    def new_job(self, attempt: ClaimedAttempt) -> Any:
        """What ``attempt`` is to start, and no other attempt has."""

    @abstractmethod
    def fill(self, job: Any, locations: Mapping[tuple[str, str], str]) -> None:
        """Replace the placeholders of ``job``. Raises `JobDefinitionError` for one that stands for nothing."""

    @abstractmethod
    def submit(self, job: Any, name: str) -> Any:
        """Start ``job``, and wait for its end. Returns what its operator returns. Raises where it failed.

        No other attempt has that ``name``.
        """

    def externals(self) -> tuple[ExternalObject, ...]:
        """The objects at the URIs among the inputs, as they are now; none where nobody would compare them.

        Of a table the one snapshot that is to be read: the newest, or, of one that the operator itself writes, the one
        before its own commits.
        """
        if not self._drop_in.recovers:
            return ()
        externals: list[ExternalObject] = []
        for name, declared in self._drop_in.inputs.items():
            if is_published(declared):
                externals.append(self._look_up(declared, name).external)
            elif is_table(declared):
                externals.append(self._snapshot_read(declared, name))
            elif is_stated(declared):
                externals.append(self._stated(declared, name))
            elif isinstance(declared, str):
                unreadable = self._unreadable[name] = Unreadable()
                listed = list_external(self._stores, declared, name, reads_tables=True, unreadable=unreadable)
                self._listed[name] = listed
                externals += listed
        for read in externals:
            if is_stated(read.uri):
                self._run.log.info("Input %s: %s.", name_of(read.vertex, read.uri), read.etag)
        return tuple(externals)

    def _stated(self, declared: str, name: str) -> ExternalObject:
        """An input for whose state a text stands, as it is now."""
        if is_in_metastore(declared):
            return metastore_input(self._stores, declared, name)
        if is_version(declared):
            where = f"{self._drop_in.task_id}: input {name!r}"
            return version_input(name, name, declared.removeprefix(VERSION), where)
        text = triggered_by(self._context, AssetLocation.parse(declared))
        if text is not None:
            return ExternalObject(name, declared, 0, text)
        # One run reads one event, whatever comes later, and also when Airflow has deleted the event.
        before = recorded(self._claims(), name, declared) if self._drop_in.recovers else None
        return before or ExternalObject(name, declared, 0, last_event(AssetLocation.parse(declared)))

    def _claims(self) -> Iterator[Claim]:
        """The claims of this task's attempts, the oldest first."""
        region = self._drop_in.task_id
        attempts = self._run.load([region]).of(region).attempts
        return (
            self._run.journal.read_claim(region, number) for number in sorted(attempts) if attempts[number].is_claimed
        )

    def _snapshot_read(self, uri: str, name: str) -> ExternalObject:
        if name not in self._pinned:
            return self._tables.external(uri, name)
        external, own = self._tables.before_own(uri, name, self._region_key)
        if own.base is None:
            return self._recorded(external, own) or external
        return external

    def _recorded(self, today: ExternalObject, own: OwnCommits) -> ExternalObject | None:
        """What an attempt has recorded of its input, whose commit the table has, while what was before is expired."""
        attempts = self._run.load([self._drop_in.task_id]).of(self._drop_in.task_id).attempts.values()
        versions = {commit.version for commit in own.own}
        for attempt in sorted((one for one in attempts if one.is_finished), key=lambda one: -one.number):
            assert attempt.outcome is not None
            made = (output for output in attempt.outcome.outputs if is_table(output.location))
            if any(output.objects[0].path in versions for output in made):
                read = [one for one in attempt.outcome.externals if (one.vertex, one.uri) == (today.vertex, today.uri)]
                return read[0] if read else None
        return None

    def found_again(self, outcome: Outcome) -> tuple[ExternalObject, ...]:
        """What `RecoveryResultHook` has handed out to the attempt's function, as it is now."""
        return tuple(self._again(read) for read in outcome.externals if read.vertex == READ_BY_HOOK)

    def _again(self, read: ExternalObject) -> ExternalObject:
        try:
            return self._look_up(read.uri, READ_BY_HOOK).external
        except NotPublished:
            return ExternalObject(READ_BY_HOOK, read.uri, 0, NOT_PUBLISHED)

    def _look_up(self, uri: str, name: str) -> PublishedInput:
        """Once a try: what is compared is what is claimed, and told to the job."""
        if (uri, name) not in self._published:
            self._published[uri, name] = look_up(self._stores, uri, name)
        return self._published[uri, name]

    def before_claim(self, state: RunState) -> None:
        """Raises `OutputAltered` where running again would overwrite data at a fixed URI that nobody registered.

        Not where an attempt has been claimed since the last finish: what lies there may be its unfinished work.
        The same where others have committed to a table that the operator reads and writes, or where the version before
        its own commits can't be read. `JobDefinitionError` where it reads a folder in which it writes. `InputDenied`
        and `NotPublished` for an input that can't be read.
        """
        super().before_claim(state)
        drop_in = self._drop_in
        self._check_tables(state)
        self._check_apart()
        self._check_readable()
        for name in sorted(self._pinned):
            self._check_pinned(name, state)
        self._earlier = _outputs_by_age(state.of(drop_in.task_id))
        if drop_in.on_altered is OnAltered.RECOMPUTE:
            return
        last = _last_finish(state.of(drop_in.task_id))
        if last is None:
            return
        targets = {comparable(uri) for uri in drop_in.outputs.values() if uri is not None}
        for manifest in last.outputs:
            if manifest.managed or is_table(manifest.location) or comparable(manifest.location) not in targets:
                continue
            availability = probe_manifest(self._stores.open_external(manifest.location), manifest)
            if availability.altered or availability.added:
                raise OutputAltered(
                    f"{drop_in.task_id} must run again, and {manifest.location} is not as attempt "
                    f"{last.attempt} left it ({availability.evidence[0]}): it may hold newer data, so it is not "
                    f"overwritten. {cure_of_altered(manifest.location)}"
                )

    def _check_readable(self) -> None:
        """Raise `InputDenied` if each file of an input is archived. Warn if some are: the job may leave them out.

        Raise `NotPublished` if the data of a published result can't be read.
        """
        for name, listed in self._listed.items():
            unreadable, where = self._unreadable[name], f"{self._drop_in.task_id}: input {name!r}"
            found = [read.uri for read in listed if read.uri in unreadable.archived]
            if len(found) == len(listed):
                unreadable.check(where, found)
            elif found:
                self._run.log.warning(
                    "%s: %s. If the job reads them, it fails. %s", where, unreadable.text(found), RESTORE
                )
        for (_, name), published in self._published.items():
            if name in self._drop_in.inputs:
                read = Unreadable(published={name: published.result.manifests})
                read.check_published(f"{self._drop_in.task_id}: input {name!r}", self._stores)

    def _check_tables(self, state: RunState) -> None:
        """Raises `JobDefinitionError` where a table of the DAG has two names, and as `Tables.open`."""
        drop_in = self._drop_in
        target = None if drop_in.commit is None else drop_in.commit.table_uri()
        uris = [*drop_in.tables.values(), *(read for read in drop_in.inputs.values() if is_table(read))]
        if target is not None and uris:
            uris.append(TableLocation.parse(target).uri)
        if not uris or not drop_in.recovers:
            return
        opened = [(str(uri), table.id) for uri in uris if (table := self._tables.open(str(uri))) is not None]
        check_names(opened, state)

    def _check_apart(self) -> None:
        """As `check_read_and_written`, with what is known in the run alone: our own folder, and those of Iceberg."""
        drop_in, folders = self._drop_in, self._folders
        written: dict[str, str | None] = {name: uri for name, uri in drop_in.outputs.items() if uri is not None}
        target = None if drop_in.commit is None else drop_in.commit.table_uri()
        if target is not None:
            written["commit="] = target
        read = {name: uri for name, uri in drop_in.inputs.items() if isinstance(uri, str)}
        of_iceberg = {name: folders[uri] for name, uri in written.items() if uri in folders}
        if len(written) < len(drop_in.outputs) + (target is not None):
            of_iceberg["managed"] = f"{self._stores.results.base_uri}/{self._all_attempts}"
        for inputs, outputs in (
            ({name: uri for name, uri in read.items() if uri not in folders}, of_iceberg),
            (
                {name: folders[uri] for name, uri in read.items() if uri in folders},
                {name: uri for name, uri in written.items() if uri not in folders},
            ),
        ):
            check_read_and_written(drop_in.task_id, inputs, outputs, None, {}, is_rendered=True)

    @cached_property
    def _folders(self) -> dict[str, str]:
        """Where the Iceberg tables that are read or written have their files, by location."""
        drop_in = self._drop_in
        target = None if drop_in.commit is None else drop_in.commit.table_uri()
        uris = {uri for uri in (*drop_in.tables.values(), *drop_in.inputs.values(), target) if is_table(uri)}
        of_iceberg = {uri for uri in uris if TableLocation.parse(uri).is_iceberg} if drop_in.recovers else set()
        has_folders = any(
            isinstance(uri, str) and not is_table(uri) for uri in (*drop_in.inputs.values(), *drop_in.outputs.values())
        )
        opened = {uri: self._tables.open(uri) for uri in of_iceberg} if has_folders else {}
        return {uri: table.folder for uri, table in opened.items() if table is not None}

    def _check_pinned(self, name: str, state: RunState) -> None:
        drop_in, uri = self._drop_in, str(self._drop_in.inputs[name])
        external, own = self._tables.before_own(uri, name, self._region_key)
        base = own.base
        forgotten = sorted(
            output.objects[0].path
            for output in _outputs_by_age(state.of(drop_in.task_id))
            if is_table(output.location)
            and place_of(output.location, resolve=True) == place_of(uri, resolve=True)
            and output.objects[0].etag == external.etag.rpartition("@")[0]
            and own.line.may_have_forgotten(output.objects[0].path)
        )
        if forgotten or not base:
            raise OutputAltered(
                f"{drop_in.task_id} must run again, and reads and writes {uri}: expected the table to know the version "
                f"before this task's own commits, found that its history does not go back to "
                f"{f'version {forgotten[0]}' if forgotten else 'it'}, which may be a part of the table. Nothing was "
                "run, for it might apply itself a second time. Bring the table into the state before this task, by a "
                "commit of your own, and declare the input with as_of= that version",
                code="table-version-forgotten",
            )
        if own.others:
            raise OutputAltered(self._others_committed(uri, base, own.others), code="table-committed-by-others")
        unreadable = self._tables.why_unreadable(uri, base) if own.own else None
        if unreadable is not None:
            raise OutputAltered(
                f"{drop_in.task_id} must run again, and reads and writes {uri}: expected to read version {base}, the "
                f"one before this task's own commits, found that it can't be read: {unreadable}. Nothing was run, for "
                "it would apply itself a second time. Bring the table into the state before this task, by a commit of "
                "your own, and declare the input with as_of= that version",
                code="table-version-unreadable",
            )

    def _others_committed(self, uri: str, base: str, others: Sequence[str]) -> str:
        return (
            f"{self._drop_in.task_id} reads and writes {uri}, at version {base}: expected no commit by others after "
            f"it, found {_some(others)}. This task would replace their "
            "rows. So it does not go on. If they are to stay, leave this task as it is. If this task is to run again, "
            f"restore the table to version {base}, which undoes those commits as well; clear this task, and then the "
            "tasks that made them, in their order. Dates that update one table one after the other want "
            "max_active_runs=1"
        )

    @cached_property
    def _pinned(self) -> frozenset[str]:
        """Without recovery a second try reads what is newest, as it does in Airflow."""
        return self._drop_in.pinned if self._drop_in.recovers else frozenset()

    @cached_property
    def _region_key(self) -> RegionKey:
        return RegionKey.of(self._identity, self._drop_in.task_id)

    @property
    def _all_attempts(self) -> str:
        """The folder of all attempts, below that of the results."""
        return JournalLayout(self._identity).data_of_region(self._drop_in.task_id)

    @cached_property
    def _tables(self) -> Tables:
        return tables_of(self._stores)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Start it with the placeholders filled; then register every output and finish the attempt."""
        claim = attempt.claim
        job = self.new_job(attempt)
        self.fill(job, self._locations(attempt))
        if self._drop_in.allow_duplicates and claim.attempt > 1:
            self._run.log.warning(
                "Attempt %d: what it appends, an earlier attempt may have appended already (allow_duplicates).",
                claim.attempt,
            )
        if self._drop_in.read_limits is not None and any(map(self._is_digested, self._drop_in.outputs)):
            threading.Thread(target=import_readers, name="import pyarrow", daemon=True).start()
        self._finished.look_before()
        started = time.monotonic()
        left = LeftInAirflow()
        try:
            rests_on = _rests_on(attempt.fingerprint, attempt.externals, self.code)
            if self.can_be_asked:
                self._context["task_state_store"].set(_rests_on_key(claim), rests_on)
            signs = nullcontext() if self.can_be_asked else self._heartbeat(claim, rests_on)
            pushed = partial(self._keep_pushed, claim, left)
            with reads_recorded() as found, signs as self._signs, recording(self._context, left, pushed):
                self.returned = self.submit(job, claim.tag)
        except AttemptLost:
            self._delete_managed(claim)
            raise
        except AirflowSkipException:
            raise
        except Exception as error:
            self._check_code(claim, error)
            if isinstance(error, (UserCodeError, NotSetUp)):
                raise  # the job itself says that a retry is in vain
            # What is known of a job of the user's own: the exception that it has ended with, or spark-submit's exit.
            failure = start_failure(error)
            if failure is not None:
                could_not = f"{claim.region}@{claim.attempt} could not start: {failure.message}"
                raise ERRORS[classify(failure)](could_not, failure) from error
            failure = _own_exception(error)
            told = exit_first(error) if failure is None else f"{failure.type}: {failure.message}"
            if failure is not None and isinstance(error, PodFailed):
                told += f"\nThe driver's pod: {error}"
            failure = failure or Failure(type(error).__name__, told[:MAX_MESSAGE_CHARACTERS])
            message = f"{claim.region}@{claim.attempt}: the application failed: {told}"
            with suppress(StoreError):
                self._ensure_as_claimed(attempt)
            advice = self._advice_on_checkpoints("\n".join([str(error), *output_of(error)]))
            if advice:
                raise UserCodeError(f"{message}. {advice}", failure) from error
            to_mend = read_advice(failure)
            message = message if to_mend is None else f"{message}. {to_mend}"
            raise ERRORS[classify(failure)](message, failure) from error
        return self._finish(attempt, round(time.monotonic() - started, 3), left, tuple(found))

    def look_at_code(self, *, has_loaded: bool) -> None:
        """Look in a thread whether the code was replaced since the try began, and end the job if it was.

        ``has_loaded``: the job has loaded its application, which is not looked at again then.
        """
        if self._look is None:
            self._has_loaded = has_loaded
            self._look = threading.Thread(target=self._end_if_replaced, name="code", daemon=True)
            self._look.start()

    def _end_if_replaced(self) -> None:
        self._replaced, is_complete = self.code.look_early()
        self._has_loaded = self._has_loaded and is_complete
        if self._replaced:
            self.stop()

    def _check_code(self, claim: Claim, error: Exception | None = None) -> None:
        """Raise `CodeReplaced` if the code was replaced before the job had loaded it."""
        if self._look is not None:
            self._look.join()
        self.code.check_same(f"{claim.region}@{claim.attempt}", self._replaced, lazy=self._has_loaded, cause=error)

    def _keep_pushed(self, claim: Claim, left: LeftInAirflow) -> None:
        """If another try can find the job again, it needs what this one has pushed."""
        if self.can_be_asked:
            digest = store_pushed(self._stores.results, self._below(claim), left)
            journal = self._run.journal
            journal.store.put(journal.layout.pushed(claim.region, claim.attempt), digest.encode())

    def _pushed(self, claim: Claim) -> LeftInAirflow:
        journal = self._run.journal
        digest = ""
        with suppress(ObjectMissing):
            digest = journal.store.get(journal.layout.pushed(claim.region, claim.attempt)).body.decode(errors="replace")
        return read_pushed(self._stores.results, self._below(claim), digest)

    def _advice_on_checkpoints(self, text: str) -> str:
        """Spark's file sink has met a checkpoint that knows batches which are not in the attempt's folder."""
        managed = [name for name, uri in self._drop_in.outputs.items() if uri is None]
        if not managed or not _OTHER_CHECKPOINT.search(text):
            return ""
        return (
            "The checkpoint of its stream is one of an earlier attempt, and the output is a new folder. Give the query "
            f"{{checkpoint:{managed[0]}}} as its checkpoint, a folder of the same attempt; or give the output a URI of "
            "its own, which the checkpoint belongs to"
        )

    def status(self, claim: Claim) -> ApplicationStatus:
        """What is known of its job; `ApplicationStatus.OVER` where its result would not be used."""
        if not self._is_as_today(claim):
            return ApplicationStatus.OVER
        return super().status(claim)

    def finish_previous(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Register what the application of an earlier try has written, and finish its attempt.

        What that try had pushed is stored. What its operator would have pushed at the job's end, it pushes now. `None`
        where a heartbeat alone tells of its success, and not that it was started with today's code and inputs.
        """
        if not self.can_be_asked and self._submitted_with(attempt.claim) != self._rests_on_today:
            return None
        left = self._pushed(attempt.claim)
        try:
            with recording(self._context, left):
                self.returned = self.end_previous(attempt.claim.tag)
        except Exception as error:
            left.unfit = f"an earlier try was lost, and what its operator returns could not be asked: {error}"[:200]
        return self._finish(attempt, None, left)

    def end_previous(self, name: str) -> Any:
        """Do what the operator does once the job of that ``name`` has succeeded. Returns what it returns."""
        del name

    def why_not_kept(self, outcome: Outcome) -> str | None:
        """Why what the attempt of ``outcome`` has left in Airflow can't be left there again; `None`: it can."""
        if outcome.xcoms is None:
            return None
        region = JournalLayout(self._identity).data_of_region(outcome.region)
        folder = f"{region}/{outcome.xcoms.folder or f'{outcome.attempt:08d}'}"
        left = read_left(self._stores.results, folder, outcome.xcoms)
        if isinstance(left, str):
            return left
        self._left = left
        return None

    def leave_again(self) -> None:
        """Leave in Airflow what the kept attempt has left there: its XComs, and what its asset events carry."""
        if self._left is None:
            return
        pushed, self.returned = self._left.values()
        for key, value in pushed.items():
            self._context["ti"].xcom_push(key=key, value=value)
        set_events(self._context, self._left.events)

    def _is_as_today(self, claim: Claim) -> bool:
        """Whether its job was started with today's code and inputs.

        A job may be found again though Airflow has lost what it was started with: the pod of an attempt is called by
        the claim's tag. Such a job may run other code, so its result is not used. Of a job that can't be asked about,
        `finish_previous` decides.
        """
        submitted = self._submitted_with(claim)
        return submitted == self._rests_on_today or (submitted is None and not self.can_be_asked)

    def _submitted_with(self, claim: Claim) -> str | None:
        """What the application of ``claim`` was started with; `None` where nothing is known of it."""
        if self.can_be_asked:
            return cast("str | None", self._context["task_state_store"].get(_rests_on_key(claim)))
        beat = beat_of(self._run.journal, claim)
        return beat.rests_on if beat is not None else None

    @cached_property
    def _rests_on_today(self) -> str:
        region = self._run.regions[self._drop_in.task_id]
        return _rests_on(region.fingerprint or "", self.externals(), self.code)

    def _heartbeat(
        self, claim: Claim, rests_on: str | None = None, *, has_ended: bool = False
    ) -> AbstractContextManager[Heartbeat | None]:
        """The heartbeats of this process. If the attempt is fenced meanwhile, the application is killed.

        The attempt ends with this process, unless the application has a keeper. ``has_ended``: the application has
        ended well, and this process registers what it has written.
        """
        if not self._drop_in.recovers:
            return nullcontext()
        journal, every_s = self._run.journal, interval_s(self._run.heartbeat_timeouts.timeout_s)
        key = journal.layout.heartbeat(claim.region, claim.attempt)
        watch = FenceWatch(lambda: is_fenced(journal, claim.region, claim.attempt), self.stop)
        signs = Heartbeat(
            lambda: journal.store,
            key,
            claim.tag,
            log=self._run.log,
            every_s=every_s,
            is_driver=has_ended or not self.outlives_task,
            watch=watch,
            rests_on=rests_on,
        )
        signs.succeeded = has_ended and self.outlives_task
        return signs

    def _finish(
        self,
        attempt: ClaimedAttempt,
        seconds: float | None,
        left: LeftInAirflow,
        found: tuple[ExternalObject, ...] = (),
    ) -> Outcome:
        """``found``: what the job has found by itself, which belongs to its trace."""
        claim = attempt.claim
        self._check_code(claim)
        limits = self._drop_in.read_limits
        takes_long = limits is not None and not limits.in_order
        rests_on = _rests_on(attempt.fingerprint, attempt.externals, self.code)
        is_heard = takes_long and not self.can_be_asked
        with self._heartbeat(claim, rests_on, has_ended=True) if is_heard else nullcontext():
            outputs = tuple(self._register(claim, name, uri) for name, uri in self._drop_in.outputs.items())
        self._check_nobody_between(f"{claim.region}@{claim.attempt}", attempt.externals)
        self.made = self.code.made_meanwhile()
        if self.made:
            self._run.log.warning("%s@%d: %s", claim.region, claim.attempt, self.made)
        if self._drop_in.commit is not None:
            check_prepared(self._drop_in.commit, outputs[0], f"{claim.region}@{claim.attempt}")
        read = ReadMetrics.of(self._manifests_read(attempt), attempt.externals)
        outcome = attempt.trace.finished(
            self._run.now(),
            outputs,
            spark_seconds=seconds,
            application_id=self.application_id,
            read=read,
            xcoms=self._store_left(claim, left),
        )
        outcome = replace(outcome, externals=(*outcome.externals, *found))
        if self.made and outcome.declared is not None and (own := self.declared_now()) is not None:
            # Consumers see the files that the job has made, which is no other declaration.
            outcome = replace(outcome, declared=replace(outcome.declared, own=own))
        try:
            # The application was given its inputs as folders. A release names more than the files that it has deleted.
            ensure_inputs_kept(self._run, attempt)
            self._ensure_as_claimed(attempt)
            for (_, name), published in self._published.items():
                if name in self._drop_in.inputs:
                    published.ensure_kept(f"{claim.region}@{claim.attempt}")
            self._run.journal.finish(outcome)
        except (AttemptLost, InputReleased):
            self._delete_managed(claim)
            raise
        return outcome

    def check_committed(self, outcome: Outcome) -> None:
        """As `SparkApplication.check_committed`: the target may be an input, and others may have written there."""
        self._check_nobody_between(f"{outcome.region}@{outcome.attempt}", outcome.externals)

    def _check_nobody_between(self, attempt: str, externals: Sequence[ExternalObject]) -> None:
        """Raises `Overtaken` if others have committed to a table that was read and written, since it was read.

        The next try reads what they have left, if that was before our own commit, and else is refused.
        """
        for external in externals:
            if external.vertex in self._pinned:
                base = external.etag.rpartition("@")[2]
                others = self._tables.line(external.uri).others_since(base, self._region_key)
                if others:
                    raise Overtaken(
                        f"{attempt} has read version {base} of {external.uri}, which it writes as well, and somebody "
                        f"else has committed to it since: {_some(others)}. The next try evaluates again.",
                        code="table-committed-meanwhile",
                    )

    def _ensure_as_claimed(self, attempt: ClaimedAttempt) -> None:
        """Raise `InputReleased` if a file that was read is not the one that was claimed. One listing for each input."""
        changed = self._changed_inputs(attempt) if self._drop_in.recovers else ""
        if changed:
            claim = attempt.claim
            raise InputReleased(
                f"{claim.region}@{claim.attempt}: {changed}, while the application was reading. Nothing that it wrote "
                "counts; the next try reads what is there then, and if an input of this DAG is not as it was "
                "registered, its producer runs first. An application that removes or overwrites what it has read can't "
                "run a second time: do not declare that as an input.",
                code="input-changed-while-read",
            )

    def _changed_inputs(self, attempt: ClaimedAttempt) -> str:
        """What has become of the first file that is not as it was claimed; empty if all are."""
        published = (one.result.manifests for (_, name), one in self._published.items() if name in self._drop_in.inputs)
        for manifest in (*self._manifests_read(attempt), *(manifest for each in published for manifest in each)):
            if not is_table(manifest.location):
                found = probe_manifest(self._stores.open_external(manifest.location), manifest)
                if not found.is_available or (manifest.managed and found.added):
                    return found.evidence[0]
        for name, declared in self._drop_in.inputs.items():
            if not isinstance(declared, str) or is_published(declared) or is_table(declared):
                continue
            if is_version(declared) or is_asset(declared):
                continue  # its text is that of the claim: nothing here can be looked at again
            try:
                today = (
                    (metastore_input(self._stores, declared, name),)
                    if is_in_metastore(declared)
                    else list_external(self._stores, declared, name, reads_tables=True)
                )
            except ObjectMissing:
                today = ()
            now = {one.uri: one for one in today}
            for read in attempt.externals:
                if read.vertex == name and now.get(read.uri) != read:
                    return f"{read.uri} was {'overwritten' if read.uri in now else 'removed'}"
        return ""

    def _store_left(self, claim: Claim, left: LeftInAirflow) -> StoredXComs | None:
        if not self._drop_in.recovers:
            return None
        if self._drop_in.pushes_return_value and self.returned is not None:
            left.return_value(self.returned)
        stored = store_left(self._stores.results, self._below(claim), left)
        if stored is not None and not stored.digest:
            self._run.log.warning(
                "The XComs of attempt %d are not stored: %s. A clear of this task in Airflow deletes them, so it runs "
                "the task again.",
                claim.attempt,
                stored.why,
            )
        return None if stored is None else replace(stored, folder=claim.folder)

    def _below(self, claim: Claim) -> str:
        return JournalLayout(self._identity).data_of(claim)

    def _delete_managed(self, claim: Claim) -> None:
        """Of a fenced attempt: nobody will ever read it. Best effort; at a location of the user's own, nothing.

        Of a table's snapshot, the tag of ours.
        """
        store = self._stores.results
        below = self._below(claim)
        try:
            store.delete([info.key for info in store.list(f"{below}/")])
            for uri in self._drop_in.tables.values():
                self._tables.let_go(uri, self._tag(claim))
        except StoreError as error:
            self._run.log.warning("The outputs of attempt %d are left behind: %s", claim.attempt, error)

    def _locations(self, attempt: ClaimedAttempt) -> dict[tuple[str, str], str]:
        locations = {
            ("output", name): self._name_for_job(uri or self._managed(attempt.claim, name))
            for name, uri in self._drop_in.outputs.items()
        }
        locations["output", ALL] = self.path_of(self._folder(attempt.claim))
        # No output's name has a dot.
        locations |= {
            ("checkpoint", name): self.path_of(f"{self._managed(attempt.claim, name)}.checkpoint")
            for name, uri in self._drop_in.outputs.items()
            if uri is None
        }
        self._check_allowed()
        made_at: dict[str, str | None] = {}
        locations |= {("token", name): self._token(attempt.claim) for name in self._drop_in.tables}
        for name, declared in self._drop_in.inputs.items():
            if isinstance(declared, str):
                if is_published(declared):
                    locations |= self._of_manifest(name, self._look_up(declared, name).folder(self._drop_in.task_id))
                    continue
                if is_stated(declared):
                    locations |= self._of_stated(name, declared, attempt)
                    continue
                locations["input", name] = self._name_for_job(declared)
                if is_table(declared):
                    read = [external for external in attempt.externals if external.vertex == name]
                    external = read[0] if read else self._snapshot_read(declared, name)
                    locations["version", name] = external.etag.rpartition("@")[2]
            elif declared.task_id in attempt.claim.absent:
                locations["input", name] = locations["version", name] = ""
            else:
                outputs = {output.result: output for output in attempt.inputs[declared.task_id].outputs}
                output = outputs[qualified(declared.task_id, declared.name)]
                made_at[name] = output.location
                locations |= self._of_manifest(name, output)
        drop_in = self._drop_in
        check_read_and_written(
            drop_in.task_id, drop_in.references, drop_in.outputs, drop_in.commit, made_at, is_rendered=True
        )
        return locations

    def _check_allowed(self) -> None:
        """Raise `LocationNotAllowed` if the job would be given a location where the credentials may not be used."""
        for declared in (*self._drop_in.outputs.values(), *self._drop_in.inputs.values()):
            if isinstance(declared, str) and not is_published(declared) and not is_stated(declared):
                self._stores.opener_of(declared)

    def _of_stated(self, name: str, declared: str, attempt: ClaimedAttempt) -> dict[tuple[str, str], str]:
        read = [external for external in attempt.externals if external.vertex == name]
        state = (read[0] if read else self._stated(declared, name)).etag
        told = state
        if is_asset(declared):
            told = AssetLocation.parse(declared).text
        elif is_in_metastore(declared):
            table = MetastoreTable.parse(declared)
            told = f"{table.database}.{table.table}"
        return {("input", name): told, ("version", name): state}

    def _of_manifest(self, name: str, output: PartitionManifest) -> dict[tuple[str, str], str]:
        """What stands for input ``name``. Raises `JobDefinitionError` for a table whose version is not told."""
        locations = {("input", name): self._name_for_job(output.location)}
        if is_table(output.location):
            if ("version", name) not in self._drop_in.told:  # where its producer's template came to a table
                raise no_version(self._drop_in.task_id, name, "what it is told")
            locations["version", name] = output.objects[0].path
        return locations

    def _token(self, claim: Claim) -> str:
        return token_of(self._region_key, claim.attempt, claim.writer)

    def _tag(self, claim: Claim) -> str:
        return tag_of(self._run.journal.store.base_uri, self._region_key, claim.attempt)

    def _name_for_job(self, uri: str) -> str:
        """What the job is told of a place: a table of Iceberg by its name, as ``catalog.namespace.table``."""
        if not is_table(uri):
            return self.path_of(uri)
        table = TableLocation.parse(uri)
        if not table.is_iceberg:
            return self.path_of(table.name)
        return f"{table.catalog}.{table.name}" + (f".branch_{table.branch}" if table.branch else "")

    def path_of(self, uri: str) -> str:
        """What the job is told of our ``uri``."""
        return spark_path(uri)

    def _manifests_read(self, attempt: ClaimedAttempt) -> list[PartitionManifest]:
        references = self._drop_in.references.values()
        read = {qualified(reference.task_id, reference.name) for reference in references}
        return [output for outcome in attempt.inputs.values() for output in outcome.outputs if output.result in read]

    def _managed(self, claim: Claim, name: str) -> str:
        return f"{self._folder(claim)}/{name}"

    def _folder(self, claim: Claim) -> str:
        return f"{self._stores.results.base_uri}/{self._below(claim)}"

    def _is_digested(self, name: str) -> bool:
        """Whether readers of this output depend on its digest: in this DAG, or readers of its publish."""
        drop_in = self._drop_in
        limits = drop_in.read_limits
        is_asked_for = limits is not None and not limits.in_order and drop_in.commit is None
        # Readers in other DAGs are not known here: they follow what is published.
        goes_out = is_asked_for and bool(self._run.publish_keys)
        is_read = goes_out or qualified(drop_in.task_id, name) in self._run.plan.read
        return drop_in.recovers and drop_in.determinism.is_verified and is_read

    def _register(self, claim: Claim, name: str, uri: str | None) -> PartitionManifest:
        location = uri or self._managed(claim, name)
        if is_table(location):
            return self._registered_table(claim, name, location)
        if not self._drop_in.recovers:
            return PartitionManifest(qualified(claim.region, name), location, (), managed=uri is None)
        store = self._stores.open_external(location)
        listed = all_in(store)
        objects = tuple(ResultObject(info.key, info.size, info.etag) for info in listed if not _is_hidden(info.key))
        self._finished.check(claim, name, location, listed, [each.path for each in objects])
        self._run.log.info("Output %s: %d objects at %s.", name, len(objects), location)
        manifest = PartitionManifest(qualified(claim.region, name), location, objects, managed=uri is None)
        if not self._is_digested(name):
            return manifest
        return digest_output(
            manifest,
            store,
            limits=self._drop_in.read_limits,
            earlier=[earlier for earlier in self._earlier if earlier.result == manifest.result],
            delta_options=lambda: AirflowSinkResources(self._stores).storage_options(location),
            log=self._run.log,
        )

    def _writes_success(self, paths: Collection[str], managed: bool) -> bool:
        """Whether the writer of these files is known to end with a ``_SUCCESS``."""
        del paths, managed
        return False

    def _registered_table(self, claim: Claim, name: str, uri: str) -> PartitionManifest:
        """The snapshot that the attempt has committed; where others read it, with a tag that keeps it from expiry."""
        result, token = qualified(claim.region, name), self._token(claim)
        manifest = self._tables.committed(result, uri, token)
        if manifest is None:
            raise RegionFailed(
                f"{claim.region}@{claim.attempt}: the application ended without an error, and no snapshot of {uri}, "
                f"output {name!r}, carries the token {token}. Does its commit carry what {{token:{name}}} stands for "
                "(docs/tables.md), and does it commit to that branch?",
                code="snapshot-without-token",
                output=name,
            )
        version = manifest.objects[0].path
        self._run.log.info("Output %s: snapshot %s of %s.", name, version, uri)
        if self._drop_in.recovers and result in self._run.plan.read:
            try:
                self._tables.keep(manifest, self._tag(claim))
            except StoreError as error:
                self._run.log.warning("Snapshot %s has no tag that keeps it from being expired: %s", version, error)
        return manifest


class DropInSubmission(DropInApplication, SparkSubmission):
    """A drop-in's application by spark-submit."""

    def __init__(self, drop_in: DropIn, opened: OpenRun, operator: SparkSubmitOperator, **kwargs: Any) -> None:
        DropInApplication.__init__(self, drop_in, opened, kwargs["context"])
        SparkSubmission.__init__(self, operator, identity=self._identity, results=opened.stores.results, **kwargs)

    def new_job(self, attempt: ClaimedAttempt) -> Any:
        """As `SparkSubmission.new_job`."""
        return SparkSubmission.new_job(self, attempt)

    def fill(self, job: SparkSubmitOperator, locations: Mapping[tuple[str, str], str]) -> None:
        """Replace the placeholders in its arguments and settings. What it commits to tables carries the token."""
        job.application_args = filled([str(argument) for argument in job.application_args or ()], locations)
        conf = dict(job.conf or {})
        if placeholders(conf):
            job.conf = conf = filled(conf, locations)
        token = next((text for (kind, _), text in locations.items() if kind == "token"), None)
        if token is not None:
            metadata = f"{conf.get(DELTA_USER_METADATA, '')} {token}".strip()
            job.conf = {**conf, ICEBERG_SETTING: token, DELTA_USER_METADATA: metadata}

    def submit(self, job: SparkSubmitOperator, name: str) -> None:
        """As `SparkSubmission.submit`."""
        SparkSubmission.submit(self, job, name)

    def _writes_success(self, paths: Collection[str], managed: bool) -> bool:
        """As `spark_writes_success`."""
        return spark_writes_success(self.operator, paths, managed, is_driver_here=not self.is_on_cluster)

    def _hear(self, output: deque[str], lines: Iterable[str]) -> Iterator[str]:
        """As `SparkSubmission._hear`; and look at the code when Spark's context begins: the application is loaded.

        In cluster mode what starts it is another machine, of which this log says too little.
        """
        for line in super()._hear(output, lines):
            if _HAS_BEGUN.search(line):
                self.look_at_code(has_loaded=not self.is_on_cluster)
            yield line

    def order(self, keeping: Keeping, claim: Claim, holds: Iterable[str]) -> Order:
        """As `SparkSubmission.order`, with what the application is started with."""
        return keeping.order(claim, holds, self._signs.rests_on if self._signs is not None else None)


def _some(versions: Sequence[str]) -> str:
    return ", ".join(versions[:_MOST_NAMED]) + (", ..." if len(versions) > _MOST_NAMED else "")


def _rests_on_key(claim: Claim) -> str:
    return key_of("spark_job_rests_on", claim.tag)


def _rests_on(fingerprint: str, externals: tuple[ExternalObject, ...], code: ApplicationCode) -> str:
    """What the application was submitted with that no claim tells: its code and arguments, and its external inputs.

    Of code in stores also the versions: it may have been replaced, and put back, since the application was submitted.
    """
    read = sorted([external.vertex, external.uri, external.size, external.etag] for external in externals)
    return digest_of([fingerprint, read, *([code.remote_versions] if code.remote_versions else [])])


def _last_finish(state: RegionState) -> Outcome | None:
    """The newest finish, reset or not, unless an attempt was claimed after it."""
    finished = [n for n, attempt in state.attempts.items() if attempt.is_finished]
    if not finished or max(finished) != state.latest_attempt:
        return None
    return state.attempts[max(finished)].outcome


def _outputs_by_age(state: RegionState) -> list[PartitionManifest]:
    """What finished attempts have written, the newest first, reset or not."""
    ended = sorted((attempt for attempt in state.attempts.values() if attempt.is_finished), key=lambda a: -a.number)
    return [output for attempt in ended if attempt.outcome is not None for output in attempt.outcome.outputs]


def _is_hidden(key: str) -> bool:
    """Folders, markers and unfinished work of Spark's committers, not data. ``_delta_log`` and the like are data."""
    return key.endswith("/") or any(
        part in (SUCCESS, "_temporary") or part.startswith((".", "__magic")) for part in key.split("/")
    )


def _own_exception(error: Exception) -> Failure | None:
    """The exception of an application that spark-submit says has ended with exit code 1, as both languages do."""
    return raised_in(output_of(error)) if _ENDED_BY_ITSELF.search(str(error)) else None
