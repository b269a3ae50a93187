"""What runs inside the Spark driver (or the Connect client): one region, from its spec to its outcome object.

Reads the manifests of its inputs, calls the vertices, writes their results once, and puts the outcome into the journal.
Decides nothing: which attempt runs, on which inputs, and what a failure means for others is settled before and after
by the region task. Never imports Airflow; imports pyspark inside functions only, since `airflow_recovery.operators`
uses `shipping`, `submit` and `spec` while a DAG file is parsed. The shared path uses neither ``sparkContext`` nor
``_jvm``: the same code runs under spark-submit and over Spark Connect. But for stages (``stage_*``), the regions at
channels: each is a streaming query in an application of its own, and is refused over Connect.
"""

from airflow_recovery.driver.region_spec import ModeSpec, RegionSpec, RunDates, RunFacts, StoreSpec, VertexSpec

__all__ = ["ModeSpec", "RegionSpec", "RunDates", "RunFacts", "StoreSpec", "VertexSpec"]
