"""The eleven DAGs of the soak, of mixed kinds. What each has to come to is in ``scripts/soak/truth.py``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, BaseHook, Param

from airflow_recovery.operators import (
    RecoverableSparkSubmitOperator,
    RecoveryPublishOperator,
    SparkJobTaskGroup,
    recoverable,
)

HERE = Path(__file__).parent
START = datetime(2012, 1, 1, tzinfo=timezone.utc)
LAKE = os.environ["SOAK_LAKE"]
CONNECT, SUBMIT = "connect", "submit"
JVM = "jvm"
"""The pool of the tasks that start a JVM: there are two slots, for the machine has two cores."""
SMALL = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
}
S3A = json.loads(os.environ["SOAK_S3A"])


def soaked(dag_id: str, **options: Any) -> DAG:
    return DAG(dag_id, start_date=START, catchup=False, **{"schedule": None, **options})


with soaked("chain", schedule="@daily", max_active_runs=3):
    SparkJobTaskGroup("g", job="soak_jobs.chain:chain", conn_id=CONNECT)

with soaked("mixed", max_active_runs=2):
    mixed: Any = SparkJobTaskGroup("g", job="soak_jobs.chain:chain", conn_id=CONNECT, conf=SMALL)
    mixed.children["g.total"]._conn_id = SUBMIT
    mixed.children["g.total"].pool = JVM

with soaked("own", max_active_runs=1):
    SparkJobTaskGroup(
        "g",
        job="soak_jobs.chain:chain",
        conn_id=SUBMIT,
        spark="per-run",
        pool=JVM,
        conf={**SMALL, "spark.driver.host": os.environ["SOAK_ADDRESS"]},
    )

with soaked("months", max_active_runs=2):
    SparkJobTaskGroup("g", job="soak_jobs.months:months", conn_id=CONNECT)

with soaked("ledger", max_active_runs=2):
    SparkJobTaskGroup("g", job="soak_jobs.ledger:ledger", conn_id=CONNECT)

with soaked("batches", max_active_runs=1, params={"lake": Param(LAKE, type="string")}):
    batches: Any = SparkJobTaskGroup("g", job="soak_jobs.batches:batches", conn_id=SUBMIT, pool=JVM, conf=SMALL)
    batches.children["g.counted"]._conn_id = CONNECT

with soaked("streams", max_active_runs=1):
    SparkJobTaskGroup("g", job="soak_jobs.streams:streams", conn_id=SUBMIT, pool=JVM, conf=SMALL)

with soaked("drop_in", max_active_runs=1):
    spark: dict[str, Any] = {"conn_id": SUBMIT, "pool": JVM, "conf": {**SMALL, **S3A}}
    clean = RecoverableSparkSubmitOperator(
        task_id="clean",
        application=str(HERE / "applications" / "clean.py"),
        inputs={"numbers": f"{LAKE}/numbers/"},
        application_args=[f"{LAKE.replace('s3://', 's3a://', 1)}/numbers", "{output:cleaned}"],
        outputs=["cleaned"],
        deterministic="verify",
        **spark,
    )
    report = RecoverableSparkSubmitOperator(
        task_id="report",
        application=str(HERE / "applications" / "report.py"),
        inputs={"cleaned": clean.result("cleaned")},
        application_args=["{input:cleaned}", "{output:report}"],
        outputs=["report"],
        **spark,
    )
    report >> RecoveryPublishOperator(task_id="publish")

with soaked("shell", max_active_runs=3):
    Bash = recoverable(BashOperator, fields=["bash_command"], paths="plain")
    objects = "$PYSPARK_PYTHON " + str(HERE / "soak_jobs" / "objects.py")
    squares = Bash(
        task_id="squares",
        bash_command="set -o pipefail; n={{ 20 + (ds[-2:] | int) }}; "
        f"for i in $(seq $n); do echo $((i * i)); done | {objects} put '{{output:squares}}'",
        outputs=["squares"],
    )
    summed = Bash(
        task_id="summed",
        inputs={"squares": squares.result("squares")},
        bash_command=f"set -o pipefail; {objects} get '{{input:squares}}' | awk '{{s += $1}} END {{print s}}' "
        f"| {objects} put '{{output:summed}}'",
        outputs=["summed"],
    )
    evens = Bash(
        task_id="evens",
        inputs={"squares": squares.result("squares")},
        bash_command=f"set -o pipefail; {objects} get '{{input:squares}}' | awk '$1 % 2 == 0' "
        f"| {objects} put '{{output:evens}}'",
        outputs=["evens"],
    )
    [summed, evens] >> RecoveryPublishOperator(task_id="publish")


def table(name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog, _, inside = name.partition(".")
    return load_catalog(catalog, **BaseHook.get_connection(catalog).extra_dejson).load_table(inside)


def select(source: str, version: str, target: str, token: str, rows: str) -> None:
    read = table(source).scan(row_filter=rows, snapshot_id=int(version)).to_arrow()
    table(target).overwrite(read, snapshot_properties={"airflow-recovery.token": token})


def table_task(task_id: str, function: Callable[..., None], source: Any, table: str, **more: Any) -> Any:
    """Has ``function`` make ``table`` of ``source``, with ``more`` arguments."""
    told = {"source": "{input:source}", "version": "{version:source}"}
    made = {"target": f"{{output:{task_id}}}", "token": f"{{token:{task_id}}}"}
    return recoverable(PythonOperator)(
        task_id=task_id,
        python_callable=function,
        op_kwargs={**told, **made, **more},
        inputs={"source": source},
        outputs={task_id: table},
    )


def selecting(task_id: str, source: Any, rows: str) -> Any:
    return table_task(task_id, select, source, f"iceberg://lake/db.{task_id}", rows=rows)


with soaked("tables", max_active_runs=1):
    arrived = selecting("arrived", "iceberg://lake/db.flights", "delay is not null")
    cancelled = selecting("cancelled", "iceberg://lake/db.flights", "delay is null")
    late = selecting("late", arrived.result("arrived"), "delay > 15")
    [cancelled, late] >> RecoveryPublishOperator(task_id="publish")


def delta_options() -> dict[str, str]:
    keys = BaseHook.get_connection("recovery_s3")
    where = {"AWS_ENDPOINT_URL": os.environ["SOAK_S3"], "AWS_ALLOW_HTTP": "true"}
    extra = keys.extra_dejson
    return {
        **where,
        "AWS_REGION": extra["region_name"],
        "AWS_ACCESS_KEY_ID": str(keys.login),
        "AWS_SECRET_ACCESS_KEY": str(keys.password),
    }


def filter_delta(source: str, version: str, target: str, token: str, least: int) -> None:
    import deltalake
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    options = delta_options()
    folder = source.replace("s3a://", "s3://", 1)
    rows = deltalake.DeltaTable(folder, version=int(version), storage_options=options).to_pyarrow_table()
    deltalake.write_deltalake(
        target.replace("s3a://", "s3://", 1),
        rows.filter(pc.greater(rows["delay"], least)),
        mode="overwrite",
        commit_properties=deltalake.CommitProperties(custom_metadata={"airflow_recovery": token}),
        storage_options=options,
    )


def filtering(task_id: str, source: Any, least: int) -> Any:
    return table_task(task_id, filter_delta, source, f"delta+{LAKE}/delta/{task_id}", least=least)


with soaked("delta", max_active_runs=1):
    delayed = filtering("arrived", f"delta+{LAKE}/delta/flights", 0)
    filtering("late", delayed.result("arrived"), 15) >> RecoveryPublishOperator(task_id="publish")
