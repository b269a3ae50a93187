"""A subtask a file, as the files are when the run starts: raw[file] --> cleaned[file] --> merged."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, files, job, per_file, same_as
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

by_file = job("by_file")


@by_file.source(splits=files("{{ conf.lake }}/*.csv"), parallelism=per_file, result=BLOCKING, params=GATES)
def raw(spark: Any, splits: Any, context: Any, gates: str) -> Any:
    pass_gate(gates, f"raw-{context.subtask.key}")
    return spark.read.csv(splits.paths, schema="file STRING, number INT")


@by_file.vertex(parallelism=same_as("raw"), result=BLOCKING, params=GATES)
def cleaned(raw: Any, context: Any, gates: str) -> Any:
    pass_gate(gates, f"cleaned-{context.subtask.key}")
    return raw.where("number > 0")


@by_file.sink
def merged(cleaned: Any) -> Any:
    return cleaned.groupBy("file").sum("number").toDF("file", "total")
