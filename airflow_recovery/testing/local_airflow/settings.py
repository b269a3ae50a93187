"""The settings of a local Airflow: what each of its components finds in its environment."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from airflow_recovery.testing.patience import HANG_S, NEVER_S

STATE_BACKEND = "airflow_recovery.api_server.state_backend.RecoveryStateBackend"

OFTEN = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    # After its task's process has ended, a supervisor waits so long for a child of that process to close its output.
    # What was written before is read anyway.
    "AIRFLOW__WORKERS__SOCKET_CLEANUP_TIMEOUT": "3",
}
"""Intervals of Airflow, shortened so that tests take seconds. A slow process fails by none of them."""

PATIENT = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": str(NEVER_S),
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(NEVER_S),
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": str(NEVER_S),
    # A triggerer that is killed hands its triggers over after [triggerer] triggerer_health_check_threshold. If the only
    # triggerer is late, it takes its own triggers over, which changes nothing. So that threshold stays as it is.
    "AIRFLOW__TRIGGERER__RUNNER_HEALTH_CHECK_THRESHOLD": str(NEVER_S),
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": str(NEVER_S),
    "AIRFLOW__DAG_PROCESSOR__STALE_DAG_THRESHOLD": str(NEVER_S),
    "AIRFLOW__DAG_PROCESSOR__HEALTH_CHECK_THRESHOLD": str(NEVER_S),
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": str(NEVER_S),
    "AIRFLOW__CORE__TASK_SUCCESS_OVERTIME": str(NEVER_S),
    # A request that is repeated because its answer is late may be refused: the first one has been carried out.
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": str(HANG_S),
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": str(NEVER_S),
    "AIRFLOW__EXECUTION_API__JWT_EXPIRATION_TIME": str(NEVER_S),
    "AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT": f"{HANG_S:.0f} s",
    "AIRFLOW__RECOVERY__REQUEST_TIMEOUT": "600",
}
"""The limits of Airflow and of this package: a slow machine meets none of them.

A test that is about a limit sets that one in its own ``env``, or uses `LocalAirflow.miss_heartbeat`.
"""


@dataclass(frozen=True)
class Login:
    """A user name and a password for this Airflow."""

    user: str
    password: str


def airflow_environment(  # noqa: PLR0913 - what the processes of an Airflow are told
    *,
    home: Path,
    dags_folder: Path,
    url: str,
    database_url: str,
    admin: Login,
    viewer: Login,
    parallelism: int,
    recovery_backend: bool,
    fast: bool,
) -> dict[str, str]:
    """The environment of every component; ``url`` is the API server's, with its port. Secrets are drawn anew."""
    # Nothing of an Airflow that the caller may have configured for himself.
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW_", "_AIRFLOW"))}
    local = "127.0.0.1,localhost"
    env.update(
        {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}",
            "NO_PROXY": ",".join(filter(None, [env.get("NO_PROXY"), local])),
            "no_proxy": ",".join(filter(None, [env.get("no_proxy"), local])),
            "PYTHONUNBUFFERED": "1",
            "AIRFLOW_HOME": str(home),
            # The same keys and secrets everywhere: each component would make a key of its own in airflow.cfg.
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags_folder),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(parallelism),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{admin.user}:admin,{viewer.user}:viewer",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_url,
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": url.rpartition(":")[2],
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
            # The same secret everywhere: otherwise tasks get 403 from the execution API.
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            # A file that changes is parsed at once; to parse all of them again and again takes half a core. It is
            # stored at once as well: a change within 30 s of the one before would be left to the next parse.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }
    )
    if recovery_backend:
        env["AIRFLOW__STATE_STORE__BACKEND"] = STATE_BACKEND
    if fast:
        env |= OFTEN | PATIENT
    return env
