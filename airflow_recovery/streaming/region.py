"""One attempt of a streaming region, in its driver: it runs while the regions at the other ends of its channels run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.driver.progress import Progress, is_remote
from airflow_recovery.driver.spark_schema import read_schema
from airflow_recovery.driver.vertex_pass import OpenRegion, VertexPass
from airflow_recovery.errors import ChannelEvicted, JobDefinitionError
from airflow_recovery.job.accumulators import Accumulators
from airflow_recovery.streaming.channel_records import LossCause
from airflow_recovery.streaming.checkpoint import Checkpoint, Place, lineage_key, prepare_checkpoint
from airflow_recovery.streaming.draining import Draining
from airflow_recovery.streaming.ends import ChannelInput, ChannelOutput, check_both_logs
from airflow_recovery.streaming.folder import CheckpointFolder, checkpoints_of
from airflow_recovery.streaming.frame import (
    check_columns,
    check_options,
    check_state,
    check_streaming,
    keeps_state,
    schema_of,
    streams_of,
)
from airflow_recovery.streaming.query import OpenStream, how_far, run_query
from airflow_recovery.streaming.query_errors import cause_of
from airflow_recovery.streaming.result import compact
from airflow_recovery.streaming.spec import StreamingSpec
from airflow_recovery.streaming.workers import equip_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from airflow_recovery.model.manifest import PartitionManifest

KEPT_BATCHES = 10
"""Of Spark's own checkpoint, which is copied with each restart. The log's newest batch is its last or last but one."""


def run_streaming(region: OpenRegion, streaming: StreamingSpec, progress: Progress) -> AttemptResult:
    """Run the region to the end of its input; the last one's result is written then, out of all that was committed.

    Where an earlier attempt has come to that end, only what is missing behind it is done. Raises what a vertex or Spark
    raises; `AttemptLost` where a newer attempt has taken an end; `ChannelAltered`, `ChannelInconsistent`,
    `ChannelFailed` and `LossBudgetExceeded` of the channels; `StoreUnsuitable`; and `UserCodeError` for what can't be
    run on streams.
    """
    accumulators = Accumulators()
    runner = _StreamingRegion(region, streaming, progress, accumulators)
    try:
        outputs = runner.run()
    except ChannelEvicted as error:
        raise cause_of(error) from error
    counted = tuple(sorted({**dict(accumulators.totals()), **runner.counts()}.items()))
    return AttemptResult(outputs, 0.0, None, counted)


class _StreamingRegion:
    def __init__(
        self, region: OpenRegion, streaming: StreamingSpec, progress: Progress, accumulators: Accumulators
    ) -> None:
        self._region = region
        self._streaming = streaming
        self._progress = progress
        self._accumulators = accumulators
        spec, log = region.spec, region.log
        self._source = None if streaming.input is None else ChannelInput(region.store, spec, streaming.input, log)
        self._output = None if streaming.output is None else ChannelOutput(region.store, spec, streaming.output)
        self._result = self._result_name()
        self._keeps_state = False
        self._state_rows: int | None = None
        self._where = region.vertex(self._result).where

    def _result_name(self) -> str:
        if self._streaming.output is not None:
            return self._streaming.output.result
        (name,) = (vertex.name for vertex in self._region.spec.vertices if vertex.is_result)
        return name

    def run(self) -> tuple[PartitionManifest, ...]:
        """Run to the end of the input. Returns the last region's manifest; none where the region feeds a channel."""
        frame = self._frame()
        opened = self._open(frame)
        self._region.log.info("Attempt %d begins: %s.", self._region.spec.attempt, how_far(opened))
        if not self._is_over():
            self._progress.vertex = self._result
            self._state_rows = run_query(opened, self._writer(opened, frame), self._progress)
        if self._output is not None:
            self._output.finish()
        outputs = () if self._output is not None else (compact(opened, self._result),)
        if self._source is not None:
            swept = self._source.leave()
            self._region.log.info("%s. Orphans swept: %d.", self._source.report().text(), swept)
        return outputs

    def counts(self) -> dict[str, float]:
        """For the outcome: what of the input is committed and lost, over all attempts in this generation."""
        counts: dict[str, float] = {} if self._state_rows is None else {"state rows": self._state_rows}
        if self._source is None:
            return counts
        report = self._source.report()
        counts[f"{report.edge}: records committed"] = report.records - report.lost
        counts.update({f"{report.edge}: records lost ({cause.value})": 0 for cause in LossCause})
        counts.update({f"{report.edge}: records lost ({cause.value})": lost for cause, lost in report.causes})
        return counts

    def _is_over(self) -> bool:
        if self._output is not None and self._output.client.state.is_finished:
            return True
        return self._source is not None and self._source.refresh().is_drained

    def _frame(self) -> DataFrame:
        region, streaming = self._region, self._streaming
        spark = region.spark
        if is_remote(spark):
            raise JobDefinitionError(
                f"{self._where}: expected an application of its own for a streaming region, found a Spark Connect "
                "server: such a region reads and commits in its own driver. Run the job with spark-submit "
                "(connection type 'spark')"
            )
        check_options(self._where, streaming)
        equip_workers(spark, region.spec.results.uri)
        quiet(spark)
        # A batch without data would commit nothing, and what it lets go of its state would be lost.
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", str(KEPT_BATCHES))
        if self._source is not None:
            region.side_inputs[self._source.channel.result] = self._read(self._source)
        calls = VertexPass(region, progress=self._progress, accumulators=self._accumulators)
        frame = calls.lazy_frames()[self._result]
        check_streaming(self._where, frame)
        check_columns(self._where, frame, streaming)
        self._keeps_state = keeps_state(frame)
        check_state(self._where, self._keeps_state, streaming)
        return frame

    def _read(self, source: ChannelInput) -> DataFrame:
        from airflow_recovery.streaming.source import SOURCE, ChannelReading, ChannelSource

        spark, spec = self._region.spark, self._region.spec
        state = source.wait_until_open()
        spark.dataSource.register(ChannelSource)
        lineage = lineage_key(CheckpointFolder(spec.identity, spec.region), checkpoints_of(spec.attempt, spec.folder))
        reading = ChannelReading(spec.results, source.identity, spec.attempt, self._streaming.max_rows, lineage)
        schema = read_schema(state.schema)
        return spark.readStream.format(SOURCE).schema(schema).options(**reading.options()).load()

    def _open(self, frame: DataFrame) -> OpenStream:
        region, spec, streaming = self._region, self._region.spec, self._streaming
        schema, published = schema_of(frame), None
        draining: list[Draining] = []
        if self._output is not None:
            # First: no older attempt can publish any more, and what is published decides what was read.
            earlier = self._output.newest_of_earlier(min(streaming.earlier)) if streaming.earlier else None
            published = self._output.open(schema, replays=streaming.replays)
            published = earlier if earlier is not None and published.epoch < 0 else published
        completed, begins = -1 if published is None else published.epoch, None
        if self._source is not None:
            draining = [self._source.begin_draining(number, published) for number in self._source.channel.drained]
            state = self._source.connect(published)
            completed = max(state.checkpoint, *(drained.completed for drained in draining), -1)
            check_both_logs(completed, published)
            begins = Place(self._source.channel.generation, state.done)
        keeps = self._keeps_state or streaming.stateful
        left = [drained for drained in draining if drained.rest]
        folder, own = CheckpointFolder(spec.identity, spec.region), checkpoints_of(spec.attempt, spec.folder)
        if self._is_over():
            checkpoint = Checkpoint(f"{folder.attempt(own)}/checkpoint", completed + 1, -1, completed, begins)
            return OpenStream(region, self._source, self._output, checkpoint, schema, keeps)
        checkpoint = prepare_checkpoint(
            region.store,
            folder,
            own,
            earlier=streaming.checkpoints,
            completed=completed,
            may_begin=self._source is not None and not keeps and streams_of(frame) == 1,
            begins=begins,
            skips=1 if left else 0,
        )
        for drained in left:
            region.log.warning("%d records of an altered channel's generation are lost, and counted.", drained.rest)
            drained.discard_remaining(checkpoint.cut_to)
        return OpenStream(region, self._source, self._output, checkpoint, schema, keeps)

    def _writer(self, opened: OpenStream, frame: DataFrame) -> DataStreamWriter:
        streaming = self._streaming
        writer = (
            frame.writeStream.queryName(f"{self._region.spec.region}-{self._region.spec.attempt}")
            .outputMode(streaming.output_mode)
            .option("checkpointLocation", spark_path(f"{self._region.store.base_uri}/{opened.checkpoint.key}"))
        )
        if self._source is None and streaming.run_for_s is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(streaming.trigger_s * 1000)} milliseconds")


def quiet(spark: SparkSession) -> None:
    """Spark tells twice of each look for new data, and that is once a second; best effort."""
    jvm: Any = spark.sparkContext._jvm
    with suppress(Exception):
        levels = jvm.org.apache.logging.log4j
        levels.core.config.Configurator.setLevel("org.apache.spark.sql.execution.streaming", levels.Level.WARN)
