"""Fresh results: what the last region has committed so far, for readers outside the run.

source ==raw==> scorer ==scored==> sink -> totals
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from expected_errors import fails_with
from fakes import MemoryStore
from streaming_run import RUN, StreamingRun

from airflow_recovery.hooks.result import RecoveryResultHook
from airflow_recovery.model.channel_options import LossBudget, Reconnect
from airflow_recovery.results.mode import CommittedBatches
from airflow_recovery.store.local import LocalStore
from airflow_recovery.streaming.committed import committed_batches


def run_of(**options: Any) -> StreamingRun:
    return StreamingRun(MemoryStore("memory://journal"), MemoryStore("memory://results"), **options)


def committed(run: StreamingRun, **options: Any) -> CommittedBatches:
    return committed_batches(run.results, RUN, run.plan, run.state(), "totals", **options)


def test_nothing_is_there_before_the_first_commit() -> None:
    assert committed(run_of()) == CommittedBatches("sink", (), -1, 0, 0)


def test_each_commit_shows_and_what_is_not_committed_does_not() -> None:
    run = run_of()
    source, scorer, sink = run.source(), run.scorer(), run.sink()
    for rows in (5, 7):
        run.emit(source, rows)
        scorer.work()
    run.sink_all(sink)
    run.emit(source, 3)
    scorer.work()
    sink.client.put("out/1/9-not-named.parquet", b"of a batch that died before its commit")
    found = committed(run)
    assert (found.batch, found.records, found.lost) == (0, 12, 0)
    assert len(found.files) == 1
    assert "not-named" not in found.files[0]
    assert found.files[0].startswith("memory://results/_channels/")
    run.sink_all(sink)
    assert len(committed(run).files) == 2
    assert committed(run, newest_batch=True).files == committed(run).files[-1:]


def test_what_is_lost_is_told_and_an_old_generation_does_not_count() -> None:
    run = run_of(reconnect=Reconnect.LATEST, budget=LossBudget(max_lost_records=100))
    source, scorer, sink = run.source(), run.scorer(), run.sink()
    run.emit(source, 5)
    scorer.work()
    run.sink_all(sink)
    run.emit(source, 4)
    scorer.work()
    second = run.sink()
    run.emit(source, 1)
    scorer.work()
    run.sink_all(second)
    assert committed(run).lost == 4
    run.new_generation()
    assert committed(run) == CommittedBatches("sink", (), -1, 0, 0)


def test_another_result_is_refused_by_name() -> None:
    run = run_of()
    with fails_with("not-made-from-channel", found="scores"):
        committed_batches(run.results, RUN, run.plan, run.state(), "scores")


def test_of_a_run_that_is_being_purged_nothing_is_read() -> None:
    run = run_of()
    source, scorer, sink = run.source(), run.scorer(), run.sink()
    run.emit(source, 5)
    scorer.work()
    run.sink_all(sink)
    state = run.state()
    closed = {name: replace(region, closed_at=max(region.latest_attempt, 1)) for name, region in state.regions.items()}
    with fails_with("channel-run-purged"):
        committed_batches(run.results, RUN, run.plan, replace(state, regions=closed, is_closed=True), "totals")


def test_the_hook_finds_them_by_the_logical_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, results = tmp_path / "journal", tmp_path / "results"
    for each in (journal, results):
        each.mkdir()
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", f"file://{journal}")
    monkeypatch.setenv("AIRFLOW__RECOVERY__RESULTS", f"file://{results}")
    run = StreamingRun(LocalStore(str(journal)), LocalStore(str(results)))
    source, scorer, sink = run.source(), run.scorer(), run.sink()
    run.emit(source, 6)
    scorer.work()
    run.sink_all(sink)
    committed = RecoveryResultHook().get_committed(
        "flights", "totals", group_id="flights", logical_date="2026-01-01T00:00:00+00:00"
    )
    assert (committed.records, committed.lost, len(committed.files)) == (6, 0, 1)
    assert Path(committed.files[0].removeprefix("file://")).is_file()
