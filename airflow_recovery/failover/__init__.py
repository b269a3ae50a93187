"""The decisions: what stands, what must run, what is lost, who was overtaken. Pure.

This room knows the state of a run (`airflow_recovery.journal.run_state`) and the plan; whether data is there is
handed in. It does no I/O, reads no clock, draws no random number, and knows nothing of Airflow or Spark.
"""
