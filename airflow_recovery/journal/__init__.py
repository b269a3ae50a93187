"""The journal of a run: write-once records in an object store, the state they fold to, and event streams.

`airflow_recovery.model.records` and `codec` say what is written, `layout` where, `airflow_recovery.store.write_once`
how, `run_state` what it comes to; `journal` reads and writes one run's. `events`, `frames` and `stream` are the history
beside it, which `recording` makes of every record that is written, `history` reads and `replay` folds
(docs/journal-format.md). This room decides nothing, never imports Airflow or Spark, and never overwrites an object.
"""
