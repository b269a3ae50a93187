"""What the guide declares with operators and groups can be declared: its blocks are copied."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

import airflow_recovery
from airflow_recovery import job, operators, sinks

DOCS = Path(__file__).resolve().parents[2] / "docs"
JOB = "dagjobs.shapes:diamond"


def blocks() -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```$", (DOCS / "guide.md").read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if "..." not in block]


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.splitlines()[0][:40])
def test_a_block_of_the_guide_can_be_declared(block: str) -> None:
    names: dict[str, Any] = {"timedelta": timedelta, "flights": job("flights")}
    for module in (airflow_recovery, operators, sinks):
        names |= {name: getattr(module, name) for name in module.__all__}
    if "def " not in block and block.startswith("@"):
        block += "def raw(spark, splits): ..."
    with DAG("d", schedule=None):
        exec(block.replace("jobs.flights:flights", JOB), names)
    assert len(blocks()) >= 6
