"""A run of three streaming regions without Spark: its journal and its channels, written by the real protocol code.

    source ==raw==> scorer ==scored==> sink -> totals        ``==`` is a channel; regions are named as written

Rows are integers, a segment is a JSON list of them; an output of the sink is a Parquet file with a row for each.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from channel_consumer import ChannelConsumer
from channel_ends import SUBS, bodies, rows_of, spread

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.channel_options import UNLIMITED, LossBudget, Reconnect
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    FenceCause,
    Outcome,
    PlanRecord,
    Publish,
    PublishedRegion,
    Reset,
    RunIdentity,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store import ObjectStore
from airflow_recovery.store.write_once import Backoff
from airflow_recovery.streaming.channel_graph import ChannelGraph
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.mode import ChannelPlan, StreamingClaim, StreamingOutcome, StreamingPlan
from airflow_recovery.streaming.producer import ChannelProducer
from airflow_recovery.streaming.work import streaming_work

RUN = RunIdentity("flights", "date-2026-01-01T000000Z", "flights")
RAW, SCORED = ChannelPlan("raw", "source"), ChannelPlan("scored", "scorer")
REGIONS = {"source": ((), (RAW,)), "scorer": ((RAW,), (SCORED,)), "sink": ((SCORED,), ())}
NO_PAUSE = Backoff(initial_s=0.0)


def streaming_plan(*, replays: bool = True) -> PlanRecord:
    regions = (
        RegionPlan(
            name=name,
            vertices=(name,),
            results=("totals",) if name == "sink" else (),
            inputs=(),
            final=name == "sink",
            fingerprint="code 1",
            mode=StreamingPlan(channels_in=channels_in, channels_out=channels_out, replays=replays),
        )
        for name, (channels_in, channels_out) in REGIONS.items()
    )
    return PlanRecord("jobs:flights", tuple(regions), failover_strategy=FailoverStrategy.APPROXIMATE_SINGLE)


class StreamingRun:
    """``committed`` has what each batch of the sink has written, by output key."""

    def __init__(
        self,
        journal: ObjectStore,
        results: ObjectStore,
        *,
        reconnect: Reconnect = Reconnect.REWIND,
        budget: LossBudget = UNLIMITED,
        max_bytes: int = 1_000_000,
        replays: bool = True,
    ) -> None:
        self.journal_store, self.results = journal, results
        self.plan = streaming_plan(replays=replays)
        self.reconnect, self.budget, self.max_bytes, self.replays = reconnect, budget, max_bytes, replays
        self.committed: dict[str, list[int]] = {}
        self._made = 0
        self.journal().put_plan(self.plan)

    def journal(self) -> Journal:
        return Journal(self.journal_store, RUN, writer=uuid.uuid4().hex, sleep=lambda seconds: None)

    def state(self) -> RunState:
        journal = self.journal()
        return journal.load(journal.list(REGIONS))

    def client(self, edge: str, generation: int | None = None) -> ChannelClient:
        state = self.state()
        outputs = {region.name: StreamingPlan.of(region).channels_out for region in self.plan.regions}
        producer = next(name for name, channels in outputs.items() if edge in [one.result for one in channels])
        generation = generation or state.of(producer).generations[-1]
        return ChannelClient(
            self.results, ChannelIdentity(RUN, edge, generation), uuid.uuid4().hex, backoff=NO_PAUSE, deadline_s=1.0
        )

    # attempts

    def claim(self, region: str) -> int:
        """The next attempt of a streaming region; the one before is fenced."""
        state = self.state()
        attempt = state.of(region).latest_attempt + 1
        if state.of(region).open_attempt is not None:
            self.fence(region)
            state = self.state()
        graph = ChannelGraph(self.plan)
        work = streaming_work(state, graph.regions[region], graph)
        journal = self.journal()
        hash_ = plan_hash(self.plan)
        claim = Claim(region, attempt, journal.writer, hash_, (), "run", attempt, "ti", "tag", "2026-01-01T00:00:00")
        journal.claim(replace(claim, mode=StreamingClaim(work.pins)))
        return attempt

    def fence(self, region: str) -> None:
        attempt = self.state().of(region).latest_attempt
        fenced = Outcome(region, attempt, AttemptState.FENCED, "other", "2026-01-01", cause=FenceCause.SUPERSEDED)
        self.journal().fence(fenced)

    def finish(self, region: str, outputs: tuple[PartitionManifest, ...] = ()) -> None:
        attempt = self.state().of(region).latest_attempt
        claim = self.journal().read_claim(region, attempt)
        outcome = Outcome(
            region,
            attempt,
            AttemptState.FINISHED,
            claim.writer,
            "2026-01-01T00:10:00",
            fingerprint="code 1",
            outputs=outputs,
            mode=StreamingOutcome(StreamingClaim.of(claim).channels),
        )
        Journal(self.journal_store, RUN, writer=claim.writer).finish(outcome)

    def new_generation(self) -> None:
        """What a regional restart does: every region is reset at its newest attempt."""
        for region in REGIONS:
            latest_attempt = self.state().of(region).latest_attempt
            if self.state().of(region).open_attempt is not None:
                self.fence(region)
            self.journal().reset(Reset(region, latest_attempt, "failover", "starts over"))

    def alter(self, region: str) -> None:
        latest_attempt = self.state().of(region).latest_attempt
        self.fence(region)
        self.journal().reset(Reset(region, latest_attempt, "failover", "another schema", altered=True))

    # what the regions do

    def producer(self, region: str, **options: Any) -> ChannelProducer:
        """A new attempt of a streaming region opens its output channel."""
        edge = REGIONS[region][1][0].result
        attempt = self.state().of(region).latest_attempt
        found = ChannelProducer(self.client(edge), attempt, max_bytes=self.max_bytes, poll_s=0.0, **options)
        found.open(subpartitions=SUBS, schema="v bigint", budget=self.budget, replays=self.replays)
        return found

    def source(self, **options: Any) -> ChannelProducer:
        self.claim("source")
        return self.producer("source", **options)

    def emit(self, producer: ChannelProducer, count: int) -> None:
        """So many new rows as one epoch."""
        rows = list(range(self._made, self._made + count))
        self._made += count
        publish(producer, producer.client.state.epoch + 1, rows)

    def scorer(self) -> Scorer:
        self.claim("scorer")
        return Scorer(self)

    def sink(self) -> ChannelConsumer:
        attempt = self.claim("sink")
        consumer = ChannelConsumer(self.client("scored"), attempt)
        consumer.connect(self.reconnect)
        return consumer

    def sink_all(self, consumer: ChannelConsumer) -> None:
        """Batch after batch, while there is something."""
        while (batch := consumer.next_batch()) is not None:
            rows = rows_of(consumer, batch)
            key = f"out/{consumer.attempt}/{batch.number}-{uuid.uuid4().hex[:6]}/part-0.parquet"
            flat = [row for candidate in rows for row in candidate]
            consumer.client.put(key, parquet(flat))
            consumer.commit(batch, tuple(map(len, rows)), (key,))
            self.committed[key] = flat

    def register(self) -> None:
        """The sink's end: everything committed once more, as its result."""
        attempt = self.state().of("sink").latest_attempt
        folder = f"{self.journal().layout.data_of_number('sink', attempt)}/totals"
        rows = [row for each in self.committed.values() for row in each]
        info = self.results.put(f"{folder}/part-0.parquet", parquet(rows))
        objects = (ResultObject("part-0.parquet", info.size, info.etag),)
        location = f"{self.results.base_uri}/{folder}"
        self.finish("sink", (PartitionManifest("totals", location, objects, rows=len(rows)),))

    def publish(self) -> None:
        state = self.state()
        named = []
        for region in self.plan.regions:
            current = state.of(region.name).current
            assert current is not None
            named.append(PublishedRegion(region.name, current.number, current.outcome_etag or "", region.results))
        self.journal().publish(Publish(state.newest_publish + 1, tuple(named)))

    def to_the_end(self) -> None:
        """An undisturbed run of 20 rows."""
        source, scorer, sink = self.source(), self.scorer(), self.sink()
        for _ in range(4):
            self.emit(source, 5)
            scorer.work()
            self.sink_all(sink)
        source.finish()
        self.finish("source")
        scorer.output.finish()
        self.finish("scorer")
        self.sink_all(sink)
        self.register()
        self.publish()


class Scorer:
    """Adds 1000 to each row."""

    def __init__(self, run: StreamingRun) -> None:
        self.output = run.producer("scorer")
        self.input = ChannelConsumer(run.client("raw"), self.output.attempt)
        self.input.connect(run.reconnect, output=self.output.client)

    def work(self) -> None:
        while (batch := self.input.next_batch()) is not None:
            rows = rows_of(self.input, batch)
            publish(
                self.output, batch.number, [1000 + row for candidate in rows for row in candidate], (batch.consumed,)
            )
            self.input.commit(batch, tuple(map(len, rows)))


def publish(producer: ChannelProducer, epoch: int, rows: Sequence[int], consumed: tuple[Any, ...] = ()) -> None:
    producer.publish(epoch, bodies(spread(rows)), consumed)


def parquet(rows: Sequence[int]) -> bytes:
    import pyarrow
    from pyarrow import parquet as files

    body = io.BytesIO()
    files.write_table(pyarrow.table({"v": pyarrow.array(rows, type=pyarrow.int64())}), body)
    return body.getvalue()
