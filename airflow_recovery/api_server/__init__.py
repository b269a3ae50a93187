"""What runs inside Airflow's API server: the compare-and-clear, and the two doors to it.

`plugin` is loaded by every Airflow process, task processes included, so it imports nothing. `protocol` is shared with
the hooks and is light. `compare_and_clear`, `state_backend` and `app` need Airflow's server side (ORM sessions): only
the API server imports them, and nothing of theirs may be imported by an operator, a hook or a job.
"""
