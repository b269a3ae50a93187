"""What a region of a declared job gives to its Spark application, and what comes back: spec, outcome, failure."""

from __future__ import annotations

import json
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.job_plan import ExecutionRegion
from airflow_recovery.attempt.mode import AttemptMode
from airflow_recovery.driver.exit_report import forget_failure, read_failure, read_receipt
from airflow_recovery.driver.failure import is_user_error
from airflow_recovery.driver.failure_class import ERRORS, classify, read_advice
from airflow_recovery.driver.heartbeat import INTERVAL_S
from airflow_recovery.driver.private_folder import own_folder, private_folder
from airflow_recovery.driver.region_spec import ModeSpec, RegionSpec, RunFacts, TableSpec, VertexSpec
from airflow_recovery.driver.start_advice import exit_first, start_advice, start_failure
from airflow_recovery.driver.stores import catalog_variable
from airflow_recovery.errors import CodeReplaced, Failure, JobDefinitionError, NotSetUp, RegionFailed, UserCodeError
from airflow_recovery.hooks.sinks import AirflowSinkResources
from airflow_recovery.hooks.stores import Stores
from airflow_recovery.hooks.tables import check_reachable, tables_of, without_secrets
from airflow_recovery.job import Job
from airflow_recovery.job.context import ONLY_SUBTASK
from airflow_recovery.job.mode import planned_mode
from airflow_recovery.job.sources import FilePattern
from airflow_recovery.job.tables import rendered_table
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.locations import TableLocation, is_table
from airflow_recovery.model.mode import answers_of
from airflow_recovery.model.records import ExternalObject, Outcome, RunIdentity
from airflow_recovery.results.tables import check_names
from airflow_recovery.task.externals import RegionSplits, version_input
from airflow_recovery.task.inventory import may_list
from airflow_recovery.task.references import place_of

Launch = Callable[[RegionSpec, Path], None]
"""Runs the application of a spec to its end, and raises where it failed. The folder is this try's own."""

_OUT_OF_MEMORY_EXIT = re.compile(r"(?:Error code is|exitCode): 52\b")


class RegionProgram:
    """One region of a declared job, however its application is started: over spark-submit, or over Spark Connect."""

    def __init__(  # noqa: PLR0913 - what a driver is started with
        self,
        *,
        job: Job,
        ref: str,
        region: ExecutionRegion,
        facts: RunFacts,
        identity: RunIdentity,
        stores: Stores,
        log: logging.Logger,
        journal: Journal | None = None,
        on_claim: Callable[[ClaimedAttempt], None] = lambda attempt: None,
        heartbeat_s: float = INTERVAL_S,
        render: Callable[[str], str] = str,
    ) -> None:
        self.job = job
        self.ref = ref
        self.identity = identity
        self.stores = stores
        self._region = region
        self._facts = facts
        self._log = log
        self._on_claim = on_claim
        self.heartbeat_s = heartbeat_s
        self._render = render
        if journal is None or journal.identity != identity:
            journal = Journal(stores.journal, identity, writer=uuid.uuid4().hex)
        self.journal = journal
        # The run's own, where it has one: what it has read of the splits is not read twice.
        self._splits = RegionSplits(job, region, stores, journal, log=log)

    @property
    def spark_conf(self) -> dict[str, str]:
        """The Spark settings that the region's vertices ask for."""
        return self.job.region_spark_conf(self._region.region.name)

    def externals(self) -> tuple[ExternalObject, ...]:
        """The splits that the region's sources would read now, and the texts by which their other inputs are known."""
        vertices = [self.job.vertices[name] for name in self._region.region.vertices]
        versions = [
            version_input(vertex.version_key(name), name, self._render(text), f"{vertex.where}: input {name!r}")
            for vertex in vertices
            for name, text in vertex.versions.items()
        ]
        return (*self._splits.today(), *versions)

    def run(self, attempt: ClaimedAttempt, launch: Launch) -> Outcome | None:
        """Have ``launch`` run an application to its end. Raises `RegionFailed` or `UserCodeError` with what it said."""
        self._on_claim(attempt)
        self._splits.check_readable(attempt)
        catalogs = self._catalogs(attempt)
        os.environ.update({catalog_variable(name): json.dumps(catalogs[name]) for name in catalogs})
        with own_folder(private_folder(), "attempt") as folder:
            spec = self._spec(attempt, folder, catalogs)
            try:
                launch(spec, folder)
            except CodeReplaced:
                raise  # before anything has run
            except Exception as error:
                failed = region_failed(spec, read_failure(spec) or start_failure(error), error)
                failed.forget = partial(forget_failure, spec, self._log)
                raise failed from error
            # A driver on this machine leaves the outcome; one elsewhere is asked for in the journal.
            return read_receipt(spec)

    def _spec(self, attempt: ClaimedAttempt, folder: Path, catalogs: Mapping[str, Mapping[str, str]]) -> RegionSpec:
        claim = attempt.claim
        read = {edge.result for edge in self._region.region.inputs}
        data = JournalLayout(self.identity).data_of(claim)
        return RegionSpec(
            job=self.ref,
            identity=self.identity,
            trace=attempt.trace,
            tag=claim.tag,
            vertices=tuple(self._vertex(name) for name in self._region.region.vertices),
            inputs=tuple(
                output for outcome in attempt.inputs.values() for output in outcome.outputs if output.result in read
            ),
            run=self._facts.dates,
            location=f"{self.stores.results.base_uri}/{data}",
            journal=self.stores.journal_spec,
            results=self.stores.results_spec,
            receipt=str(folder / "receipt.json"),
            heartbeat_s=self.heartbeat_s,
            subtask=self._region.subtask or ONLY_SUBTASK,
            coordinators=attempt.coordinators,
            catalogs={name: without_secrets(catalogs[name]) for name in catalogs},
            mode=self._mode(attempt),
        )

    def check_tables(self, state: RunState, *, driver_is_here: bool) -> None:
        """Look at published results, at Iceberg tables that are to be made, and at all catalogs, before the claim.

        Raises `JobDefinitionError` where a table of the run has two names, or its files are those that a source reads,
        `LocationNotAllowed` for a table where the credentials may not be used,
        `ConfigurationError` for a catalog that is not configured here, or that no driver elsewhere could ask,
        `UserCodeError` for a table that can't be written, `NotPublished` for a published result that can't be read,
        and `StoreUnavailable` where a catalog gives no answer.
        """
        self._splits.check_published()
        self._check_apart()
        made = self._tables_of(self._region.region.results)
        read = self._tables_of(edge.result for edge in self._region.region.inputs)
        for uri in (*made, *read):
            self.stores.check(uri)
        locations = [TableLocation.parse(uri) for uri in (*made, *read)]
        iceberg = [location for location in locations if location.is_iceberg]
        if not iceberg:
            return
        from airflow_recovery.driver.iceberg_result import check_layout

        resources = AirflowSinkResources(self.stores)
        for location in iceberg if not driver_is_here else ():
            check_reachable(location, resources.catalog_properties(location.catalog))
        tables = tables_of(self.stores)
        opened = [(location.uri, table) for location in iceberg if (table := tables.iceberg(location)) is not None]
        check_names([(uri, str(table.metadata.table_uuid)) for uri, table in opened], state)
        for uri, table in opened:
            if uri in made:
                check_layout(table.spec(), table.schema(), uri)

    def _check_apart(self) -> None:
        """Raise `JobDefinitionError` if a source lists files in the folder of a Delta table that the job writes."""
        patterns = {
            name: source.pattern for name, source in self._region.sources.items() if isinstance(source, FilePattern)
        }
        if not patterns:
            return
        vertices = self.job.vertices.values()
        targets = [vertex.sink.table_uri() for vertex in vertices if vertex.sink is not None]
        written = [uri for uri in (*self._tables_of(self.job.vertices), *targets) if uri is not None]
        for name, pattern in patterns.items():
            for uri in written:
                if not TableLocation.parse(uri).is_iceberg and may_list(place_of(pattern), place_of(uri)):
                    raise JobDefinitionError(
                        f"{self.job.vertices[name].where}: reads {pattern}, and the job writes to {uri}: "
                        "expected two places apart, since files are read at no version: a second attempt would read "
                        "what the first one has written, and apply itself twice. Write to another table, or read the "
                        "table with a recoverable operator, at its {version:...} (docs/tables.md)",
                        code="job-reads-what-it-writes",
                    )

    def _tables_of(self, results: Iterable[str]) -> list[str]:
        """The locations of those of these vertices' results that are tables."""
        tables = (rendered_table(self.job.vertices[name], self._facts) for name in results)
        return [table for table in tables if table is not None]

    def _catalogs(self, attempt: ClaimedAttempt) -> dict[str, dict[str, str]]:
        """The properties of the catalogs of the Iceberg tables that are read and made, by the catalogs' names."""
        read = {edge.result for edge in self._region.region.inputs}
        outputs = [output for outcome in attempt.inputs.values() for output in outcome.outputs]
        locations = [output.location for output in outputs if output.result in read and is_table(output.location)]
        locations += self._tables_of(self._region.region.results)
        names = {TableLocation.parse(location).catalog for location in locations} - {""}
        resources = AirflowSinkResources(self.stores)
        return {name: resources.catalog_properties(name) for name in names}

    def _mode(self, attempt: ClaimedAttempt) -> ModeSpec:
        region, vertices = self._region.region, self.job.vertices
        planned = planned_mode(self.job.modes, region, self.job.regions(), vertices)
        return answers_of(planned.name, "attempt", AttemptMode).driver_spec(attempt, region, vertices)

    def _read_elsewhere(self) -> set[str]:
        return {edge.result for region in self.job.regions().regions for edge in region.inputs}

    def _vertex(self, name: str) -> VertexSpec:
        vertex = self.job.vertices[name]
        region = self._region.region
        readers = sum(
            1 for vertex in region.vertices for read in self.job.vertices[vertex].inputs if read.vertex == name
        )
        is_result = name in region.results
        table = rendered_table(vertex, self._facts) if is_result else None
        return VertexSpec(
            name=name,
            params=dict(self._region.params[name]),
            is_result=is_result,
            # Spark computes a pipelined vertex again for each reader; one that is not deterministic then gives them
            # different rows, and `persist` does not prevent it.
            is_scratch=not is_result and readers > 1 and not vertex.determinism.is_recomputable,
            # Where no other region reads it, nobody would ever compare.
            is_digested=(
                is_result and table is None and vertex.determinism.is_verified and name in self._read_elsewhere()
            ),
            kept_as=vertex.result.name if is_result and vertex.result.kept_by else None,
            table=None if table is None else TableSpec(table, name in self._read_elsewhere()),
        )


def region_failed(spec: RegionSpec, failure: Failure | None, error: Exception) -> RegionFailed:
    """What the task fails with: the application's own account where there is one, else how it ended."""
    where = f"{spec.region}@{spec.attempt}"
    if failure is None:
        ended = exit_first(error)
        said_nothing = Failure("DriverLost", f"It ended without an outcome and said nothing. ({ended})")
        # The exit code alone may tell that it was for its memory.
        return ERRORS[classify(said_nothing)](
            f"{where}: the Spark application ended without an outcome and said nothing: it was killed, or never "
            f"started. ({ended})",
            said_nothing,
        )
    exit_code = _OUT_OF_MEMORY_EXIT.search(str(error))
    if exit_code is not None:
        # A driver whose Spark is ending tells of whatever that breaks first; the exit code tells why it ended.
        failure = replace(failure, chain=(*failure.chain, exit_code[0]))
    vertex = f" in vertex {failure.vertex}" if failure.vertex else ""
    condition = ", ".join(name for name in (failure.condition, failure.sql_state) if name)
    message = f"{where} failed{vertex}: {failure.type}: {failure.message}" + (f" [{condition}]" if condition else "")
    advice = start_advice(failure)
    if is_user_error(failure):
        return UserCodeError(f"{message}. {advice or 'The same code would fail again, so it is not retried.'}", failure)
    if advice is not None:
        return NotSetUp(message if advice in message else f"{message}. {advice}", failure)
    to_mend = read_advice(failure)
    return ERRORS[classify(failure)](message if to_mend is None else f"{message}. {to_mend}", failure)
