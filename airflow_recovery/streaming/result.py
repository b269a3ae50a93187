"""The result of the last streaming region: what its batches have committed, written again as one registered result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_recovery.driver.paths import spark_glob
from airflow_recovery.driver.spark_schema import read_schema
from airflow_recovery.driver.writer import write_result
from airflow_recovery.streaming.client import ChannelClient
from airflow_recovery.streaming.ends import channel_client
from airflow_recovery.streaming.reading import committed_outputs
from airflow_recovery.streaming.spec import StreamingSpec

if TYPE_CHECKING:
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.streaming.query import OpenStream


def compact(stream: OpenStream, result: str) -> PartitionManifest:
    """Write the committed files of every generation that counts to the attempt's own location.

    Of a running table (``complete``) it is the newest batch alone. Raises as `write_result`.
    """
    region, spec = stream.region, stream.region.spec
    streaming = StreamingSpec.of(spec)
    channel, newest = streaming.input, streaming.output_mode == "complete"
    assert channel is not None
    uris: list[str] = []
    for generation in sorted({*channel.drained, channel.generation}, reverse=True):
        client = channel_client(region.store, spec.identity, channel, generation)
        uris = [*_uris(client, region.store.base_uri, newest=newest), *uris]
        if newest and uris:
            break
    schema = read_schema(stream.schema)
    started = time.monotonic()
    frame = (
        region.spark.read.option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
        .schema(schema)
        .parquet(*map(spark_glob, uris))
        if uris
        else region.spark.createDataFrame([], schema)
    )
    planned = next(vertex for vertex in spec.vertices if vertex.name == result)
    written = write_result(
        region.spark,
        frame,
        result=result,
        location=f"{spec.location}/{result}",
        store=region.store,
        is_digested=planned.is_digested,
    )
    region.log.info(
        "%s: %d committed files are %d rows in %d files, in %.1f s",
        result,
        len(uris),
        written.rows,
        len(written.objects),
        time.monotonic() - started,
    )
    return written


def _uris(client: ChannelClient, base_uri: str, *, newest: bool) -> list[str]:
    return [f"{base_uri}/{client.folder.object(output)}" for output in committed_outputs(client, newest_batch=newest)]
