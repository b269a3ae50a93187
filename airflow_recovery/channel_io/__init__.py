"""Channels on an object store: the shell around the pure room `airflow_recovery.channel`.

It puts and gets slots, segments and outputs, waits, and deletes; every decision is made next door. Contents of segments
are bytes: what a record is, its reader and writer agree on. Nothing of Airflow or Spark.

*What it does not do*: list while a channel is open, or keep anything in memory that a second process would need.
"""

from airflow_recovery.channel_io.client import ChannelClient
from airflow_recovery.channel_io.consumer import Batch, ChannelConsumer, SegmentSlice
from airflow_recovery.channel_io.folder import ChannelFolder, StageFolder
from airflow_recovery.channel_io.producer import ChannelProducer, SegmentBody
from airflow_recovery.channel_io.sweep import sweep

__all__ = [
    "Batch",
    "ChannelClient",
    "ChannelConsumer",
    "ChannelFolder",
    "ChannelProducer",
    "SegmentBody",
    "SegmentSlice",
    "StageFolder",
    "sweep",
]
