"""What parsing a DAG file costs others: nothing heavy imported, nobody asked. (Time is measured in `benchmarks/`.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from paths import CODE

PARSE = """
import json, socket, sys
from datetime import datetime, timezone

asked = []

def refuse(self, address):
    asked.append(str(address))
    raise OSError("no network while a DAG file is parsed")

socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = lambda *given, **_: refuse(None, given)

from airflow.sdk import DAG
before = set(sys.modules)
from airflow_recovery.operators import RecoverableSparkSubmitOperator, SparkJobTaskGroup

with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)) as dag:
    for number in range(20):  # five regions each
        SparkJobTaskGroup(group_id=f"g{number}", job="dagjobs.shapes:diamond", conf={"a": "{{ ds }}"})
    before_it = None
    for number in range(5):
        inputs = {"before": before_it.result("out")} if before_it else {"lake": "s3://lake/{{ ds }}"}
        before_it = RecoverableSparkSubmitOperator(
            task_id=f"t{number}", application="s3://code/app.py", inputs=inputs, outputs=["out"],
            application_args=["{output:out}"],
        )
EXTRA
heavy = ("boto3", "botocore", "pandas", "pyarrow", "pyspark", "grpc")
found = sorted(name for name in sys.modules if name.partition(".")[0] in heavy)
print(json.dumps({"asked": asked, "heavy": found[:10], "tasks": len(dag.tasks)}))
"""


def parse(extra: str = "") -> dict[str, object]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")}
    env["PYTHONPATH"] = os.pathsep.join(each for each in (str(CODE), env.get("PYTHONPATH")) if each)
    script = PARSE.replace("EXTRA", extra)
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_hundred_regions_import_nothing_heavy_and_ask_nobody() -> None:
    assert parse() == {"asked": [], "heavy": [], "tasks": 20 * 6 + 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("import boto3", "heavy"),
        ("try:\n    socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass", "asked"),
    ],
)
def test_control_what_is_not_wanted_would_be_seen(extra: str, key: str) -> None:
    assert parse(extra)[key]
