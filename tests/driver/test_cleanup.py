"""Scratch goes when its own attempt has finished, and nothing else does."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from runtime_specs import region_spec, vertex

from airflow_recovery.driver import RegionSpec
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.cleanup import scratch_location
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.errors import AttemptLost, StoreAccessDenied
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import AttemptState, FenceCause, Outcome
from airflow_recovery.store.local import LocalStore

LOG = logging.getLogger("test_scratch")
RESULT = AttemptResult((), 1.0, None)


def written(folder: Path, attempt: int = 1) -> RegionSpec:
    """An attempt that has written a scratch vertex, a result, and a result that is called like the scratch folder."""
    names = (vertex("noisy", is_scratch=True), vertex("left", is_result=True), vertex("plain"))
    spec = region_spec(folder, *names, attempt=attempt)
    for name in (
        scratch_location(spec, "noisy"),
        f"{scratch_location(spec, 'noisy')}/.crc",
        f"{spec.location}/left",
        f"{spec.location}/_scratch",
    ):
        file = Path(name.removeprefix("file://")) / "part-0"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("rows")
    return spec


def left_of(spec: RegionSpec) -> list[str]:
    root = Path(spec.location.removeprefix("file://"))
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def outcome_of(spec: RegionSpec) -> Outcome | None:
    return Journal(LocalStore(spec.journal.uri), spec.identity, writer="test").read_outcome(spec.region, spec.attempt)


KEPT = ["_scratch/part-0", "left/part-0"]


def test_it_is_deleted_after_the_outcome_and_nothing_else_is(tmp_path: Path) -> None:
    spec, other = written(tmp_path), written(tmp_path, attempt=2)
    before = left_of(other)
    finish_attempt(spec, RESULT, LOG)
    assert left_of(spec) == KEPT
    assert left_of(other) == before
    assert not Path(scratch_location(spec, "noisy").removeprefix("file://")).exists()


def test_it_is_there_until_the_outcome_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = written(tmp_path)
    order: list[str] = []
    finish, delete = Journal.finish, LocalStore.delete
    monkeypatch.setattr(Journal, "finish", lambda *given: (order.append("outcome"), finish(*given))[1])
    monkeypatch.setattr(LocalStore, "delete", lambda *given: (order.append("delete"), delete(*given))[1])
    finish_attempt(spec, RESULT, LOG)
    assert order == ["outcome", "delete"]


def test_fault_13_a_fenced_attempt_deletes_all_that_it_wrote_and_nothing_else(tmp_path: Path) -> None:
    spec, other = written(tmp_path), written(tmp_path, attempt=2)
    before = left_of(other)
    journal = Journal(LocalStore(spec.journal.uri), spec.identity, writer="successor")
    fenced = Outcome("r", 1, AttemptState.FENCED, "successor", "now", cause=FenceCause.SUPERSEDED)
    journal.fence(fenced)
    with pytest.raises(AttemptLost):
        finish_attempt(spec, RESULT, LOG)
    assert left_of(spec) == []
    assert left_of(other) == before


def test_a_store_that_refuses_fails_no_finished_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*given: object) -> None:
        raise StoreAccessDenied("no deletions here")

    spec = written(tmp_path)
    monkeypatch.setattr(LocalStore, "delete", refuse)
    with caplog.at_level(logging.WARNING):
        finish_attempt(spec, RESULT, LOG)
    assert "The scratch data of r attempt 1 is left behind: no deletions here" in caplog.text
    outcome = outcome_of(spec)
    assert outcome is not None
    assert outcome.state is AttemptState.FINISHED


def test_without_scratch_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.driver.cleanup.open_spec_store", lambda spec: pytest.fail("asked"))
    finish_attempt(region_spec(tmp_path, vertex("left", is_result=True)), RESULT, LOG)
