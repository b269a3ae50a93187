"""Simulations of our own: a pure model of a run's states, and runs whose DAG decides which tasks succeed.

Users simulate their jobs by `airflow_recovery.testing.simulation`, on which these are built.
"""
