"""A task whose script the worker loads by a name: its content is on another machine as far as recovery knows."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_recovery.operators import recoverable

FOLDER = f"{os.environ['CLEAR_CLIENTS_OUT']}/deployed"
# `local:` stands for a place in an image. The command finds it in a folder.
LOAD = f"code=local:///clean.sh; sh {FOLDER}/${{code##*/}} > '{{output:rows}}/part-0'"

with DAG("unseen_code", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
    for policy in ("run-on-clear", "keep"):
        recoverable(BashOperator, paths="plain")(
            task_id=policy.replace("-", "_"),
            bash_command=f"mkdir -p '{{output:rows}}' && {LOAD}",
            outputs=["rows"],
            unseen_code=policy,
        )
