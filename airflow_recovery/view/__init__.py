"""What people are told of a run: one source for the command line, the REST API and the Recovery tab.

Reads journals, and changes nothing. It knows neither Airflow nor who asks: what Airflow says of a run's tasks is handed
in as an `airflow_recovery.execution.scheduler.Observation`. What is here is values; how they are laid out on a terminal
or a page is the matter of whoever shows them.
"""
