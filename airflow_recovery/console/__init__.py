"""The commands: ``airflow recovery ...`` inside Airflow, ``python -m airflow_recovery ...`` without it.

Each subcommand is a module with ``add_arguments(parser)`` and ``run(args) -> int``, listed in
`airflow_recovery.console.main`. A subcommand asks `airflow_recovery.console.deployment` for the stores and never
imports Airflow itself, so it works against the journal alone: no database, no scheduler.
"""
