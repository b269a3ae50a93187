"""How the Airflow side reaches the world: settings, stores, the clients that clear tasks, published results.

May import Airflow's SDK, inside functions where it is heavy. Never imports Airflow's server side (ORM, API server).
The hooks for users are exported here; tasks import `clear_clients`, `settings` and `stores` from the modules.
"""

from airflow_recovery.hooks.recovery_api import RecoveryApiHook
from airflow_recovery.hooks.result import RecoveryResultHook, RegisteredResult

__all__ = ["RecoveryApiHook", "RecoveryResultHook", "RegisteredResult"]
