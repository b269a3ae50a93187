"""Splits keep nothing in the store of results but the data of attempts (`airflow_recovery.results.batches_in_use`)."""

from __future__ import annotations

from airflow_recovery.results.mode import ResultsMode

MODE = ResultsMode()
