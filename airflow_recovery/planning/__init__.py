"""The decisions: regions, what is valid, what must run, what is lost, who restarts. Pure.

This room knows the shape of a job (`graph`, `logical`, `regions`), the plan, and the state of a run
(`airflow_recovery.journal.run_state`); whether data is there is handed in. It does no I/O, reads no clock, draws no
random number, and knows nothing of Airflow or Spark.
"""
