"""What runs inside Airflow's API server: the compare-and-clear, the two ways to it, REST and the Recovery tab.

`plugin` is loaded by every Airflow process, task processes included, so it imports nothing. `compare_and_clear`,
`state_backend` and `app` need Airflow's server side (ORM sessions): only the API server imports them, and nothing of
theirs may be imported by an operator, a hook or a job. What a task and the server say to each other is in
`airflow_recovery.attempt.clear_protocol`.
"""
