"""The reading end of a channel as Spark sees it: ``spark.readStream.format("recovery_channel")``.

Spark keeps one reader in a Python process of its own, which plans the batches, and pickles it for each read on the
executors. So a reader holds no client that was pickled, and meets the driver in the control log alone. Imported where
pyspark is there: by the driver, by the process that plans, and by workers.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from airflow_recovery.errors import ChannelEvicted, ChannelInconsistent, ObjectMissing
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.streaming.channel_records import ChannelIdentity, Offsets
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.checkpoint import Place, read_lineage
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.consuming import make_plan, next_end, release
from airflow_recovery.streaming.folder import ChannelFolder
from airflow_recovery.streaming.ranges import Ranges, between, common
from airflow_recovery.streaming.writing import shared_store

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.types import StructType

    from airflow_recovery.store.object_store import ObjectStore

SOURCE = "recovery_channel"
_OPTION = "reading"


@dataclass(frozen=True)
class ChannelReading:
    """What a reader is told. Credentials are in the environment of its process.

    ``max_rows``: its credit for one batch. ``lineage``: the key by which its checkpoint says where it began.
    """

    store: StoreSpec
    identity: ChannelIdentity
    attempt: int
    max_rows: int | None
    lineage: str

    def options(self) -> dict[str, str]:
        """For ``DataStreamReader.options``; `of_options` is the inverse."""
        return {_OPTION: json.dumps(to_json(self))}

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> ChannelReading:
        """Inverse of `options`."""
        return from_json(cls, json.loads(options[_OPTION]), exact=True)


class ChannelSource(DataSource):
    """Registered with Spark by `airflow_recovery.streaming.region`."""

    @classmethod
    def name(cls) -> str:
        """By which it is read."""
        return SOURCE

    def streamReader(self, schema: StructType) -> ChannelReader:
        """Called in the process that plans, and in the one that pickles it for the executors."""
        return ChannelReader(ChannelReading.of_options(self.options))


@dataclass(frozen=True)
class PlannedSegment:
    """The records ``ranges`` of the segment ``key`` (in the store), whose ``count`` records begin with ``first``."""

    key: str
    first: int
    count: int
    bytes: int
    ranges: Ranges


class SubpartitionRead(InputPartition):
    """What one task reads: one subpartition, since a task for each segment costs more than its read."""

    def __init__(self, segments: tuple[PlannedSegment, ...]) -> None:
        super().__init__(None)
        self.segments = segments


class ChannelReader(DataSourceStreamReader):
    """Plans the batches of the attempt that holds the channel's view, and reads them."""

    def __init__(self, reading: ChannelReading) -> None:
        self._reading = reading
        self._opened: ChannelClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def _client(self) -> ChannelClient:
        if self._opened is None:
            self._opened = _new_client(self._reading)
        return self._opened

    def _state(self) -> ChannelState:
        """As of now. Raises `ChannelEvicted`."""
        state = self._client.refresh()
        if state.view != self._reading.attempt:
            raise ChannelEvicted(
                f"consumer attempt {self._reading.attempt}: attempt {state.view} holds the only view; this process "
                "must stop, and has changed nothing"
            )
        return state

    def initialOffset(self) -> dict[str, Any]:
        """Where batch 0 begins: as it was decided for this checkpoint, also when Spark asks to repeat that batch.

        Where the log is by now would be the batch's end, and the state of the region would miss it.
        """
        begins = read_lineage(self._client.store, self._reading.lineage).begins
        assert begins is not None, self._reading.lineage
        return to_json(begins)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The credit of one batch."""
        return ReadMaxRows(self._reading.max_rows) if self._reading.max_rows is not None else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. One request where nothing is new. Raises `ChannelEvicted`."""
        state = self._state()
        end = next_end(state, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return to_json(self._place(tuple(map(max, end, self._offsets(start)))))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Make the plan, and say what each task reads: a task a subpartition that has something.

        A batch that the log has completed is read again without a plan: Spark repeats it where it died before it had
        noted the end itself, and the region's state may need it. It can be: what it has read is released with the next
        batch. Raises as `make_plan`, and `ChannelInconsistent` where such a batch can't be read again.
        """
        state, upto = self._state(), from_json(Place, end)
        first, last = self._offsets(start), upto.at
        if upto.generation != self._reading.identity.generation:
            return self._again(*self._of_earlier(start, upto))
        if all(stop <= done for stop, done in zip(last, state.done, strict=True)):
            return self._again(self._reading.identity, state, first, last)
        self._client.append(lambda state: make_plan(state, self._reading.attempt, first, last))
        state = self._client.state
        return [] if state.plan is None else self._reads(self._reading.identity, state, state.plan.read)

    def _of_earlier(
        self, start: Mapping[str, Any], upto: Place
    ) -> tuple[ChannelIdentity, ChannelState, Offsets, Offsets]:
        """A batch of a generation before: the region went on at its checkpoint, on this one."""
        reading = replace(self._reading, identity=replace(self._reading.identity, generation=upto.generation))
        state, began = _new_client(reading).refresh(), from_json(Place, start)
        first = began.at if began.generation == upto.generation else (0,) * len(state.subs)
        return reading.identity, state, first, upto.at

    def _again(
        self, identity: ChannelIdentity, state: ChannelState, first: Offsets, last: Offsets
    ) -> list[InputPartition]:
        wanted = tuple(
            common(sub.committed, between(start, stop))
            for sub, start, stop in zip(state.subs, first, last, strict=True)
        )
        return self._reads(identity, state, wanted)

    def _reads(self, identity: ChannelIdentity, state: ChannelState, wanted: Sequence[Ranges]) -> list[InputPartition]:
        folder = ChannelFolder(identity)
        partitions: list[InputPartition] = []
        for number, ranges in enumerate(wanted):
            segments = tuple(
                PlannedSegment(folder.object(segment.key), segment.first, segment.count, segment.bytes, inside)
                for segment in state.segments_of(number)
                if (inside := common(ranges, between(segment.first, segment.end)))
            )
            planned, held = _records(ranges), sum(_records(segment.ranges) for segment in segments)
            if planned != held:
                raise ChannelInconsistent(
                    f"subpartition {number}: expected {planned} records to be retained, found {held}: what was "
                    "committed is released already, and can't be read again; the region starts over",
                    code="records-released-already",
                )
            if segments:
                partitions.append(SubpartitionRead(segments))
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: exactly the planned records, or an error. It is here that rows are counted.

        Each task hands over as many as were planned of each of its segments, or fails; and Spark calls a batch done
        when all its tasks are, however often it has tried one. What the region makes of the rows is not counted, so it
        may filter, aggregate, or stop early. Raises `ChannelInconsistent` for a segment that is gone or damaged, and
        `ChannelEvicted` where it is gone because another attempt has the view.
        """
        assert isinstance(partition, SubpartitionRead)
        store = shared_store(self._reading.store)
        for segment in partition.segments:
            yield from self._records_of(store, segment)

    def _records_of(self, store: ObjectStore, segment: PlannedSegment) -> Iterator[pa.RecordBatch]:
        table = self._table(store, segment)
        for start, stop in segment.ranges:
            yield from table.slice(start - segment.first, stop - start).to_batches()

    def _table(self, store: ObjectStore, segment: PlannedSegment) -> pa.Table:
        import pyarrow as pa

        try:
            body = store.get(segment.key, max_bytes=None).body
        except ObjectMissing as missing:
            state = _new_client(self._reading).refresh()
            if state.view != self._reading.attempt:
                raise ChannelEvicted(
                    f"consumer attempt {self._reading.attempt}: attempt {state.view} holds the only view"
                ) from None
            raise ChannelInconsistent(
                f"segment {segment.key} was deleted from outside: the log says that it is retained. Begin a new "
                "generation of the channel, and keep lifecycle rules and clean-up jobs off its prefix",
                code="segment-deleted",
            ) from missing
        try:
            table = pa.ipc.open_stream(io.BytesIO(body)).read_all() if len(body) == segment.bytes else None
        except pa.ArrowInvalid:
            table = None
        if table is None or table.num_rows != segment.count:
            raise ChannelInconsistent(
                f"segment {segment.key}: expected {segment.count} records in {segment.bytes} bytes, found "
                f"{'other bytes' if table is None else table.num_rows} in {len(body)}: it was altered from outside. "
                "Begin a new generation of the channel",
                code="segment-altered",
            )
        return table

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will never ask for this batch again: it has noted its end, and comes for the next one."""
        place = from_json(Place, end)
        if place.generation == self._reading.identity.generation:
            self._client.append(lambda state: release(state, self._reading.attempt, place.at))

    def _place(self, at: Offsets) -> Place:
        return Place(self._reading.identity.generation, at)

    def _offsets(self, document: Mapping[str, Any]) -> Offsets:
        """Of a batch's beginning: behind another generation's end, this one's begins."""
        place = from_json(Place, document)
        own = place.generation == self._reading.identity.generation
        return place.at if own else (0,) * len(self._client.state.subs)


def _records(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def _new_client(reading: ChannelReading) -> ChannelClient:
    return ChannelClient(shared_store(reading.store), reading.identity, f"reader-{os.getpid()}-{uuid.uuid4().hex}")
