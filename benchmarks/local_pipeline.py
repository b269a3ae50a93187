"""An S3 server and a whole Airflow: the ground that the Airflow benchmarks stand on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Literal

from airflow_recovery.doctor.fault_detection import SETTINGS
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server, local_server
from benchmarks import CPU_FILE_VARIABLE

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
BUCKET = "recovery"
RUN_TIMEOUT_S = 900.0
DEFAULTS, RECOMMENDED = "Airflow's defaults", "recommended"
AIRFLOW_VALUES: Mapping[str, Mapping[str, str]] = {
    DEFAULTS: {},
    RECOMMENDED: {setting.variable: f"{setting.recommended:g}" for setting in SETTINGS},
}
"""What is set for an Airflow whose own intervals are measured (``fast=False``), under a name for people."""
RECOMMENDED_TEXT = ", ".join(
    f"{setting.name} = {setting.recommended:g} (default {setting.default:g})"
    for setting in SETTINGS
    if setting.recommended != setting.default
)


def import_path() -> str:
    """What a measured process has as its ``PYTHONPATH``: the installed wheel first, and this package."""
    return os.pathsep.join([os.environ["PYTHONPATH"], str(REPOSITORY)])


@dataclass(frozen=True)
class Measured:
    """One try of one task: its duration as Airflow has it, and the CPU time of its processes."""

    task: str
    seconds: float
    own_cpu_s: float
    children_cpu_s: float

    @property
    def cpu_s(self) -> float:
        """The task's process and spark-submit's."""
        return self.own_cpu_s + self.children_cpu_s


@dataclass(frozen=True)
class MeasuredRun:
    """One DAG run. ``makespan_s`` is from its first task's start to its last task's end."""

    tasks: Mapping[str, Measured]
    makespan_s: float


class LocalPipeline:
    """A running S3 server and Airflow. Made by `open_local_pipeline`."""

    def __init__(self, airflow: LocalAirflow, folder: Path, cpu_file: Path, s3: S3Server) -> None:
        self.airflow = airflow
        self.folder = folder
        self._s3 = s3
        self._cpu_file = cpu_file

    def run(self, dag_id: str, logical_date: str) -> MeasuredRun:
        """A new run, to its end. Raises `RuntimeError` with the tasks' states where it fails."""
        return self._measured(dag_id, self.airflow.trigger(dag_id, logical_date=logical_date))

    def run_again(self, dag_id: str, logical_date: str) -> MeasuredRun:
        """Clear every task of a run, and measure the new tries."""
        run_id = f"local__{logical_date}"
        self.airflow.clear(dag_id, run_id)
        return self._measured(dag_id, run_id)

    def command(self, *words: str) -> str:
        """What ``python -m airflow_recovery`` prints of this journal. Raises `CalledProcessError` where it fails."""
        journal = (
            "--journal",
            f"s3://{BUCKET}/journal",
            "--endpoint-url",
            self._s3.endpoint_url,
            "--s3-region",
            REGION,
        )
        command = [sys.executable, "-m", "airflow_recovery", *words, *journal]
        env = {**os.environ, **self._s3.environment()}
        return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout

    def _measured(self, dag_id: str, run_id: str) -> MeasuredRun:
        state = self.airflow.wait_run(dag_id, run_id, RUN_TIMEOUT_S)
        if state != "success":
            raise RuntimeError(f"run {run_id} of {dag_id}: {state}\n{self._account(dag_id, run_id)}")
        document = self.airflow.task_instances(dag_id, run_id)
        cpu = self._cpu(dag_id, run_id, {(instance["task_id"], instance["try_number"]) for instance in document})
        tasks = {
            instance["task_id"]: Measured(
                instance["task_id"], float(instance["duration"]), *cpu[instance["task_id"], instance["try_number"]]
            )
            for instance in document
        }
        begun_s = min(moment_s(instance["start_date"]) for instance in document)
        return MeasuredRun(tasks, max(moment_s(instance["end_date"]) for instance in document) - begun_s)

    def _account(self, dag_id: str, run_id: str) -> str:
        """The tasks' states, and the end of the first failed one's log."""
        failed = [instance for instance in self.airflow.task_instances(dag_id, run_id) if instance["state"] == "failed"]
        logs = [
            self.airflow.log(dag_id, run_id, instance["task_id"], instance["try_number"])[-3000:]
            for instance in failed[:1]
        ]
        return "\n".join([self.airflow.describe(dag_id, run_id), *logs])

    def _cpu(self, dag_id: str, run_id: str, tries: set[tuple[str, int]]) -> dict[tuple[str, int], tuple[float, float]]:
        # A listener's line comes after the try's end as the server has it: wait for the last ones.
        deadline = time.monotonic() + 30
        while True:
            lines = [json.loads(line) for line in self._cpu_file.read_text(encoding="utf-8").splitlines()]
            document = {
                (line["task_id"], line["try_number"]): (line["own_cpu_s"], line["children_cpu_s"])
                for line in lines
                if (line["dag_id"], line["run_id"]) == (dag_id, run_id)
            }
            if tries <= document.keys():
                return document
            if time.monotonic() > deadline:
                raise RuntimeError(f"no CPU time of {sorted(tries - document.keys())} in {self._cpu_file}")
            time.sleep(0.05)


@contextmanager
def open_local_pipeline(
    folder: Path,
    env: Mapping[str, str],
    *,
    parallelism: int = 1,
    database: Literal["sqlite", "postgresql"] = "sqlite",
    fast: bool = True,
) -> Iterator[LocalPipeline]:
    """Start the S3 server and Airflow below ``folder``; leave no process behind.

    ``env`` is added to Airflow's. ``parallelism``: how many tasks run at the same time. ``fast=False``: with the
    intervals that Airflow has by default, in place of those of its tests.
    """
    folder.mkdir(parents=True)
    cpu_file = folder / "cpu.jsonl"
    cpu_file.touch()
    with local_server(folder / "s3") as s3:
        s3.create_bucket(BUCKET)
        aws = {"region_name": REGION, "endpoint_url": s3.endpoint_url}
        settings = {
            "AIRFLOW__RECOVERY__JOURNAL": f"s3://{BUCKET}/journal",
            "AIRFLOW__RECOVERY__RESULTS": f"file://{folder / 'results'}",
            "AIRFLOW__RECOVERY__AWS_CONN_ID": "recovery_s3",
            "AIRFLOW_CONN_RECOVERY_S3": json.dumps(
                {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY, "extra": aws}
            ),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(HERE / "plugins"),
            # Else a parse of the DAG files takes a core in the middle of a task.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
            CPU_FILE_VARIABLE: str(cpu_file),
            # As in an installation, whose modules were compiled once.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPATH": f"{import_path()}{os.pathsep}{REPOSITORY / 'dags'}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
            "AWS_EC2_METADATA_DISABLED": "true",
            **env,
        }
        with LocalAirflow(
            folder / "airflow", HERE / "dags", database=database, env=settings, fast=fast, parallelism=parallelism
        ) as airflow:
            yield LocalPipeline(airflow, folder, cpu_file, s3)


def median_of(samples: Sequence[Measured], what: str) -> float:
    """The median of one attribute."""
    return median(float(getattr(sample, what)) for sample in samples)


def moment_s(text: str) -> float:
    """A moment as Airflow's API says it, in seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
