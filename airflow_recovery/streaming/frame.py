"""The vertices of a streaming region, called as they are: what they get and return are streaming DataFrames."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import UserCodeError
from airflow_recovery.model.channel_options import Reconnect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_recovery.streaming.spec import StreamingSpec

_STATEFUL = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPandas",
        "TransformWithStateInPySpark",
    }
)
"""Nodes of Spark's logical plans that keep state, where their input is a stream; and joins of two streams."""


def check_streaming(where: str, frame: DataFrame) -> None:
    """Raise `UserCodeError` for a frame that is a batch."""
    if not frame.isStreaming:
        raise UserCodeError(
            f"{where}: expected a streaming DataFrame, since its region runs while others run, found a batch. Return "
            "what you make of the input that is a channel, or of spark.readStream; what is there as a whole already "
            "is for regions of their own (result=BLOCKING)"
        )


def check_options(where: str, streaming: StreamingSpec) -> None:
    """Raise `UserCodeError` for another output mode than ``append`` in a region that feeds a channel."""
    if streaming.output is not None and streaming.output_mode != "append":
        raise UserCodeError(
            f"{where}: expected the output mode 'append' of a region that feeds a channel, "
            f"{streaming.output.result!r}, found {streaming.output_mode!r}: a running "
            "table is for the last region; send its rows on, and aggregate there"
        )


def check_columns(where: str, frame: DataFrame, streaming: StreamingSpec) -> None:
    """Raise `UserCodeError` where the channel is to be cut by columns that the frame has not."""
    wanted = streaming.output.partition_by if streaming.output is not None else ()
    if missing := sorted(set(wanted) - set(frame.columns)):
        raise UserCodeError(
            f"{where}: expected the columns of partition_by, {', '.join(missing)}, found {', '.join(frame.columns)}"
        )


def check_state(where: str, keeps_state: bool, streaming: StreamingSpec) -> None:
    """Raise `UserCodeError` for a region that keeps state, has not said so, and would skip records."""
    reconnects = streaming.input is not None and streaming.input.reconnect is Reconnect.LATEST
    if keeps_state and reconnects and not (streaming.stateful and streaming.allow_stateful_loss):
        raise UserCodeError(
            f"{where}: expected a region without state, since its channel is declared with reconnect='latest', found "
            "one that aggregates, deduplicates, limits or joins streams: its state would miss for ever what a restart "
            "skips. Declare reconnect='rewind', or streaming=Streaming(stateful=True, allow_stateful_loss=True)"
        )


def keeps_state(frame: DataFrame) -> bool:
    """Whether the query of ``frame`` has state from batch to batch."""
    return any(_is_stateful(node) for node in _nodes(frame))


def streams_of(frame: DataFrame) -> int:
    """How many streams the query of ``frame`` reads, each as often as it does."""
    return sum(1 for node in _nodes(frame) if node.isStreaming() and node.children().size() == 0)


def _is_stateful(node: Any) -> bool:
    children = node.children()
    streaming = [number for number in range(children.size()) if children.apply(number).isStreaming()]
    return (node.nodeName() in _STATEFUL and bool(streaming)) or (node.nodeName() == "Join" and len(streaming) == 2)


def _nodes(frame: DataFrame) -> list[Any]:
    """Of the analysed logical plan: a streaming region has a classic session, so that its JVM can be asked."""
    todo: list[Any] = [frame._jdf.queryExecution().analyzed()]
    nodes: list[Any] = []
    while todo:
        node = todo.pop()
        nodes.append(node)
        children = node.children()
        todo += [children.apply(number) for number in range(children.size())]
    return nodes


def schema_of(frame: DataFrame) -> str:
    """The frame's schema as JSON, as a consumer shall see it: without what Spark notes of watermarks in it."""
    document = json.loads(frame.schema.json())
    for field in document["fields"]:
        field["metadata"].pop("spark.watermarkDelayMs", None)
    return json.dumps(document, separators=(",", ":"), sort_keys=True)
