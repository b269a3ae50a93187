"""A job of forty steps, written as its author would have it, with a bug in the last one; and the fix of that bug.

step_01 ~ ... ~ step_20 --> step_21 ~ ... ~ step_39 --> step_40          three regions: step_20, step_39, step_40
"""

from __future__ import annotations

from pathlib import Path

STEPS = 40
BARRIERS = (20, 39)
REGIONS = ("step_20", "step_39", "step_40")
BUG = "- 40"
FIX = "+ 40"
WRONG = sum(range(1, STEPS)) - STEPS
RIGHT = sum(range(1, STEPS + 1))

HEAD = '''"""Each step adds its number. The ends of the regions pass a gate, named by the step and the date."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}", "day": "{{ ds }}"}

forty = job("forty")


@forty.source
def step_01(spark: Any) -> Any:
    return spark.range(1).selectExpr("1 AS total")
'''
STEP = """

@forty.vertex
def step_{this:02}(step_{before:02}: Any) -> Any:
    return step_{before:02}.selectExpr("total + {this} AS total")
"""
BARRIER = """

@forty.{kind}
def step_{this:02}(step_{before:02}: Any, gates: str, day: str) -> Any:
    pass_gate(gates, f"step_{this:02}-{{day}}")
    return step_{before:02}.selectExpr("total {sign} AS total")
"""


def source(last: str) -> str:
    """The module's text. ``last`` is what step 40 does."""
    parts = [HEAD]
    for this in range(2, STEPS + 1):
        values = {"this": this, "before": this - 1}
        if this == STEPS:
            parts.append(BARRIER.format(kind="sink(params=GATES)", sign=last, **values))
        elif this in BARRIERS:
            parts.append(BARRIER.format(kind="vertex(result=BLOCKING, params=GATES)", sign=f"+ {this}", **values))
        else:
            parts.append(STEP.format(**values))
    return "".join(parts)


def write(dags: Path, last: str = BUG) -> None:
    """Write the job into a folder of DAGs, or change it there."""
    (dags / "integration_jobs" / "forty.py").write_text(source(last))
