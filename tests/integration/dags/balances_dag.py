"""`balances`: each date adds to the balance of the one before, in one Delta table that it reads and writes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from airflow_recovery.operators import recoverable

LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")


def add(table: str, version: str, token: str, gates: str) -> None:
    """Ten more than the version that it is told. With ``die`` among the gates it is killed behind its commit, once."""
    import deltalake
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = deltalake.DeltaTable(table, version=int(version)).to_pyarrow_table()
    more = pa.table({"balance": pc.add(rows["balance"], 10)})
    mine = deltalake.CommitProperties(custom_metadata={"airflow_recovery": token})
    deltalake.write_deltalake(table, more, mode="overwrite", commit_properties=mine)
    die = Path(gates) / "die"
    if die.exists():
        die.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


with DAG("balances", schedule=None):
    recoverable(PythonOperator, paths="plain")(
        task_id="add",
        python_callable=add,
        op_args=["{input:before}", "{version:before}", "{token:after}", "{{ dag_run.conf['gates'] }}"],
        inputs={"before": f"delta+{LAKE}/balances"},
        outputs={"after": f"delta+{LAKE}/balances"},
    )
