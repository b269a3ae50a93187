"""From a claimed attempt to the spec that a driver is given, and back to its outcome."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from tries import RUN_KEY, journal_in, run_try

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.job_plan import RunFacts, plan_job
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.exit_report import write_failure, write_receipt
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.private_folder import private_folder
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.start_advice import start_failure
from airflow_recovery.errors import CodeReplaced, Failure, RegionFailed, StoreTimeout, UserCodeError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.job import load_job
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, Outcome, RunIdentity
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.task.region_program import RegionProgram, region_failed

log = logging.getLogger("tests.operators")
IDENTITY = RunIdentity("d", RUN_KEY, "g")
FACTS = RunFacts("2024-01-02T00:00:00+00:00", None, None, {"secret": "s3cr3t"}, {"lake": "/lake", "token": "t0ken"})
RESULT = AttemptResult((), 1.5, "app-1")


class Application:
    """Stands in for Spark; ``run`` is what it does with the spec."""

    def __init__(self, run: Callable[[RegionSpec], None]) -> None:
        self._run = run
        self.spec: RegionSpec | None = None
        self.folder: Path | None = None

    def launch(self, spec: RegionSpec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        assert folder.is_dir()
        self._run(spec)


def manifest(result: str, attempt: int = 1) -> PartitionManifest:
    return PartitionManifest(result, f"file:///data/{result}/{attempt}", (ResultObject("part-0", 3, "e"),), 1)


def finished(region: str, *results: str) -> Outcome:
    return Outcome(region, 1, AttemptState.FINISHED, "w", "now", outputs=tuple(manifest(result) for result in results))


def claimed(region: str, *inputs: Outcome) -> ClaimedAttempt:
    pins = tuple(InputRef(finish.region, finish.attempt) for finish in inputs)
    claim = Claim(region, 1, "writer", "plan", pins, "run", 1, "ti", "tag", "now")
    return ClaimedAttempt(claim, {finish.region: finish for finish in inputs}, (), "fingerprint")


def program(region: str, ref: str = "dagjobs.shapes:diamond") -> RegionProgram:
    job = load_job(ref)
    return RegionProgram(
        job=job,
        ref=ref,
        region=plan_job(job, ref, FACTS).regions[region],
        facts=FACTS,
        identity=IDENTITY,
        stores=open_stores(RecoverySettings.load()),
        log=log,
    )


def finish(spec: RegionSpec) -> None:
    finish_attempt(spec, RESULT, log)


# --- the spec ---------------------------------------------------------------------------------------------------------


def test_a_spec_says_exactly_what_to_read_and_where_to_write(recovery: Path) -> None:
    application = Application(finish)
    program("joined").run(claimed("joined", finished("left", "left"), finished("right", "right")), application.launch)

    spec = application.spec
    assert spec is not None
    assert (spec.job, spec.identity, spec.region, spec.attempt) == ("dagjobs.shapes:diamond", IDENTITY, "joined", 1)
    assert (spec.trace.writer, spec.tag, spec.trace.fingerprint) == ("writer", "tag", "fingerprint")
    assert spec.inputs == (manifest("left"), manifest("right"))
    assert spec.trace.inputs == (InputRef("left", 1), InputRef("right", 1))
    assert spec.location == f"file://{recovery}/results/d/{RUN_KEY}/g/joined/00000001"
    assert (spec.journal.uri, spec.results.uri) == (f"file://{recovery}/journal", f"file://{recovery}/results")
    assert [(vertex.name, vertex.is_result, vertex.is_scratch) for vertex in spec.vertices] == [("joined", True, False)]


def test_only_what_a_region_reads_of_its_producer_is_named(recovery: Path) -> None:
    application = Application(finish)
    program("left").run(claimed("left", finished("cleaned", "cleaned", "unread")), application.launch)
    assert application.spec is not None
    assert [manifest.result for manifest in application.spec.inputs] == ["cleaned"]


def test_parameters_arrive_rendered_and_nothing_else_of_the_run(recovery: Path) -> None:
    application = Application(finish)
    program("cleaned").run(claimed("cleaned"), application.launch)
    assert application.spec is not None
    assert {vertex.name: vertex.params for vertex in application.spec.vertices} == {
        "raw": {},
        "cleaned": {"day": "2024-01-02"},
    }
    # What is not declared as a parameter is in no fingerprint, and may be a secret.
    for undeclared in ("s3cr3t", "t0ken", "/lake"):
        assert undeclared not in application.spec.to_json()


def test_only_an_unstable_pipelined_vertex_with_several_readers_goes_to_scratch(recovery: Path) -> None:
    application = Application(finish)
    (region,) = load_job("dagjobs.shapes:readers").regions().regions
    program(region.name, "dagjobs.shapes:readers").run(claimed(region.name), application.launch)
    assert application.spec is not None
    assert {vertex.name: (vertex.is_result, vertex.is_scratch) for vertex in application.spec.vertices} == {
        "noisy": (False, True),  # two readers
        "steady": (False, False),  # two readers, and the user's word
        "single": (False, False),  # one reader
        "first": (True, False),
        "second": (True, False),
    }


@pytest.mark.parametrize(("region", "is_digested"), [("counted", True), ("shown", False)])
def test_a_verified_result_is_digested_where_another_region_reads_it(
    recovery: Path, region: str, is_digested: bool
) -> None:
    application = Application(finish)
    read = [finished("counted", "counted")] if region == "shown" else []
    program(region, "dagjobs.shapes:verified").run(claimed(region, *read), application.launch)
    assert application.spec is not None
    assert [vertex.is_digested for vertex in application.spec.vertices] == [is_digested]


def test_externals_are_the_files_of_the_rendered_pattern(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (recovery / "lake").mkdir()
    (recovery / "lake" / "a.csv").write_text("1")
    monkeypatch.setitem(FACTS.params, "lake", str(recovery / "lake"))
    (found,) = program("cleaned").externals()
    assert (found.vertex, found.uri, found.size) == ("raw", f"file://{recovery}/lake/a.csv", 1)
    assert program("left").externals() == ()


def test_fault_363_a_file_in_an_archive_that_a_source_reads_is_named_before_spark_starts(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recovery / "lake").mkdir()
    for name in ("a.csv", "b.csv"):
        (recovery / "lake" / name).write_text("1")
    monkeypatch.setitem(FACTS.params, "lake", str(recovery / "lake"))
    whole = LocalStore.list

    def listed(store: LocalStore, *given: str, **named: str) -> Iterator[ObjectInfo]:
        for info in whole(store, *given, **named):
            yield info._replace(archived="GLACIER" if info.key == "b.csv" else "")

    monkeypatch.setattr(LocalStore, "list", listed)
    made, application = program("cleaned"), Application(finish)
    attempt = replace(claimed("cleaned"), externals=made.externals())
    with fails_with("external-denied", where="vertex 'raw'"):
        made.run(attempt, application.launch)
    assert application.spec is None
    # A subtask that reads the other file alone is not stopped.
    made.run(replace(attempt, externals=attempt.externals[:1]), application.launch)
    assert application.spec is not None


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_a_driver_on_this_machine_hands_back_the_outcome_without_a_request(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "read_outcome", lambda *_: pytest.fail("the journal was asked"))
    application = Application(finish)
    outcome = program("cleaned").run(claimed("cleaned"), application.launch)
    monkeypatch.undo()

    assert outcome == journal_in(recovery, "g").read_outcome("cleaned", 1)
    assert outcome is not None
    assert (outcome.state, outcome.writer, outcome.spark_seconds) == (AttemptState.FINISHED, "writer", 1.5)
    assert application.folder is not None
    assert not application.folder.exists()


def test_what_a_killed_task_has_left_on_the_disk_is_removed_by_the_next(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(recovery))
    killed = multiprocessing.get_context("fork").Process(
        target=program("cleaned").run,
        args=(claimed("cleaned"), lambda spec, folder: os.kill(os.getpid(), signal.SIGKILL)),
    )
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    (left,) = private_folder().glob("attempt-*")
    application = Application(finish)
    program("cleaned").run(claimed("cleaned"), application.launch)
    assert application.folder is not None
    assert application.folder.parent == left.parent
    assert not list(left.parent.glob("attempt-*"))


def test_without_a_receipt_the_outcome_is_to_be_looked_for(recovery: Path) -> None:
    assert program("cleaned").run(claimed("cleaned"), lambda spec, folder: None) is None


def test_code_that_was_replaced_before_the_launch_is_no_failure_of_the_application(recovery: Path) -> None:
    def launch(spec: RegionSpec, folder: Path) -> None:
        raise CodeReplaced("jobs/rows.py was replaced")

    with pytest.raises(CodeReplaced, match=r"jobs/rows.py was replaced"):
        program("cleaned").run(claimed("cleaned"), launch)


def test_a_receipt_of_another_attempt_does_not_count(recovery: Path) -> None:
    def mislead(spec: RegionSpec) -> None:
        write_receipt(spec, Outcome("cleaned", 1, AttemptState.FINISHED, "another writer", "now"))

    assert program("cleaned").run(claimed("cleaned"), Application(mislead).launch) is None


def fail(failure: Failure | None) -> Callable[[RegionSpec], None]:
    def run(spec: RegionSpec) -> None:
        if failure is not None:
            write_failure(spec, failure)
        raise RuntimeError("Error code is: 1")

    return run


FAILURES = [
    (Failure("AnalysisException", "no t", "TABLE_OR_VIEW_NOT_FOUND", "42P01", vertex="a"), True),
    (Failure("ParseException", "syntax"), True),
    (Failure("TypeError", "int and str"), True),
    (Failure("RuntimeError", "the weather"), False),
    (Failure("SparkException", "gone", "FAILED_READ_FILE.FILE_NOT_EXIST", "KD001"), False),
    (Failure("AnalysisException", "gone", "PATH_NOT_FOUND", "42K03"), False),
    (None, False),
]


@pytest.mark.parametrize(("failure", "is_users"), FAILURES, ids=lambda each: getattr(each, "type", str(each)))
def test_fault_78_a_failure_is_told_and_classified(recovery: Path, failure: Failure | None, is_users: bool) -> None:
    with pytest.raises(RegionFailed, match="cleaned@1") as caught:
        program("cleaned").run(claimed("cleaned"), Application(fail(failure)).launch)
    assert isinstance(caught.value, UserCodeError) is is_users
    said_nothing = Failure("DriverLost", "It ended without an outcome and said nothing. (Error code is: 1)")
    assert caught.value.cause == (failure or said_nothing)
    assert str(caught.value.__cause__) == "Error code is: 1"


def test_fault_119_what_the_driver_said_is_deleted_when_it_is_in_the_journal(recovery: Path, drivers: Drivers) -> None:
    drivers.meanwhile = lambda: fail(Failure("RuntimeError", "the weather"))(drivers.specs[-1])
    (task,) = (task for task in job_dag("dagjobs.shapes:diamond").tasks if task.task_id == "g.aside")
    with pytest.raises(RegionFailed, match="the weather"):
        run_try(task)
    outcome = journal_in(recovery, "g").read_outcome("aside", 1)
    assert outcome is not None
    assert outcome.failure is not None
    assert outcome.failure.message == "the weather"
    assert list((recovery / "results").rglob("_failure.json")) == []


def test_fault_119_what_the_driver_said_stays_until_it_is_in_the_journal(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StoreTimeout("no answer (injected)")

    drivers.meanwhile = lambda: fail(Failure("RuntimeError", "the weather"))(drivers.specs[-1])
    (task,) = (task for task in job_dag("dagjobs.shapes:diamond").tasks if task.task_id == "g.aside")
    monkeypatch.setattr(Journal, "fence", refuse)
    with pytest.raises(StoreTimeout):
        run_try(task)
    assert len(list((recovery / "results").rglob("_failure.json"))) == 1


def test_fault_78_control_without_the_classification_it_would_be_retried(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.task.region_program.is_user_error", lambda failure: False)
    with pytest.raises(RegionFailed) as caught:
        program("cleaned").run(claimed("cleaned"), Application(fail(FAILURES[0][0])).launch)
    assert not isinstance(caught.value, UserCodeError)


def test_what_a_failure_says(recovery: Path) -> None:
    application = Application(finish)
    program("cleaned").run(claimed("cleaned"), application.launch)
    assert application.spec is not None
    told = str(region_failed(application.spec, FAILURES[0][0], RuntimeError("x")))
    assert told.startswith("cleaned@1 failed in vertex a: AnalysisException: no t [TABLE_OR_VIEW_NOT_FOUND, 42P01].")
    assert "is not retried" in told
    assert "was killed, or never started. (x)" in str(region_failed(application.spec, None, RuntimeError("x")))
    advised = start_failure(RuntimeError("KubernetesClientException: pods is forbidden: no. Error code is: 1."))
    assert advised is not None
    told = str(region_failed(application.spec, advised, RuntimeError("x")))
    assert told.count("Kubernetes refuses it: ") == 1
