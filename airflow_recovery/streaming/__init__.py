"""The mode of a region at a channel: it runs at the same time as the region at the channel's other end.

What a job's module imports of it is here, and loads without Airflow, pyspark or boto3.
"""

from airflow_recovery.streaming.options import APPROXIMATE, ApproximateResult, OutputMode, Streaming

__all__ = ["APPROXIMATE", "ApproximateResult", "OutputMode", "Streaming"]
