"""The query of a streaming region, batch by batch: what is written, and in which order it is committed.

A region with a channel at each end writes two logs: first the epoch of its output, then the checkpoint of its input.
Where it dies in between, the next attempt finds the epoch, and completes the checkpoint with it.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_recovery.errors import ChannelEvicted, ChannelFailed, ChannelInconsistent
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.checkpoint import Checkpoint
from airflow_recovery.streaming.ends import ChannelInput, ChannelOutput, PlannedBatch
from airflow_recovery.streaming.folder import ChannelFolder
from airflow_recovery.streaming.query_errors import cause_of
from airflow_recovery.streaming.spec import StreamingSpec
from airflow_recovery.streaming.writing import Body, Target, empty_file, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from airflow_recovery.driver.progress import Progress
    from airflow_recovery.driver.vertex_pass import OpenRegion

SHORTEST_POLL_S, LONGEST_POLL_S = 0.2, 5.0
SAY_EVERY_S = 10.0
SETTLE_S = 5.0


class QueryEnded(Exception):
    """A batch that came after the region's end: it was not begun."""


@dataclass(frozen=True)
class OpenStream:
    """An attempt whose ends are open, and whose checkpoint is there. ``schema``: of what it makes, as JSON."""

    region: OpenRegion
    source: ChannelInput | None
    output: ChannelOutput | None
    checkpoint: Checkpoint
    schema: str
    keeps_state: bool


class QueryBatches:
    """What is done with each micro-batch: Spark calls it in a thread of its own, one batch at a time."""

    def __init__(self, stream: OpenStream) -> None:
        self._stream = stream
        self._spec = stream.region.spec
        self._log = stream.region.log
        self._gate = threading.Lock()
        self._ended = False
        self.error: BaseException | None = None
        self.is_refused = False
        self.number = -1
        """Of the newest batch, as Spark counts."""

    def __call__(self, frame: DataFrame, number: int) -> None:
        """The function for ``foreachBatch``."""
        with self._gate:
            if self._ended:
                self.is_refused = True
                raise QueryEnded(f"batch {number} comes after the end of the region")
            try:
                self.number = number
                self._batch(frame, self._stream.checkpoint.base + number)
            except BaseException as error:
                self.error = error
                raise

    def end(self, timeout_s: float = -1) -> None:
        """Let the batch at work come to its end, and no other one begin. -1: however long it takes."""
        is_idle = self._gate.acquire(timeout=timeout_s)
        self._ended = True
        if is_idle:
            self._gate.release()

    def _batch(self, frame: DataFrame, batch: int) -> None:
        source, output = self._stream.source, self._stream.output
        planned = source.planned() if source is not None else None
        if self._is_repeated(batch, planned):
            # Without data, or completed in the log: only Spark's own state may miss it.
            if self._stream.keeps_state:
                frame.write.format("noop").mode("overwrite").save()
            self._log.debug("Batch %d: nothing to commit.", batch)
            return
        if output is not None:
            self._publish(frame, batch, output, planned)
        elif source is not None and planned is not None:
            source.commit(batch, planned, self._written(frame, batch, source))
            self._log_committed(batch, planned)

    def _is_repeated(self, batch: int, planned: PlannedBatch | None) -> bool:
        if batch <= self._stream.checkpoint.cut_to:
            return True
        if self._stream.source is not None:
            return planned is None
        return self._stream.output is not None and self._stream.output.is_published(batch)

    def _publish(self, frame: DataFrame, batch: int, output: ChannelOutput, planned: PlannedBatch | None) -> None:
        written = write_batch(frame, self._segments(output), output.channel.partition_by)
        output.publish(batch, written, () if planned is None else (planned.consumed,))
        if planned is not None:
            assert self._stream.source is not None
            self._stream.source.commit(batch, planned)
            self._log_committed(batch, planned)
        self._log.debug(
            "Batch %d: %d records in %d segments.", batch, sum(segment.count for segment in written), len(written)
        )

    def _segments(self, output: ChannelOutput) -> Target:
        channel = output.channel
        return Target(
            self._spec.results,
            output.client.folder.prefix,
            f"seg/{self._spec.attempt}",
            self._stream.schema,
            Body.ARROW,
            channel.subpartitions,
            bool(channel.partition_by),
        )

    def _written(self, frame: DataFrame, batch: int, source: ChannelInput) -> tuple[str, ...]:
        """The files of a batch of the last region; they exist for readers when the log's commit names them."""
        name = f"out/{self._spec.attempt}/{batch}-{uuid.uuid4().hex[:12]}"
        folder = ChannelFolder(source.identity).prefix
        target = Target(self._spec.results, folder, name, self._stream.schema, Body.PARQUET)
        files = sorted(write_batch(frame, target), key=lambda file: file.task)
        if not files and StreamingSpec.of(self._spec).output_mode == "complete":
            return (empty_file(self._stream.region.store, target),)  # the running table is empty now
        return tuple(file.key for file in files)

    def _log_committed(self, batch: int, planned: PlannedBatch) -> None:
        self._log.debug("Batch %d: %d records are committed.", batch, sum(planned.records))
        if planned.lost:
            self._log.warning("Batch %d: %d records are lost, and in the ledger.", batch, planned.lost)


def run_query(stream: OpenStream, writer: DataStreamWriter, progress: Progress) -> int | None:
    """Run the query until its input has ended and all of it is committed. Raises what ended it before.

    Returns how many rows its state has then; `None` where it has none, or Spark does not say.
    """
    batches = QueryBatches(stream)
    query = writer.foreachBatch(batches).start()
    try:
        _wait(stream, batches, query, progress)
        return _state_rows(batches, query) if stream.keeps_state else None
    except Exception as error:
        cause = cause_of(error, batches.error)
        if cause is error:
            raise
        raise cause from error
    finally:
        batches_over(batches, query)


def batches_over(batches: QueryBatches, query: StreamingQuery) -> None:
    """Stop the query, which interrupts a batch that is still at work: a producer may wait for room for long."""
    batches.end(SETTLE_S)
    try:
        query.stop()
    except Exception:  # the JVM is gone, or its context: then there is nothing to stop
        return


def _wait(stream: OpenStream, batches: QueryBatches, query: StreamingQuery, progress: Progress) -> None:
    spec = StreamingSpec.of(stream.region.spec)
    poll_s = max(SHORTEST_POLL_S, min(spec.trigger_s, LONGEST_POLL_S))
    until = None if spec.run_for_s is None else time.monotonic() + spec.run_for_s
    logged_at, logged = time.monotonic(), ""
    while not query.awaitTermination(poll_s):  # type: ignore[arg-type]  # seconds, and parts of them
        if stream.source is not None:
            state = stream.source.refresh()
            if state.view != stream.source.attempt or has_ended(stream.source, state):
                break
        elif until is not None and time.monotonic() > until:
            break
        text = how_far(stream)
        if text != logged and time.monotonic() - logged_at >= SAY_EVERY_S:
            logged_at, logged = time.monotonic(), text
            progress.say(text)
    batches.end()
    # Spark may not have noticed yet that a batch has failed.
    failed = query.exception() or batches.error
    if failed is not None and not batches.is_refused:
        raise failed
    if stream.source is not None:
        state = stream.source.refresh()
        if state.view != stream.source.attempt:
            raise ChannelEvicted(f"attempt {state.view} holds the only view")
        if not state.is_drained:
            raise ChannelInconsistent("the region's query has ended by itself, before its input has: retry it")


def _state_rows(batches: QueryBatches, query: StreamingQuery) -> int | None:
    """Of the last batch, once Spark has told of it: it does so after its own commit, which comes after ours."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        last = query.lastProgress
        if last is not None and last["batchId"] >= batches.number:
            return sum(int(operator["numRowsTotal"]) for operator in last["stateOperators"])
        time.sleep(SHORTEST_POLL_S / 4)
    return None


def has_ended(source: ChannelInput, state: ChannelState) -> bool:
    """Whether everything is committed. Raises `ChannelFailed` where no more will come, although more was to come."""
    if state.is_drained:
        return True
    if state.failed is not None and state.done == state.ends:
        raise ChannelFailed(
            f"channel {source.channel.result!r}: its producer has given up: {state.failed}. All that it had published "
            "is committed. Restart it; this region may go on afterwards"
        )
    return False


def how_far(stream: OpenStream) -> str:
    """One line for the task's log: how far both ends are."""
    ends = [end.text() for end in (stream.source, stream.output) if end is not None]
    return "; ".join(ends)
