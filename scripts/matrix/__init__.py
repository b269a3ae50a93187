"""Where it runs: Airflow's executors, cluster managers and Sparks, a short recovery on each (docs/where-it-runs.md).

`cells.py` declares every cell with the test that tries it, `recording.py` keeps what the test said as soon as it has
ended (`record.py`), `page.py` writes the page.
"""
