"""One story of a run, for people: the commands and Airflow's pages tell the same one.

It reads the journal and decides nothing. Never imports Airflow.
"""
