"""`by_interval`: each run reads the hours of its data interval, which a triggered run of the same date has not."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_recovery.operators import RecoveryPublishOperator, recoverable

Bash = recoverable(BashOperator, fields=["bash_command"], paths="plain")
START = datetime(2000, 1, 1, tzinfo=timezone.utc)

with DAG(
    "by_interval", schedule=CronDataIntervalTimetable("0 2 * * *", "Europe/Berlin"), start_date=START, catchup=False
):
    load = Bash(
        task_id="load",
        bash_command="mkdir -p '{output:hours}' && "
        "echo '{{ data_interval_start }} to {{ data_interval_end }} by {{ dag_run.conf.get('limit', 7) }}' "
        "> '{output:hours}/part-0'",
        outputs=["hours"],
    )
    report = Bash(
        task_id="report",
        inputs={"hours": load.result("hours")},
        bash_command="while test -e '{{ dag_run.conf['gate'] }}'; do sleep 0.2; done; mkdir -p '{output:report}' && "
        "cp '{input:hours}'/* '{output:report}/'",
        outputs=["report"],
    )
    report >> RecoveryPublishOperator(task_id="publish")
