"""Which data of a region that commits split by split are in use: as of any other region.

A batch lies in the folder of the attempt that committed it; which of them a later attempt adopts is asked of every mode
(`airflow_recovery.results.batches_in_use`).
"""

from __future__ import annotations

from airflow_recovery.results.mode import ResultsMode

MODE = ResultsMode()
