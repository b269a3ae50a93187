"""An Airflow DAG: the demo's job with recovery, by spark-submit."""

from __future__ import annotations

from benchmarks.overhead_recovering import recovering_dag
from benchmarks.overhead_settings import CONF

dag = recovering_dag("submit_recovering", "spark_default", conf=CONF)
