"""What runs inside the Spark driver (or the Connect client): one region, from its spec to its outcome object.

Reads the manifests of its inputs, calls the vertices, writes their results once, and puts the outcome into the journal.
Decides nothing: the region task decides before and after which attempt runs, on which inputs, and what a failure means
for others. Never imports Airflow; imports pyspark inside functions only, since `airflow_recovery.operators` uses
`code_archive`, `submit` and `region_spec` while a DAG file is parsed. The code that spark-submit and Spark Connect
share uses neither ``sparkContext`` nor ``_jvm``.
"""

from airflow_recovery.driver.region_spec import ModeSpec, RegionSpec, RunDates, RunFacts, VertexSpec
from airflow_recovery.store.scheme import StoreSpec

__all__ = ["ModeSpec", "RegionSpec", "RunDates", "RunFacts", "StoreSpec", "VertexSpec"]
