"""``cluster_task.py FOLDER MASTER``: the task of one region, which submits its driver to a standalone cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from outliving import IDENTITY, Submitted, task_of

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.driver.region_spec import RegionSpec, RunDates, VertexSpec
from airflow_recovery.driver.submit import APPLICATION, QUIET_CONF
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.spark_cluster import spark_home

JOB = "regionjobs.numbers:numbers"
PLAN = PlanRecord(JOB, (RegionPlan("r", ("troubled", "checked"), ("checked",), (), True, "code 1"),))


@dataclass
class ClusterRunner(Submitted):
    """Submits with Spark's own ``spark-submit``, which ends with this process; its driver runs on a worker."""

    master: str = ""

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        spec = self._spec(attempt)
        path = self.folder / f"{spec.attempt}.json"
        path.write_text(spec.to_json())
        subprocess.run(self._command(path), check=True, preexec_fn=die_with_parent)
        journal = Journal(LocalStore(spec.journal.uri), IDENTITY, writer=self.writer)
        while (outcome := journal.read_outcome(spec.region, spec.attempt)) is None:
            time.sleep(0.2)
        return outcome

    def _command(self, spec: Path) -> list[str]:
        archive = str(build_archive(JOB))
        conf = {
            **QUIET_CONF,
            "spark.app.name": "one region",
            "spark.cores.max": "1",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.pyspark.python": sys.executable,
            "spark.submit.pyFiles": archive,
        }
        settings = [each for key, value in conf.items() for each in ("--conf", f"{key}={value}")]
        # spark-submit refuses a Python file here; what it would have run on a cluster of another kind is this class.
        runner = ["--class", "org.apache.spark.deploy.PythonRunner"]
        jar = next(str(path) for path in (spark_home() / "jars").glob("spark-core_*.jar"))
        mode = ["--master", self.master, "--deploy-mode", "cluster", "--driver-memory", "512m"]
        return [str(spark_home() / "bin/spark-submit"), *mode, *settings, *runner, jar, APPLICATION, archive, str(spec)]

    def _spec(self, attempt: ClaimedAttempt) -> RegionSpec:
        results = StoreSpec(f"file://{self.folder}/results")
        told = {"what": "python", "ready": str(self.folder / "ready"), "go": str(self.folder / "go")}
        return RegionSpec(
            job=JOB,
            identity=IDENTITY,
            trace=attempt.trace,
            tag=attempt.claim.tag,
            vertices=(VertexSpec("troubled", told, False, False), VertexSpec("checked", {}, True, False)),
            inputs=(),
            run=RunDates(None, None, None),
            location=f"{results.uri}/{JournalLayout(IDENTITY).data_of(attempt.claim)}",
            journal=StoreSpec(f"file://{self.folder}/journal"),
            results=results,
            heartbeat_s=0.5,
        )


if __name__ == "__main__":
    airflow = FakeAirflow({"r": ()})
    first = ClusterRunner(Path(sys.argv[1]), "first try", master=sys.argv[2])
    task_of(airflow.start("r"), airflow, first, HeartbeatTimeouts(), PLAN).execute()
