"""An Airflow DAG: the demo's job with recovery, on a warm Spark Connect server. Every task parses this whole file."""

from __future__ import annotations

from benchmarks.overhead_recovering import recovering_dag

dag = recovering_dag("connect_recovering", "spark_connect")
