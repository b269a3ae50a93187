"""A streaming region as a process: `channel_end_process.py sink|scorer ATTEMPT RECONNECT STORE_URI ENDPOINT`.

It says where it is on standard output. At each gate it stops until a line comes: so a test kills it there with SIGKILL,
or leaves it frozen there while others go on.
"""

from __future__ import annotations

import os
import sys

from channel_consumer import ChannelConsumer
from channel_ends import SUBS, bodies, client, rows_of, sink_batch

from airflow_recovery.errors import ChannelEvicted, LossBudgetExceeded
from airflow_recovery.model.channel_options import Reconnect
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.streaming.producer import ChannelProducer

EVICTED, OVER_BUDGET = 42, 43


def gate(what: str) -> None:
    print(what, flush=True)
    if not sys.stdin.readline():
        os._exit(1)


def sink(store: S3Store, attempt: int, reconnect: Reconnect) -> None:
    consumer = ChannelConsumer(client(store, "raw"), attempt)
    consumer.connect(reconnect)
    gate("attached")
    while not consumer.is_drained:
        batch = consumer.next_batch()
        if batch is None:
            gate("idle")
            continue
        gate(f"planned {batch.number}")
        sink_batch(consumer, batch)


def scorer(store: S3Store, attempt: int, reconnect: Reconnect) -> None:
    producer = ChannelProducer(client(store, "scores"), attempt)
    producer.open(subpartitions=SUBS, schema="int")
    consumer = ChannelConsumer(client(store, "raw"), attempt)
    consumer.connect(reconnect, output=producer.client)
    gate("attached")
    while not consumer.is_drained:
        batch = consumer.next_batch()
        if batch is None:
            gate("idle")
            continue
        rows = rows_of(consumer, batch)
        producer.publish(batch.number, bodies([[-row for row in candidate] for candidate in rows]), (batch.consumed,))
        gate(f"between {batch.number}")
        consumer.commit(batch, tuple(map(len, rows)))
    producer.finish()


def main() -> int:
    role, attempt, reconnect, uri, endpoint = sys.argv[1:]
    store = S3Store(uri, endpoint_url=endpoint)
    try:
        {"sink": sink, "scorer": scorer}[role](store, int(attempt), Reconnect(reconnect))
    except ChannelEvicted:
        return EVICTED
    except LossBudgetExceeded:
        return OVER_BUDGET
    return 0


if __name__ == "__main__":
    sys.exit(main())
