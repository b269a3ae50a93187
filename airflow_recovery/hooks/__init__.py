"""How the Airflow side reaches the world: settings, stores, the doors into Airflow, published results.

May import Airflow's SDK, inside functions where it is heavy. Never imports Airflow's server side (ORM, API server).
Import from the modules themselves: `doors`, `recovery_api`, `result`, `settings`, `stores`.
"""
