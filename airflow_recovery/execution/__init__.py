"""One try of one region's task, from the pre-check to the settled success (PROTOCOL section 5).

Speaks to the journal, to the results and to Airflow through interfaces that are handed in, so that the same code runs
in a worker, in a simulation and in a test. Never imports Airflow or Spark.
"""
