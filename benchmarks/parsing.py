"""What a DAG with a hundred regions costs to parse, beside a hundred ``SparkSubmitOperator``s."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.local_pipeline import import_path
from benchmarks.report import Figure, Report, Table, summary

GOAL_MS = 1.0


def measure(folder: Path, repeats: int | None) -> Report:
    """In a process of its own, so that nothing is imported but what a parse imports."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.parsing_process", str(folder), str(repeats or 20)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the parsing process failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    document = json.loads(done.stdout.splitlines()[-1])
    operators = document["operators"]
    regions_ms = [1000 * load / operators for load in document["regions_s"]]
    plain_ms = [1000 * load / operators for load in document["plain_s"]]
    per_operator = median(regions_ms)
    ratio = median(a / b for a, b in zip(regions_ms, plain_ms, strict=True))
    return Report(
        name="parsing",
        title=f"Parsing a DAG with {operators} region operators",
        method=(
            f"One process parses two DAG files in turns: `SparkJobTaskGroup` of a job with {operators} regions (with "
            f"the job's module, which is executed afresh each time), and {operators} `SparkSubmitOperator`s. The first "
            "parse of each is left out, since it imports; the imports are reported by themselves. Connections over "
            "the network are counted by an audit hook, modules of pyspark, boto3 and botocore at the end."
        ),
        figures=[
            Figure("a region operator", per_operator, "ms", f"at most {GOAL_MS:.0f} ms", per_operator <= GOAL_MS),
            Figure("against SparkSubmitOperator", ratio, "times"),
            Figure("one-off imports: airflow_recovery.operators", 1000 * document["own_imports_s"], "ms"),
            Figure(
                "one-off imports before it: Airflow's SparkSubmitOperator", 1000 * document["spark_imports_s"], "ms"
            ),
            Figure("network connections", document["connections"], "", "none", document["connections"] == 0),
            Figure("modules of pyspark, boto3, botocore", document["heavy"], "", "none", document["heavy"] == 0),
        ],
        tables=[
            Table(
                "Milliseconds an operator",
                ("kind", "median", "least", "most", "parses"),
                [("region operator", *summary(regions_ms)), ("SparkSubmitOperator", *summary(plain_ms))],
            )
        ],
        samples=document,
    )
