"""A run of the job in `code/regionjobs/streaming_chain.py`: the real channels and real Spark, without Airflow.

The test itself may stand at either end of a channel: it publishes records of its own, or consumes what a region made.
"""

from __future__ import annotations

import io
import logging
import os
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_recovery.driver import RegionSpec, RunDates, StoreSpec, VertexSpec
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region import run_region
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.channel_options import UNLIMITED, Overflow, Reconnect
from airflow_recovery.model.records import AttemptTrace, RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.mode import ChannelRef, StreamingOutcome
from airflow_recovery.streaming.producer import ChannelProducer, SegmentBody
from airflow_recovery.streaming.reading import committed_outputs, read_channel
from airflow_recovery.streaming.spec import ChannelSpec, StreamingSpec
from airflow_recovery.testing.patience import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = {"matched": "regionjobs.streaming_chain:joined"}
JOB = "regionjobs.streaming_chain:chain"
LOG = logging.getLogger("tests.spark_streaming_run")
SUBS = 2
ENDS = {"raw": (None, "raw"), "scores": ("raw", "scores"), "board": ("scores", None), "matched": ("numbers", None)}
RAW = '{"fields":[{"metadata":{},"name":"id","nullable":true,"type":"long"}],"type":"struct"}'
SCORES = (
    '{"fields":[{"metadata":{},"name":"id","nullable":true,"type":"long"},'
    '{"metadata":{},"name":"score","nullable":true,"type":"long"}],"type":"struct"}'
)
SCHEMAS = {"raw": RAW, "scores": SCORES, "numbers": RAW}


class SparkStreamingRun:
    """``results``: where channels, checkpoints and results are; ``store``: how the test reaches it."""

    def __init__(self, folder: Path, results: StoreSpec | None = None, *, store: ObjectStore | None = None) -> None:
        self.folder = folder
        self.identity = RunIdentity("dag", "2026-01-01", uuid.uuid4().hex[:8])
        self.results = results or StoreSpec(f"file://{folder}/results")
        self.store = store or open_spec_store(self.results)
        self._files, self._began = 0, time.time() - 1000
        for name in ("in", "receipts"):
            (folder / name).mkdir(parents=True)

    # the world outside

    def drop(self, name: str, *numbers: int) -> None:
        """A file for the source; it appears at once, and is younger than those before."""
        path = self.folder / "in" / name
        path.with_name(f".{name}").write_text("".join(f"{number}\n" for number in numbers))
        self._files += 1
        os.utime(path.with_name(f".{name}"), (self._began + self._files,) * 2)
        path.with_name(f".{name}").rename(path)

    # what a region task would tell the driver

    def spec(self, region: str, attempt: int = 1, **said: Any) -> RegionSpec:
        """``said``: options of the region, of its ``input`` and of its ``output`` (as dicts), and params."""
        edge_in, edge_out = ENDS[region]
        params, generation, inputs = said.pop("params", {}), said.pop("generation", 1), said.pop("inputs", ())
        given_in, given_out = said.pop("input", {}), said.pop("output", {})
        streaming = StreamingSpec(
            input=None if edge_in is None else channel_spec(edge_in, **{"generation": generation, **given_in}),
            output=None if edge_out is None else channel_spec(edge_out, **{"generation": generation, **given_out}),
            trigger_s=0.1,
            max_rows=None,
            output_mode="append",
            run_for_s=None,
            stateful=False,
            replays=True,
            allow_stateful_loss=False,
            earlier=tuple(range(1, attempt)),
            checkpoints=tuple(map(str, range(1, attempt))),
        )
        streaming = replace(streaming, **said)
        pins = tuple(ChannelRef(each.result, each.generation) for each in (streaming.input, streaming.output) if each)
        declared = {"raw": {"folder": str(self.folder / "in"), "column": "id"}, "matched": {}}
        all_params = declared.get(region, {"how": ""})
        return RegionSpec(
            job=JOBS.get(region, JOB),
            identity=self.identity,
            trace=AttemptTrace(
                region, attempt, f"writer-{region}-{attempt}", "f1", (), (), mode=StreamingOutcome(pins)
            ),
            tag=f"tag-{region}-{attempt}",
            vertices=(VertexSpec(region, {**all_params, **params}, edge_out is None, False),),
            inputs=inputs,
            run=RunDates(None, None, None),
            location=f"{self.results.uri}/{JournalLayout(self.identity).data_of_number(region, attempt)}",
            journal=StoreSpec(f"file://{self.folder}/journal"),
            results=self.results,
            receipt=str(self.folder / "receipts" / f"{region}-{attempt}"),
            heartbeat_s=600.0,
            mode=streaming,
        )

    def run(self, spark: SparkSession, spec: RegionSpec, store: ObjectStore | None = None) -> AttemptResult:
        """On the tests' own session."""
        return run_region(spark, spec, log=LOG, progress=Progress(LOG, spec.attempt), results=store or self.store)

    # either end

    def client(self, edge: str, generation: int = 1) -> ChannelClient:
        return ChannelClient(self.store, ChannelIdentity(self.identity, edge, generation), uuid.uuid4().hex)

    def state(self, edge: str, generation: int = 1) -> ChannelState:
        return read_channel(self.store, ChannelIdentity(self.identity, edge, generation))

    def producer(self, edge: str, attempt: int = 1, *, generation: int = 1, **budget: Any) -> HandFed:
        return HandFed(self.client(edge, generation), edge, attempt, **budget)

    def committed(self, edge: str = "scores", generation: int = 1, column: str = "id") -> list[int]:
        """What the files hold that the commits name: neither plan nor ledger is asked."""
        client = self.client(edge, generation)
        bodies = (self.store.get(client.folder.object(output)).body for output in committed_outputs(client))
        return sorted(row for body in bodies for row in pq.read_table(io.BytesIO(body))[column].to_pylist())

    def published(self, edge: str, generation: int = 1) -> list[int]:
        """The ids in what is still retained of a channel."""
        keys = self.state(edge, generation).retained
        return sorted(row for key in keys for row in self.values(edge, key, generation))

    def values(self, edge: str, key: str, generation: int = 1) -> list[int]:
        """The ids in one segment."""
        body = self.store.get(self.client(edge, generation).folder.object(key)).body
        numbers: list[int] = pa.ipc.open_stream(body).read_all()["id"].to_pylist()
        return numbers


class HandFed:
    """A producer whose records the test knows one by one."""

    def __init__(self, client: ChannelClient, edge: str, attempt: int = 1, **budget: Any) -> None:
        self._edge = edge
        self.producer = ChannelProducer(client, attempt, poll_s=0.05)
        self.producer.open(subpartitions=SUBS, schema=SCHEMAS[edge], **budget)
        self.sent: dict[tuple[int, int], int] = {}

    def emit(self, *ids: int) -> None:
        """One epoch; ``sent`` says which id has which place."""
        state = self.producer.client.refresh()
        segments = []
        for sub in range(SUBS):
            mine = ids[sub::SUBS]
            self.sent.update({(sub, state.ends[sub] + at): each for at, each in enumerate(mine)})
            if mine:
                segments.append(SegmentBody(sub, len(mine), body_of(self._edge, mine)))
        self.producer.publish(state.epoch + 1, segments)

    def lost(self, spark_run: SparkStreamingRun) -> list[int]:
        """The ids in the ledger."""
        ledger = spark_run.state(self._edge, self.producer.client.identity.generation).ledger
        return sorted(self.sent[each.sub, at] for each in ledger for at in range(each.start, each.stop))

    def finish(self) -> None:
        self.producer.finish()


def body_of(edge: str, ids: tuple[int, ...]) -> bytes:
    columns = {"id": pa.array(ids, pa.int64())}
    if edge == "scores":
        columns["score"] = pa.array([10 * candidate for candidate in ids], pa.int64())
    table, out = pa.table(columns), io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def channel_spec(edge: str, **options: Any) -> ChannelSpec:
    given = {
        "reconnect": Reconnect.REWIND,
        "overflow": Overflow.BLOCK,
        "max_bytes": 10**9,
        "block_timeout_s": HANG_S,
        "subpartitions": SUBS,
        "partition_by": (),
        "budget": UNLIMITED,
        "restart_budget": UNLIMITED,
        "generation": 1,
    }
    return ChannelSpec(result=edge, **{**given, **options})
