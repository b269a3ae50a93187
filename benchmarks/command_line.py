"""How much processor time a command takes before a person has read its answer, beside Airflow's own start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing.s3_server import REGION, MotoServer
from benchmarks.local_pipeline import BUCKET, import_path
from benchmarks.plan_cases import random_run
from benchmarks.report import Figure, Report, Table, summary
from benchmarks.resume import write_finished

REGIONS = 10
GOAL_S, GOAL_BEYOND_AIRFLOW_S = 1.0, 1.5
IDENTITY = RunIdentity("dag", "date-2026-01-01T000000Z", "group")
ALONE, IN_AIRFLOW, AIRFLOW = "python -m airflow_recovery show", "airflow recovery show", "airflow version"


def measure(folder: Path, repeats: int | None) -> Report:
    """The three commands in turns, each in a process of its own."""
    rounds = repeats or 7
    folder.mkdir(parents=True)
    server = MotoServer(folder / "s3").start()
    try:
        server.create_bucket(BUCKET)
        stores = [
            S3Store(f"s3://{BUCKET}/{name}", endpoint_url=server.endpoint_url, session=server.session())
            for name in ("journal", "results")
        ]
        write_finished(stores[0], stores[1], IDENTITY, random_run(REGIONS)[0], REGIONS)
        uris = {"JOURNAL": stores[0].base_uri, "RESULTS": stores[1].base_uri}
        env = {**os.environ, **server.environment(), "PYTHONPATH": import_path(), "AIRFLOW_HOME": str(folder / "home")}
        env |= {f"AIRFLOW__RECOVERY__{name}": uri for name, uri in uris.items()}
        env["AWS_ENDPOINT_URL_S3"] = server.endpoint_url
        given = ("--journal", uris["JOURNAL"], "--results", uris["RESULTS"], "--s3-region", REGION)
        asked = ("show", IDENTITY.dag_id, IDENTITY.run_key)
        commands = {
            ALONE: ("airflow_recovery", *asked, *given, "--endpoint-url", server.endpoint_url),
            IN_AIRFLOW: ("airflow", "recovery", *asked),
            AIRFLOW: ("airflow", "version"),
        }
        samples: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, command in commands.items():
                cpu_s = _cpu_s(command, env, folder)
                if number:  # the first of each compiles what it imports
                    samples[name].append(cpu_s)
    finally:
        server.stop()
    alone = median(samples[ALONE])
    beyond = median(ours - airflow for ours, airflow in zip(samples[IN_AIRFLOW], samples[AIRFLOW], strict=True))
    return Report(
        name="command_line",
        title="The command line's answer",
        method=(
            f"`show` of a run of {REGIONS} finished regions on S3 (moto, over HTTP), by the command without Airflow, "
            f"and by Airflow's own, beside `airflow version`; {rounds} rounds, in turns. Processor time of the process "
            "and of its children, user and system: another load changes it less than the time on a clock."
        ),
        figures=[
            Figure(ALONE, alone, "s", f"at most {GOAL_S:g} s", alone <= GOAL_S),
            Figure(
                f"{IN_AIRFLOW}, beyond {AIRFLOW}",
                beyond,
                "s",
                f"at most {GOAL_BEYOND_AIRFLOW_S:g} s",
                beyond <= GOAL_BEYOND_AIRFLOW_S,
            ),
        ],
        tables=[
            Table(
                "Milliseconds of processor time",
                ("command", "median", "least", "most", "runs"),
                [(name, *summary([1000 * one for one in found])) for name, found in samples.items()],
            )
        ],
        samples=samples,
    )


def _cpu_s(command: Sequence[str], env: Mapping[str, str], folder: Path) -> float:
    """Of ``python -m`` with these words. Raises `RuntimeError` with what it says where it fails."""
    log = folder / "said"
    with log.open("wb") as said:
        process = subprocess.Popen([sys.executable, "-m", *command], env=env, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{log.read_text()[-2000:]}")
    return used.ru_utime + used.ru_stime
