"""Runs one region of a declared job: makes its spec, submits it, reads back how it ended."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Protocol

from airflow_recovery.errors import RegionFailed, UserCodeError
from airflow_recovery.execution.job_plan import JobPlan
from airflow_recovery.execution.region_task import ClaimedAttempt
from airflow_recovery.hooks.stores import Stores
from airflow_recovery.job import Job
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.records import Claim, ExternalObject, Failure, Outcome, RunIdentity
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.operators.externals import list_external
from airflow_recovery.runtime.failure import is_user_error
from airflow_recovery.runtime.receipt import read_failure, read_receipt
from airflow_recovery.runtime.spec import RegionSpec, RunFacts, VertexSpec
from airflow_recovery.topology.regions import Region


class SparkApplication(Protocol):
    """How one attempt's spec becomes a running Spark application. Two ways: spark-submit, and Spark Connect."""

    def run(self, spec: RegionSpec, folder: Path) -> None:
        """Run to the end; raises where it failed. ``folder`` is this try's own, and goes with it."""
        ...

    def stop(self) -> None:
        """Stop what `run` waits for; may be called from another thread or a signal handler."""
        ...

    def stop_orphan(self, identity: RunIdentity, claim: Claim) -> None:
        """Stop what an earlier attempt may have left running. Best effort."""
        ...


class RegionRunner:
    """The `airflow_recovery.execution.region_task.RegionRunner` of a job's region."""

    def __init__(
        self,
        *,
        job: Job,
        ref: str,
        region: Region,
        plan: JobPlan,
        facts: RunFacts,
        identity: RunIdentity,
        stores: Stores,
        application: SparkApplication,
        log: logging.Logger,
    ) -> None:
        self._job = job
        self._ref = ref
        self._region = region
        self._plan = plan
        self._facts = facts
        self._identity = identity
        self._stores = stores
        self._application = application
        self._log = log

    def externals(self) -> tuple[ExternalObject, ...]:
        """The files that the region's sources would read now."""
        found: list[ExternalObject] = []
        for vertex in self._region.vertices:
            if vertex in self._plan.patterns:
                found += list_external(self._stores, self._plan.patterns[vertex], vertex)
        return tuple(found)

    def check_target(self, state: RunState) -> None:
        """Nothing to check: results go below the attempt's own prefix."""

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Run the region's application to its outcome. Raises `RegionFailed` or `UserCodeError` with what it said."""
        with tempfile.TemporaryDirectory(prefix="airflow-recovery-") as name:
            folder = Path(name)
            spec = self._spec(attempt, folder)
            try:
                self._application.run(spec, folder)
            except Exception as error:
                raise region_failed(spec, read_failure(spec), error) from error
            # A driver on this machine leaves the outcome; one elsewhere is asked for in the journal.
            return read_receipt(spec)

    def stop(self) -> None:
        """Stop the application that `run` waits for."""
        self._application.stop()

    def stop_orphan(self, claim: Claim) -> None:
        """Stop what an earlier attempt may have left running."""
        self._application.stop_orphan(self._identity, claim)

    def _spec(self, attempt: ClaimedAttempt, folder: Path) -> RegionSpec:
        claim = attempt.claim
        manifests = {each.result: each for outcome in attempt.inputs.values() for each in outcome.outputs}
        data = JournalLayout(self._identity).data_of(claim.region, claim.attempt)
        return RegionSpec(
            job=self._ref,
            identity=self._identity,
            region=claim.region,
            attempt=claim.attempt,
            writer=claim.writer,
            tag=claim.tag,
            fingerprint=attempt.fingerprint,
            vertices=tuple(self._vertex(name) for name in self._region.vertices),
            inputs=tuple(manifests[result] for result in dict.fromkeys(each.result for each in self._region.inputs)),
            pins=claim.inputs,
            externals=attempt.externals,
            run=self._facts.dates,
            location=f"{self._stores.results.base_uri}/{data}",
            journal=self._stores.journal_spec,
            results=self._stores.results_spec,
            receipt=str(folder / "receipt.json"),
        )

    def _vertex(self, name: str) -> VertexSpec:
        vertex = self._job.vertices[name]
        readers = sum(
            1 for each in self._region.vertices for read in self._job.vertices[each].inputs if read.vertex == name
        )
        is_result = name in self._region.results
        return VertexSpec(
            name=name,
            params=dict(self._plan.params[name]),
            is_result=is_result,
            # Spark computes a pipelined vertex again for each reader; one that is not deterministic then gives them
            # different rows, and `persist` does not prevent it (DESIGN section 9).
            is_scratch=not is_result and readers > 1 and not vertex.deterministic,
        )


def region_failed(spec: RegionSpec, failure: Failure | None, error: Exception) -> RegionFailed:
    """What the task fails with: the application's own account where there is one, else how it ended."""
    where = f"{spec.region}@{spec.attempt}"
    if failure is None:
        return RegionFailed(
            f"{where}: the Spark application ended without an outcome and said nothing: it was killed, or never "
            f"started. ({error})"
        )
    vertex = f" in vertex {failure.vertex}" if failure.vertex else ""
    condition = ", ".join(each for each in (failure.condition, failure.sql_state) if each)
    told = f"{where} failed{vertex}: {failure.type}: {failure.message}" + (f" [{condition}]" if condition else "")
    if is_user_error(failure):
        return UserCodeError(f"{told}. The same code would fail again, so it is not retried.", failure)
    return RegionFailed(told, failure)
