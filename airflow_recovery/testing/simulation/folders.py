"""Jobs of a user's own, as the protocol sees them: they are given folders, and know of no attempt and no fence.

What such a job reads is what lies in the folders of its inputs when it looks; what lies in its own folder once it has
ended, its task lists, registers and finishes. In cluster mode the job is a process of its own, and the next try of the
task may find it at work, or at its end.
"""

from __future__ import annotations

from airflow_recovery.attempt.application import ApplicationStatus, ClaimedAttempt
from airflow_recovery.attempt.inputs_kept import ensure_inputs_kept
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, Failure, InputReleased, ObjectMissing, RegionFailed, StoreError
from airflow_recovery.locations import is_table
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Claim, ExternalObject, Outcome
from airflow_recovery.testing.simulation.jobs import rows
from airflow_recovery.testing.simulation.spark import PARTS, FakeSpark, FolderJob
from airflow_recovery.testing.simulation.strands import Process, Strand


class FolderSpark(FakeSpark):
    """The application of a region that reads and writes folders. ``of_try`` is set before it is used."""

    of_try: Run

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Submit the job and wait for its end; then register what it has written."""
        cluster, claim = self._cluster, attempt.claim
        cluster.ran.append((self._prefix, claim.region, claim.attempt))
        process, is_own = self._process, self.outlives_task and not self._is_stopped
        if is_own:
            process = Process(f"job of {claim.region}@{claim.attempt}", self._process.weight)
            self._driver = process
            cluster.processes.append(process)
        job = FolderJob(process, is_own, self._rests_on(attempt))
        job.strand = Strand(process, lambda: self._job(job, attempt), f"begins the job of {claim.region}")
        process.strands.append(job.strand)
        cluster.jobs[claim.tag] = job
        self._wait_for(job.strand)
        if not job.has_ended:
            raise RegionFailed(f"the job of {claim.region}@{claim.attempt} has failed", Failure("Failed", "failed"))
        return self._register(job, attempt)

    def status(self, claim: Claim) -> ApplicationStatus:
        """As the cluster manager says; over where its result would not be used."""
        job = self._cluster.jobs.get(claim.tag)
        if not self.outlives_task or job is None or not job.outlives_task:
            return ApplicationStatus.UNKNOWN
        region = self._code.regions[self._region]
        if job.rests_on != (region.fingerprint, self.externals()):
            return ApplicationStatus.OVER
        return job.status

    def finish_previous(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Register what the job of an earlier try has written."""
        return self._register(self._cluster.jobs[attempt.claim.tag], attempt)

    def stop_previous(self, claim: Claim) -> None:
        """Best effort."""
        if self._process.is_dead:
            return
        job = self._cluster.jobs.get(claim.tag)
        if job is not None and job.outlives_task and self._cluster.rng.random() < 0.5:
            job.process.is_dead = True

    def _rests_on(self, attempt: ClaimedAttempt) -> tuple[str, tuple[ExternalObject, ...]]:
        return attempt.fingerprint, attempt.externals

    def _job(self, job: FolderJob, attempt: ClaimedAttempt) -> None:
        """What a user has written. It fails with the file that it has listed and does not find."""
        read: list[str] = []
        try:
            for name, outcome in attempt.inputs.items():
                for manifest in outcome.outputs:
                    if manifest.result in self._code.read_of(name, self._region):
                        read.append(self._read_folder(manifest))
                        job.read.append((name, outcome, read[-1]))
            if self._cluster.rng.random() < self._cluster.trouble:
                raise ObjectMissing("boom")
            lines = read + self._today().lines_of(self._region)
            for result in self._code.regions[self._region].results:
                made = rows(self._region, result, attempt.fingerprint, lines, self._draw())
                if result in self._code.tables:
                    if not self._tables.overwrite(self._journal, attempt.claim, self._code.tables[result], made):
                        raise ObjectMissing(result)
                    continue
                for part in range(PARTS):
                    body = f"{made[part::PARTS]} in a file of attempt {attempt.claim.attempt}".encode()
                    self._results.put(f"{self._folder(attempt.claim)}/{result}/part-{part}", body)
        except (ObjectMissing, RegionFailed):
            job.has_failed = True
            return
        job.has_ended = True

    def _read_folder(self, manifest: PartitionManifest) -> str:
        if is_table(manifest.location):
            return self._tables.read(manifest)
        prefix = manifest.location.removeprefix(f"{self._results.base_uri}/")
        listed = [info.key for info in self._results.list(f"{prefix}/")]
        return _text([self._results.get(key).body for key in listed])

    def _register(self, job: FolderJob, attempt: ClaimedAttempt) -> Outcome:
        claim = attempt.claim
        outputs = []
        for result in self._code.regions[self._region].results:
            if result in self._code.tables:
                outputs.append(self._registered_table(claim, result))
                continue
            location = f"{self._folder(claim)}/{result}"
            listed = list(self._results.list(f"{location}/"))
            if not listed:
                raise RegionFailed(f"{claim.region}@{claim.attempt} wrote nothing", Failure("Nothing", "nothing"))
            made = _text([self._results.inner.get(info.key).body for info in listed])
            self._wrote[claim.region, claim.attempt, result] = made
            objects = tuple(ResultObject(info.key.rpartition("/")[2], info.size, info.etag) for info in listed)
            mode = dict(self._code.regions[self._region].determinism).get(result)
            digest = f"digest of {made}" if mode is not None and mode.is_verified else None
            uri = f"{self._results.base_uri}/{location}"
            outputs.append(PartitionManifest(result, uri, objects, rows=len(made), digest=digest))
        outcome = attempt.trace.finished("now", tuple(outputs), spark_seconds=1.0)
        try:
            ensure_inputs_kept(self.of_try, attempt)
            self._journal.finish(outcome)
        except (AttemptLost, InputReleased):
            folder = f"{self._folder(claim)}/"
            self._results.delete([info.key for info in self._results.list(folder)])
            for uri in {self._code.tables[output.result] for output in outputs if output.result in self._code.tables}:
                self._tables.let_go(self._journal, claim, uri)
            raise
        for name, read, text in job.read:
            if text not in self._rows_before(name, read).values():
                self._cluster.wrong.append(f"{self._region} counts, and has read a part of {name}@{read.attempt}")
        return outcome

    def _registered_table(self, claim: Claim, result: str) -> PartitionManifest:
        try:
            manifest = self._tables.register(self._journal, claim, result, self._code.tables[result])
        except StoreError as error:
            raise RegionFailed(str(error)) from error
        if manifest is None:
            message = f"no snapshot carries the token of {claim.region}@{claim.attempt}"
            raise RegionFailed(message, Failure("Nothing", message))
        self._wrote[claim.region, claim.attempt, result] = self._tables.rows_of(manifest)
        return manifest

    def _folder(self, claim: Claim) -> str:
        return self._journal.layout.data_of(claim)


def _text(bodies: list[bytes]) -> str:
    parts = [body.decode().partition(" in a file of ")[0] for body in bodies]
    if len(parts) != PARTS:
        return f"{len(parts)} of {PARTS} files: {' '.join(parts)}"
    return "".join("".join(pair) for pair in zip(*parts, strict=True))
