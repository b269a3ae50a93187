"""Spark, as the protocol sees it: an application reads exactly the manifests that it was given, writes objects below
its attempt's prefix, and puts the outcome.

The driver is a strand of its own: of the task's process (client mode), or of another one, which outlives the task's and
gives heartbeats (cluster mode).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_recovery.attempt.application import ApplicationStatus, ClaimedAttempt, SparkApplication
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.errors import (
    AttemptLost,
    DriverLeft,
    Failure,
    ObjectMissing,
    RecoveryError,
    RegionFailed,
    StoreError,
)
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout, shared_identity
from airflow_recovery.locations import is_table
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Claim, ExternalObject, Outcome, StoredXComs
from airflow_recovery.model.split import Split
from airflow_recovery.splits.committed_batches import SplitWork
from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.testing.simulation.jobs import SimulatedJob, rows
from airflow_recovery.testing.simulation.memory import ProcessStore
from airflow_recovery.testing.simulation.strands import Process, Strand, Terminated, current_runner
from airflow_recovery.testing.split_driver import SplitDriver

if TYPE_CHECKING:
    from airflow_recovery.testing.simulation.tables import SimulatedTables

PARTS = 2
Driver = tuple[str, str, int]
"""Of which attempt it is: the prefix of its run, the region, the number."""


@dataclass
class FolderJob:
    """One submitted job of a user's own, in its process.

    ``rests_on``: its code and its external inputs when it was submitted. ``outlives_task``: the process is its own.
    """

    process: Process
    outlives_task: bool
    rests_on: object
    strand: Strand | None = None
    read: list[tuple[str, Outcome, str]] = field(default_factory=list)
    has_ended: bool = False
    has_failed: bool = False

    @property
    def status(self) -> ApplicationStatus:
        """As a cluster manager says."""
        if self.has_ended:
            return ApplicationStatus.SUCCEEDED
        return ApplicationStatus.OVER if self.process.is_dead or self.has_failed else ApplicationStatus.ACTIVE


@dataclass
class Cluster:
    """All applications of one simulation.

    ``wrote``: by the prefix of a run, the rows of (region, attempt, result), as they were computed.

    ``trouble`` is the probability that an application fails, tells nothing, or is told to have failed after its finish.
    Of the tries, ``detached_share`` are in cluster mode. ``hasty``: applications that were submitted although the
    driver of the attempt before lived, and had given a sign within the last ``heartbeat_timeout_s``. ``jobs``: those of
    users, by the tag of the claim.
    """

    rng: random.Random
    trouble: float = 0.0
    detached_share: float = 0.3
    heartbeat_timeout_s: float = 0.0
    hasty: list[str] = field(default_factory=list)
    signs_s: dict[Driver, float] = field(default_factory=dict)
    wrote: defaultdict[str, dict[tuple[str, int, str], str]] = field(default_factory=lambda: defaultdict(dict))
    drivers: dict[Driver, Process] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    jobs: dict[str, FolderJob] = field(default_factory=dict)
    ran: list[Driver] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    tables: SimulatedTables | None = None
    unseen_versions: dict[Driver, int] = field(default_factory=dict)
    """Which version of code that can't be seen an attempt has loaded."""


class FakeSpark(SparkApplication):
    """That of one try, which runs the code of ``job``, over the external inputs that ``today`` says there are.

    Of an earlier try nothing is known but its heartbeats. ``journal`` is where it finishes; ``read_from`` the prefix of
    the run whose results it reads.
    """

    outlives_task = False

    def __init__(
        self,
        cluster: Cluster,
        job: SimulatedJob,
        today: Callable[[], SimulatedJob],
        region: str,
        process: Process,
        journal: Journal,
        results: ProcessStore,
        *,
        read_from: str,
    ) -> None:
        self._prefix = journal.layout.prefix
        self._is_shared = self._prefix != read_from
        self._wrote, self._wrote_before = cluster.wrote[self._prefix], cluster.wrote[read_from]
        self._cluster = cluster
        self._code = job
        self._today = today
        self._region = region
        self._process = process
        self._journal = journal
        self._results = results
        self._driver: Process | None = None
        self.outlives_task = cluster.rng.random() < cluster.detached_share
        self._is_stopped = False
        self._beats = 0
        self._outcome: Outcome | None = None
        self._error: Exception | None = None

    def externals(self) -> tuple[ExternalObject, ...]:
        """What is there now: it may be other when the application reads it."""
        current_runner().switch(f"LIST the external inputs of {self._region}")
        return self._today().externals_of(self._region)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Submit, and wait for the driver's end. Raises `RegionFailed` as the status says."""
        cluster, claim = self._cluster, attempt.claim
        cluster.ran.append((self._prefix, claim.region, claim.attempt))
        self._note_haste(claim)
        if self.outlives_task and not self._is_stopped:
            driver = Process(f"driver of {claim.region}@{claim.attempt}", self._process.weight)
            self._driver = cluster.drivers[self._prefix, claim.region, claim.attempt] = driver
            cluster.processes.append(driver)
            strand = Strand(driver, lambda: self._drive(attempt))
            driver.strands.append(strand)
            self._wait_for(strand)
        else:
            self._drive(attempt)
        if self._error is not None:
            raise self._error
        if self._outcome is None:
            raise RegionFailed(f"the driver of {claim.region}@{claim.attempt} is gone")
        draw = cluster.rng.random()
        if draw < cluster.trouble:
            raise RegionFailed(f"{claim.region}@{claim.attempt}: the status is unknown")
        return None if draw < 2 * cluster.trouble else self._outcome

    def _wait_for(self, strand: Strand) -> None:
        """Until a driver of its own process has ended. A process that is told to end meanwhile leaves it at work."""
        try:
            current_runner().join(strand)
        except Terminated as error:
            if self._is_shared or self._driver is None:
                raise
            raise DriverLeft(str(error)) from error

    def stop(self) -> None:
        """Stop the application. One in the task's own process notices at its next request."""
        self._is_stopped = True
        if self._driver is not None:
            self._driver.is_dead = True

    def stop_previous(self, claim: Claim) -> None:
        """Best effort: it may not be found."""
        if self._process.is_dead:
            return
        driver = self._cluster.drivers.get((self._prefix, claim.region, claim.attempt))
        if driver is not None and self._cluster.rng.random() < 0.5:
            driver.is_dead = True

    def _note_haste(self, claim: Claim) -> None:
        before = self._prefix, claim.region, claim.attempt - 1
        driver = self._cluster.drivers.get(before)
        signed_s = self._cluster.signs_s.get(before)
        if driver is None or driver.is_dead or signed_s is None or all(strand.is_done for strand in driver.strands):
            return
        silent_s = self._results.clock.now_s - signed_s
        if silent_s < self._cluster.heartbeat_timeout_s:
            self._cluster.hasty.append(f"{claim.region}@{claim.attempt}, {silent_s:.1f} s after a sign of the driver")

    def _beat(self, claim: Claim) -> None:
        """As `airflow_recovery.driver.heartbeat.Heartbeat`, whose thread takes turns with nobody here."""
        if self._driver is None and not self._is_shared:
            return
        self._beats += 1
        key = self._journal.layout.heartbeat(claim.region, claim.attempt)
        with suppress(StoreError):
            self._journal.store.put(key, Beat(claim.tag, self._beats).to_bytes())
            self._cluster.signs_s[self._prefix, claim.region, claim.attempt] = self._results.clock.now_s

    def _drive(self, attempt: ClaimedAttempt) -> None:
        try:
            self._outcome = self._application(attempt)
        except RecoveryError as error:
            self._error = error if isinstance(error, RegionFailed) else RegionFailed(f"{type(error).__name__}: {error}")

    def _application(self, attempt: ClaimedAttempt) -> Outcome:
        claim, cluster = attempt.claim, self._cluster
        self._beat(claim)
        version = self._today().unseen_versions.get(self._region, 0)
        cluster.unseen_versions[self._prefix, claim.region, claim.attempt] = version
        read = [
            self._read(name, outcome, manifest)
            for name, outcome in attempt.inputs.items()
            for manifest in outcome.outputs
            if manifest.result in self._code.read_of(name, self._region)
        ]
        if cluster.rng.random() < cluster.trouble:
            raise RegionFailed("boom", Failure("RuntimeError", "boom"))
        self._check_code(attempt)
        results = self._code.regions[self._region].results
        if isinstance(attempt.work, SplitWork):
            return self._read_splits(attempt, results, read)
        read += self._today().lines_of(self._region)
        outputs = tuple(self._write(claim, result, attempt.fingerprint, read) for result in results)
        outcome = attempt.trace.finished("now", outputs, spark_seconds=1.0, xcoms=self._leave(claim))
        try:
            self._journal.finish(outcome)
        except AttemptLost as error:
            raise RegionFailed(f"the driver of {claim.region}@{claim.attempt} was fenced") from error
        return outcome

    def _check_code(self, attempt: ClaimedAttempt) -> None:
        """Raise if today's code fails. It does not."""

    def _leave(self, claim: Claim) -> StoredXComs | None:
        """Leave what a task leaves in Airflow: nothing."""
        return None

    def leave_again(self) -> None:
        """Leave it once more, for an attempt that is kept."""

    def _read_splits(self, attempt: ClaimedAttempt, results: tuple[str, ...], read: list[str]) -> Outcome:
        claim = attempt.claim

        def made_of(split: Split, result: str) -> str:
            made = rows(self._region, result, attempt.fingerprint, read)
            return f"{made} of split {split.key} in a file of attempt {claim.attempt}"

        def begins(number: int) -> None:
            self._check_stopped(claim)
            self._beat(claim)

        batch = self._cluster.rng.choice([1, 1, 2])
        try:
            return SplitDriver(self._journal, self._results, made_of, batch=batch, begins=begins).run(attempt, results)
        except AttemptLost as error:
            raise RegionFailed(f"the driver of {claim.region}@{claim.attempt} was fenced") from error

    def _write(self, claim: Claim, result: str, fingerprint: str, read: list[str]) -> PartitionManifest:
        made = rows(self._region, result, fingerprint, read, self._draw())
        self._wrote[claim.region, claim.attempt, result] = made
        if result in self._code.tables:
            self._check_stopped(claim)
            self._beat(claim)
            return self._tables.commit(self._journal, claim, result, self._code.tables[result], made)
        location = f"{self._journal.layout.data_of(claim)}/{result}"
        objects = []
        for part in range(PARTS):
            self._check_stopped(claim)
            self._beat(claim)
            # Rows are the same again; files are not.
            body = f"{made[part::PARTS]} in a file of attempt {claim.attempt}".encode()
            info = self._results.put(f"{location}/part-{part}", body)
            objects.append(ResultObject(f"part-{part}", info.size, info.etag))
        mode = dict(self._code.regions[self._region].determinism).get(result)
        digest = f"digest of {made}" if mode is not None and mode.is_verified else None
        uri = f"{self._results.base_uri}/{location}"
        return PartitionManifest(result, uri, tuple(objects), rows=len(made), digest=digest)

    def _draw(self) -> int:
        return self._cluster.rng.randint(0, 1) if self._region in self._code.unstable else 0

    def _rows_before(self, region: str, outcome: Outcome) -> dict[str, str]:
        """The rows of every result that an attempt of a producer has made, for its run or for all of them."""
        wrote, attempt = self._wrote_before, outcome.attempt
        if outcome.shared is not None:
            wrote = self._cluster.wrote[JournalLayout(shared_identity(outcome.shared.key)).prefix]
            attempt = outcome.shared.attempt
        return {result: made for (name, n, result), made in wrote.items() if (name, n) == (region, attempt)}

    def _read(self, region: str, outcome: Outcome, manifest: PartitionManifest) -> str:
        if is_table(manifest.location):
            text = self._tables.read(manifest)
            self._check_read(region, outcome, manifest, text)
            return text
        prefix = manifest.location.removeprefix(f"{self._results.base_uri}/")
        parts = []
        for file in manifest.objects:
            try:
                body = self._results.get(f"{prefix}/{file.path}").body.decode()
            except ObjectMissing as error:
                message = f"{manifest.location}/{file.path} is not there"
                raise RegionFailed(message, Failure("FileNotFoundException", message)) from error
            part, _, made_by = body.partition(" in a file of ")
            if not made_by:
                raise RegionFailed(f"{manifest.location}/{file.path} is no file of rows", Failure("Corrupt", "corrupt"))
            parts.append(part)
        if isinstance(self._code.regions[region].mode, SplitPlan):
            made = {part.partition(" of split ")[0] for part in parts}
            text = made.pop() if len(made) == 1 else "mixed"
        else:
            text = "".join("".join(pair) for pair in zip(*parts, strict=True))
        self._check_read(region, outcome, manifest, text)
        return text

    def _check_read(self, region: str, outcome: Outcome, manifest: PartitionManifest, text: str) -> None:
        if text != self._rows_before(region, outcome).get(manifest.result):
            self._cluster.wrong.append(f"{self._region} has read other rows than {region}@{outcome.attempt} wrote")

    @property
    def _tables(self) -> SimulatedTables:
        assert self._cluster.tables is not None, "no result is a table"
        return self._cluster.tables

    def _check_stopped(self, claim: Claim) -> None:
        if self._is_stopped:
            raise RegionFailed(f"{claim.region}@{claim.attempt} was stopped")
