"""Spark applications of a job in its DAG: their code fails, or skips its task, and operators push XComs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.errors import Failure, ObjectMissing, UserCodeError
from airflow_recovery.model.records import Claim, Outcome, StoredXComs
from airflow_recovery.testing.simulation.spark import FakeSpark
from airflow_recovery.testing.simulation.strands import current_runner
from simulation.dag_job import DagJob, xcom_of


class SkipsItself(Exception):
    """The code of a region skips its task, as with `AirflowSkipException`."""


class DagSpark(FakeSpark):
    """The application of a region. ``push`` is what its task does with an XCom."""

    _code: DagJob
    _today: Callable[[], DagJob]

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._left: str | None = None
        self.push: Callable[[str], object] = lambda value: None

    def _drive(self, attempt: ClaimedAttempt) -> None:
        try:
            super()._drive(attempt)
        except SkipsItself as error:
            self._error = error

    def _check_code(self, attempt: ClaimedAttempt) -> None:
        claim = attempt.claim
        ends_as = self._today().ends_as(self._region, attempt.fingerprint)
        if ends_as == "skipped":
            raise SkipsItself(f"{claim.region}@{claim.attempt} skips its task")
        if ends_as == "failed":
            raise UserCodeError(f"{claim.region}@{claim.attempt} always fails", Failure("ValueError", "wrong"))

    def _leave(self, claim: Claim) -> StoredXComs | None:
        """Of an operator: push an XCom, which tells the rows, and store it beside the results, if it can be stored."""
        if self._region not in self._code.operators:
            return None
        made = self._wrote[claim.region, claim.attempt, self._code.regions[claim.region].results[0]]
        value = xcom_of((made,))
        assert value is not None
        self.push(value)
        if claim.region in self._code.unstored:
            return StoredXComs("", len(value), "too large")
        stored = StoredXComs(hashlib.sha256(value.encode()).hexdigest(), len(value), folder=claim.folder)
        self._results.put(self._xcom_key(claim.region, claim.attempt, stored), value.encode())
        return stored

    def _xcom_key(self, region: str, attempt: int, stored: StoredXComs) -> str:
        folder = stored.folder or f"{attempt:08d}"
        return f"{self._journal.layout.data_of_region(region)}/{folder}/_xcoms/{stored.digest}.json"

    def why_not_kept(self, outcome: Outcome) -> str | None:
        """As `airflow_recovery.task.drop_in`: why the XCom of an attempt can't be pushed again."""
        if outcome.xcoms is None:
            return None
        if not outcome.xcoms.digest:
            return outcome.xcoms.why
        try:
            body = self._results.get(self._xcom_key(outcome.region, outcome.attempt, outcome.xcoms)).body
        except ObjectMissing:
            return "the object is missing"
        if hashlib.sha256(body).hexdigest() != outcome.xcoms.digest:
            return "the object was altered"
        self._left = body.decode()
        return None

    def leave_again(self) -> None:
        """Push the XCom of the attempt that is kept."""
        if self._left is not None:
            current_runner().switch("airflow: push an XCom")
            self.push(self._left)
