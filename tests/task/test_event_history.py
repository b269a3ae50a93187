"""The event streams as the operators write them: masked, whole, and what becomes of a task where they can't be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from expected_errors import fails_with
from job_tasks import GROUP, Drivers, job_dag
from tries import journal_in, run_try

from airflow_recovery.errors import RegionFailed, StoreUnavailable
from airflow_recovery.journal.history import read_stream
from airflow_recovery.journal.replay import differences, replay
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.store.local import LocalStore
from airflow_recovery.task import open_run

SECRET = "hunter2-and-more"
REGIONS = ("aside", "cleaned", "left", "right", "joined")


def tasks(**given: Any) -> dict[str, SparkRegionOperator]:
    dag = job_dag("dagjobs.shapes:diamond", **given)
    return {task.region: task for task in dag.tasks if isinstance(task, SparkRegionOperator)}


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def unlike(folder: Path) -> tuple[str, ...]:
    journal = journal_in(folder, GROUP)
    return differences(journal.load(journal.list(REGIONS)), replay(journal).state)


def test_the_history_of_tries_comes_to_the_state_of_the_journal(recovery: Path, drivers: Drivers) -> None:
    (recovery / "lake").mkdir()
    (recovery / "lake" / "a.csv").write_text("1")
    params = {"lake": str(recovery / "lake")}
    region = tasks()
    run_try(region["aside"])

    def fail() -> None:
        raise RegionFailed("lost its way")

    drivers.meanwhile = fail
    with pytest.raises(RegionFailed):
        run_try(region["cleaned"], params=params)
    for name in ("cleaned", "left", "right", "joined", "joined"):
        run_try(region[name], params=params, try_number=2)
    found = replay(journal_in(recovery, GROUP))
    assert unlike(recovery) == ()
    assert found.gaps == ()
    assert found.writers == 7


@pytest.fixture
def secret() -> Iterator[None]:
    reset_secrets_masker()
    mask_secret(SECRET)
    yield
    reset_secrets_masker()


def fail_with_the_secret() -> None:
    raise RegionFailed(f"can't open jdbc:postgresql://etl:{SECRET}@db/warehouse?token={SECRET}")


@pytest.mark.slow
def test_fault_84_no_secret_that_airflow_knows_gets_into_the_journal(
    recovery: Path, drivers: Drivers, secret: None
) -> None:
    drivers.meanwhile = fail_with_the_secret
    with pytest.raises(RegionFailed):
        run_try(tasks()["aside"])
    run_try(tasks()["aside"], try_number=2)
    written = bytes_in(recovery / "journal")
    assert b"can't open jdbc:postgresql://***@db/warehouse?token=***" in written
    assert SECRET.encode() not in written
    assert unlike(recovery) == ()


def test_fault_84_control_without_the_mask_it_stands_in_outcome_and_stream(
    recovery: Path, drivers: Drivers, secret: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "mask_secrets", lambda text: text)
    drivers.meanwhile = fail_with_the_secret
    with pytest.raises(RegionFailed):
        run_try(tasks()["aside"])
    journal = recovery / "journal"
    assert SECRET.encode() in bytes_in(journal / "d")
    assert SECRET.encode() in bytes_in(journal / "_streams")


def refuse_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store takes records, and no streams."""
    real = LocalStore.put_if_absent

    def put(self: LocalStore, key: str, body: bytes) -> object:
        if key.startswith("_streams/"):
            raise StoreUnavailable("no space left (injected)")
        return real(self, key, body)

    monkeypatch.setattr(LocalStore, "put_if_absent", put)
    close = open_run.EventWriter.close
    monkeypatch.setattr(open_run.EventWriter, "close", lambda self: close(self, 0.05))


@pytest.fixture
def no_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_streams(monkeypatch)


def test_fault_42_by_default_the_task_goes_on_and_says_that_the_history_has_a_hole(
    recovery: Path, drivers: Drivers, no_streams: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert run_try(tasks()["aside"])["decision"] == "ran"
    assert "The history of this run has a hole" in caplog.text
    assert "Recovery is not affected" in caplog.text
    assert unlike(recovery) != ()


def test_fault_42_by_policy_the_task_fails_and_its_next_try_tells_what_is_missing(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = {"job-event.store.on-failure": "fail"}
    with monkeypatch.context() as patched:
        refuse_streams(patched)
        with fails_with("events-not-written"):
            run_try(tasks(job_recovery=strict)["aside"])
    assert run_try(tasks(job_recovery=strict)["aside"], try_number=2)["decision"] == "kept"
    assert len(drivers.specs) == 1
    journal = journal_in(recovery, GROUP)
    finished = [each.event for each in read_stream(journal.store, journal.identity)]
    assert any(event.type == "ExecutionVertexFinished" for event in finished)
    assert journal.load(journal.list(REGIONS)).of("aside").current is not None
    assert replay(journal).state.of("aside").current is not None


def test_the_failure_of_the_task_is_told_even_if_its_events_can_not_be_written(
    recovery: Path, drivers: Drivers, no_streams: None
) -> None:
    drivers.meanwhile = fail_with_the_secret
    with pytest.raises(RegionFailed, match="can't open"):
        run_try(tasks(job_recovery={"job-event.store.on-failure": "fail"})["aside"])


@pytest.mark.parametrize("place", ["group", "config"])
def test_the_options_reach_the_store(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    given: list[dict[str, Any]] = []
    real = open_run.EventWriter

    def make(*arguments: Any, **options: Any) -> Any:
        given.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(open_run, "EventWriter", make)
    size, interval = "job-event.store.write-buffer.size", "job-event.store.write-buffer.flush-interval"
    if place == "config":
        monkeypatch.setenv("AIRFLOW__RECOVERY__JOB_EVENT_STORE_WRITE_BUFFER_SIZE", "2 mb")
        monkeypatch.setenv("AIRFLOW__RECOVERY__JOB_EVENT_STORE_WRITE_BUFFER_FLUSH_INTERVAL", "250 ms")
    run_try(tasks(job_recovery={size: "2 mb", interval: "250 ms"} if place == "group" else None)["aside"])
    assert (given[0]["buffer_bytes"], given[0]["flush_interval_s"]) == (2 * 1024 * 1024, 0.25)


def test_a_wrong_option_in_the_configuration_is_named_where_the_dag_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOB_EVENT_STORE_ON_FAILURE", "whatever")
    with fails_with("option-value-unknown", key="job-event.store.on-failure"):
        tasks()
