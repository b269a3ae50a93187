"""A job's own room knows no mode: each is imported when something is declared for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

DECLARE = """
import sys
from airflow_recovery import BLOCKING, files, job

made = job("j", version="1")

@made.source(splits=files("s3://lake/*"), result=BLOCKING{more})
def raw(spark, splits): ...

@made.sink
def kept(raw): ...

made.regions()
made.check_strategy(made.failover_strategy)
print(*sorted(name for name in sys.modules if name.endswith(".declaration") and ".sinks." not in name))
"""


@pytest.mark.parametrize(
    ("more", "mode"), [("", None), (", commit='split'", "splits"), (", result='PIPELINED_APPROXIMATE'", "streaming")]
)
def test_a_job_imports_the_modes_that_it_is_declared_for(more: str, mode: str | None) -> None:
    code = DECLARE.replace("{more}", more)
    if mode == "streaming":
        code = code.replace("result=BLOCKING,", "").replace('splits=files("s3://lake/*"), ', "").replace(", splits", "")
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modes = {name for name in answer.stdout.split() if name != "airflow_recovery.job.declaration"}
    assert modes == ({f"airflow_recovery.{mode}.declaration"} if mode else set())
