"""Files that are read split by split: lines[i] ~ numbers[i] --> counted

`alone`: one task reads all files; `dealt`: i of 2; `pulled`: i of 4.
"""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path
from typing import Any

from airflow_recovery import BLOCKING, files, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}
FILES = files("{{ conf.lake }}/*.csv")

calls = itertools.count()
"""Of this driver."""

alone = job("alone")
dealt = job("dealt")
pulled = job("pulled")


@pulled.source(splits=FILES, parallelism=4, assignment="dynamic", commit="split", batch_bytes=24, params=GATES)
@alone.source(splits=FILES, commit="split", batch_bytes=60, params=GATES)
@dealt.source(splits=FILES, parallelism=2, commit="split", batch_bytes=600, params=GATES)
def lines(spark: Any, splits: Any, context: Any, gates: str) -> Any:
    """Each call is a batch. It says what it was handed, and, behind the gate of its number, that it reads that."""
    index = context.subtask.index
    note = Path(gates, f"handed-{index}-{uuid.uuid4().hex}")
    note.write_text("\n".join(Path(split.uri).stem for split in splits))
    pass_gate(gates, f"lines-{index}-{next(calls)}")
    note.rename(note.with_name(note.name.replace("handed", "read")))
    return spark.read.csv(splits.paths, schema="number INT")


@pulled.vertex(parallelism=4, commit="split", result=BLOCKING)
@alone.vertex(commit="split", result=BLOCKING)
@dealt.vertex(parallelism=2, commit="split", result=BLOCKING)
def numbers(lines: Any) -> Any:
    return lines.where("number >= 0")


@alone.sink
@pulled.sink
@dealt.sink
def counted(numbers: Any) -> Any:
    """Of all subtasks, so that a split that was read twice is seen."""
    return numbers.groupBy("number").count()
