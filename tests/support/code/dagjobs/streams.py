"""Three streaming regions. Their vertices are never called: tests put drivers of their own in place of Spark."""

from airflow_recovery import job
from airflow_recovery.streaming import APPROXIMATE, Streaming

scoring = job("scoring")


@scoring.source(result=APPROXIMATE(reconnect="latest", max_lost_records=10, subpartitions=1))
def events(spark):
    raise AssertionError("not called")


@scoring.vertex(result=APPROXIMATE(subpartitions=1))
def scores(events):
    raise AssertionError("not called")


@scoring.sink
def table(scores):
    raise AssertionError("not called")


unreplayed = job("unreplayed")


@unreplayed.source(result=APPROXIMATE(subpartitions=1), streaming=Streaming(replays=False, allow_unknown_loss=True))
def ticks(spark):
    raise AssertionError("not called")


@unreplayed.sink
def kept(ticks):
    raise AssertionError("not called")
