"""What the tests deploy other versions of, split by split: lines[i] ~ numbers[i] --> counted. A batch passes a gate."""

from __future__ import annotations

import itertools
from typing import Any

from airflow_recovery import BLOCKING, files, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}
WAYS = 2

calls = itertools.count()
"""Of this driver."""

deployed_splits = job("deployed_splits")


@deployed_splits.source(
    splits=files("{{ conf.lake }}/*.csv"), parallelism=WAYS, commit="split", batch_bytes=12, params=GATES
)
def lines(spark: Any, splits: Any, context: Any, gates: str) -> Any:
    pass_gate(gates, f"lines-{context.subtask.index}-{next(calls)}")
    return spark.read.csv(splits.paths, schema="number INT")


@deployed_splits.vertex(parallelism=WAYS, commit="split", result=BLOCKING)
def numbers(lines: Any) -> Any:
    return lines.where("number >= 0")


@deployed_splits.sink
def counted(numbers: Any) -> Any:
    return numbers.selectExpr("count(*) AS rows", "sum(number) AS total")
