"""`stated`: inputs that no file shows, and an asset. `over_others`: a field over the state of another run."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset

from airflow_recovery.operators import Version, recoverable

Bash = recoverable(BashOperator, fields=["bash_command"], paths="plain")
FEED = Asset("stated_feed", uri="stated://feed/rows")
START = datetime(2000, 1, 1, tzinfo=timezone.utc)

with DAG("stated", schedule=[FEED], start_date=START):
    Bash(
        task_id="load",
        bash_command="mkdir -p '{output:loaded}' && "
        "echo '{version:orders}|{input:feed}|{version:feed}' > '{output:loaded}/part-0'",
        inputs={"orders": Version("{{ var.value.stated_count }}"), "feed": FEED},
        outputs=["loaded"],
    )

with DAG("over_others", schedule=None, start_date=START):
    Bash(
        task_id="last",
        bash_command="mkdir -p '{output:last}' && echo '{{ prev_start_date_success }}' > '{output:last}/part-0'",
        outputs=["last"],
    )
