"""Where it runs: Airflow's executors, cluster managers and Sparks, a short recovery on each (docs/where-it-runs.md).

`cells.py` declares every cell with the test that tries it, `record.py` keeps what a test said, `page.py` writes the
page.
"""
