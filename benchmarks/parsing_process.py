"""The process that `benchmarks.parsing` measures: ``python -m benchmarks.parsing_process <folder> <parses>``."""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

OPERATORS = 100
HEAVY = ("pyspark", "boto3", "botocore")

PLAIN = """
from datetime import datetime, timezone
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("plain", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=timezone.utc)):
    before = None
    for number in range({operators}):
        operator = SparkSubmitOperator(
            task_id=f"t{{number}}", application="a.py", doc_md=f"Task {{number}}.", retries=3
        )
        if before is not None:
            before >> operator
        before = operator
"""

REGIONS = """
from datetime import datetime, timezone
from airflow.sdk import DAG
from airflow_recovery.operators import SparkJobTaskGroup

with DAG("regions", schedule=None, start_date=datetime(2013, 1, 1, tzinfo=timezone.utc)):
    SparkJobTaskGroup(group_id="g", job="hundred:hundred")
"""


def job_source(operators: int) -> str:
    """A job of a chain of as many regions: every vertex is blocking."""
    lines = [
        "from airflow_recovery import BLOCKING, job",
        "hundred = job('hundred')",
        "@hundred.source(result=BLOCKING)",
        "def t0(spark): return spark.range(1)",
    ]
    for number in range(1, operators):
        kind = "sink" if number == operators - 1 else "vertex(result=BLOCKING)"
        lines += [f"@hundred.{kind}", f"def t{number}(t{number - 1}): return t{number - 1}"]
    return "\n".join(lines) + "\n"


def main(folder: Path, parses: int) -> None:
    """Print one line of JSON with what was measured."""
    os.environ.setdefault("AIRFLOW_HOME", str(folder / "airflow"))
    connections = [0]

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo"):
            connections[0] += 1

    (folder / "hundred.py").write_text(job_source(OPERATORS), encoding="utf-8")
    (folder / "plain_dag.py").write_text(PLAIN.format(operators=OPERATORS), encoding="utf-8")
    (folder / "regions_dag.py").write_text(REGIONS, encoding="utf-8")
    sys.path.insert(0, str(folder))

    import airflow.sdk.execution_time.task_runner  # noqa: F401  # what every process that parses DAGs has imported
    from airflow.sdk import DAG, BaseOperator, TaskGroup  # noqa: F401

    sys.addaudithook(count)
    spark_imports_s = _timed(lambda: __import__("airflow.providers.apache.spark.operators.spark_submit"))
    own_imports_s = _timed(lambda: __import__("airflow_recovery.operators"))
    plain_s: list[float] = []
    regions_s: list[float] = []
    for _ in range(parses + 1):
        plain_s.append(_timed(lambda: runpy.run_path(str(folder / "plain_dag.py"))))
        sys.modules.pop("hundred", None)
        regions_s.append(_timed(lambda: runpy.run_path(str(folder / "regions_dag.py"))))
    heavy = [name for name in sys.modules if name.partition(".")[0] in HEAVY]
    found = {
        "operators": OPERATORS,
        "spark_imports_s": spark_imports_s,
        "own_imports_s": own_imports_s,
        "plain_s": plain_s[1:],
        "regions_s": regions_s[1:],
        "connections": connections[0],
        "heavy": len(heavy),
    }
    print(json.dumps(found))


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
