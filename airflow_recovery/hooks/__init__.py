"""How the Airflow side reaches the world: settings, stores, the doors into Airflow, published results.

May import Airflow's SDK, inside functions where it is heavy. Never imports Airflow's server side (ORM, API server).
The hooks for users are exported here; tasks import `doors`, `settings` and `stores` from the modules themselves.
"""

from airflow_recovery.hooks.recovery_api import RecoveryApiHook
from airflow_recovery.hooks.result import RecoveryResultHook, RegisteredResult

__all__ = ["RecoveryApiHook", "RecoveryResultHook", "RegisteredResult"]
