"""Who may write results decides what a stream has committed. SECURITY.md names this as a limit; here is the program."""

from __future__ import annotations

from pathlib import Path

from fakes import MemoryStore
from streaming_run import RUN, StreamingRun

from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.results.mode import CommittedBatches
from airflow_recovery.streaming.channel_records import BatchCommitted, CheckpointPlanned, ViewCreated
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.committed import committed_batches
from airflow_recovery.streaming.ranges import between

SECURITY = Path(__file__).parents[2] / "SECURITY.md"
FORGER = 99
FORGED = f"out/{FORGER}/forged.parquet"


def committed(run: StreamingRun) -> CommittedBatches:
    return committed_batches(run.results, RUN, run.plan, run.state(), "totals")


def plan(state: ChannelState) -> CheckpointPlanned:
    """As if everything that is published were read."""
    done = tuple(sub.done for sub in state.subs)
    read = tuple(tuple(between(start, end)) for start, end in zip(done, state.ends, strict=True))
    return CheckpointPlanned(FORGER, done, state.ends, read)


def commit(state: ChannelState) -> BatchCommitted:
    return BatchCommitted(FORGER, state.checkpoint + 1, state.ends, (FORGED,))


def test_a_control_log_that_lies_with_the_results_takes_the_commit_of_whoever_may_write_there() -> None:
    journal = MemoryStore("memory://journal")
    run = StreamingRun(journal, MemoryStore("memory://results"))
    source, scorer, _ = run.source(), run.scorer(), run.sink()
    run.emit(source, 5)
    scorer.work()
    before = dict(journal.objects)

    forger = run.client("scored")  # it is given the results' store alone
    forger.put(FORGED, b"rows of the forger")
    forger.append(lambda state: ViewCreated(FORGER, Reconnect.REWIND, (), -1))
    forger.append(plan)
    forger.append(commit)

    assert journal.objects == before
    assert [file.rpartition("/_channels/")[2].partition("/out/")[2] for file in committed(run).files] == [
        f"{FORGER}/forged.parquet"
    ]


def test_the_limit_is_documented() -> None:
    text = " ".join(SECURITY.read_text(encoding="utf-8").split())
    assert "The control logs of streams lie with the results" in text
