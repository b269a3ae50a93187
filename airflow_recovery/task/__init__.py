"""The worker's side of a task: from Airflow's context to a run of the protocol, and its Spark application.

Turns a context into the values that the core asks for, starts, watches and stops the Spark application of an attempt,
and turns our errors into Airflow's. Decides nothing itself. The classes that a DAG file uses are in
`airflow_recovery.operators`.
"""
