"""Streaming regions on S3 over HTTP: replies that are lost below the SDK, and what a channel asks of the store."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import CODE
from spark_streaming_run import SparkStreamingRun

from airflow_recovery.driver import StoreSpec, driver
from airflow_recovery.driver.submit import store_conf
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.s3_server import REGION
from scripts.jars import class_path_variables
from scripts.s3_proxy import LostReply, S3Proxy, S3Request
from scripts.streaming_driver import StreamingDriverProcess

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]
BATCHES = 6


class LostReplies:
    """Of the slots of control logs, the reply to every third conditional write is lost once."""

    def __init__(self) -> None:
        self.lost: set[str] = set()
        self._seen: Counter[str] = Counter()

    def __call__(self, request: S3Request) -> LostReply | None:
        is_slot = request.is_conditional and "/log/" in request.key
        if not is_slot or int(request.key[-8:]) % 3 or request.key in self.lost:
            return None
        self.lost.add(request.key)
        return LostReply()


def test_fault_24_a_region_on_s3_whose_replies_are_lost_and_which_lists_nothing(
    start_s3_server: Callable[[str], S3Server], s3_server_names: list[str], tmp_path: Path
) -> None:
    """By the driver, by the reader's process, and by the tasks; counted where the server sees them.

    Beside the other tests without Spark: lost replies in `test_channel_io.py`, listings in `test_channel_requests.py`.
    """
    server = start_s3_server(s3_server_names[-1])
    trouble = LostReplies()
    with S3Proxy(server, trouble) as proxy:
        base = f"s3://recovery-tests/{uuid.uuid4().hex}"
        spark_run = SparkStreamingRun(
            tmp_path,
            StoreSpec(base, proxy.endpoint_url, REGION),
            store=S3Store(base, endpoint_url=server.endpoint_url, session=server.session()),
        )
        spec = spark_run.spec("board", max_rows=10, trigger_s=0.5)
        environment = {**server.environment(), **class_path_variables()}
        conf = store_conf(spec.results, {**os.environ, **environment})
        sink = StreamingDriverProcess(
            tmp_path / "driver", [CODE, Path(__file__).parents[2]], environment=environment, conf=conf
        )
        try:
            made = spark_run.producer("scores")
            for turn in range(BATCHES):
                made.emit(*range(10 * turn, 10 * turn + 10))
            sink.begin(spec)
            sink.wait(lambda: spark_run.state("scores").checkpoint == BATCHES - 1, "its last batch")
            while_open = list(proxy.requests)
            made.finish()
            assert sink.code(spec) == driver.FINISHED, sink.log()
        finally:
            sink.kill()
    assert spark_run.committed() == list(range(10 * BATCHES))
    assert spark_run.state("scores").void == []
    assert len(trouble.lost) >= 5  # of views, plans, commits and releases

    folder = spark_run.client("scores").folder.prefix
    asked = [request for request in while_open if folder in f"{request.key}{request.query.get('prefix', '')}"]
    lists = [request for request in asked if request.method == "GET" and not request.key]
    assert (len(lists), len(asked) > 10 * BATCHES) == (0, True)
    after = [request for request in proxy.requests[len(while_open) :] if folder in request.query.get("prefix", "")]
    assert after  # control: the sweep at the end is a listing, and is seen here
