"""Jobs of the example DAGs: plain PySpark, importable without Airflow, testable with ``run_local``."""
