"""Where a cut pays: what past runs say of a pipeline, and what each set of cuts would cost and save (docs/advise.md).

Pure: the runs are read elsewhere (`airflow_recovery.story.past_runs`). Nothing here changes anything.
"""
