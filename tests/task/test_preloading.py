"""What is imported before tasks are forked. In a real scheduler: `tests/testing_airflow/test_killed_scheduler.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.task.preloading import preload

PRELOAD = """
import json, os, socket, sys
from airflow_recovery.task.preloading import preload

opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event in ("open", "socket.connect") else None)
preload()
modules, connections = set(sys.modules), [what for what in opened if isinstance(what, socket.socket)]
opened.clear()
from airflow_recovery.store.s3_clients import S3Clients, new_session

S3Clients(new_session("key", "secret"), endpoint_url=None, region_name="us-east-1").sending(1)
described = [path for path in opened if "botocore" in str(path) and "service-2" in str(path)]
wanted = {"airflow_recovery.attempt.region_task", "botocore.session", "pyspark.sql.connect.session"}
print(json.dumps([sorted(wanted & modules), len(connections), bool(described)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "modules", "described"),
    [
        ("none", [], True),
        ("tasks", ["airflow_recovery.attempt.region_task", "botocore.session"], False),
        ("connect", ["airflow_recovery.attempt.region_task", "botocore.session", "pyspark.sql.connect.session"], False),
    ],
)
def test_what_a_fork_need_not_import_or_read(value: str, modules: list[str], described: bool) -> None:
    """``described``: whether the first client afterwards reads the SDK's description of S3."""
    settings = {"AIRFLOW__RECOVERY__PRELOAD": value, "AIRFLOW__RECOVERY__JOURNAL": "s3://bucket/journal"}
    done = subprocess.run(
        [sys.executable, "-c", PRELOAD], env={**os.environ, **settings}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [modules, 0, described]


FORKED = """
import gc, os
from airflow_recovery.task.preloading import preload

preload()
read, write = os.pipe()
if not os.fork():
    os.write(write, f"{gc.get_freeze_count()} {len(gc.get_objects())}".encode())
    os._exit(0)
print(os.read(read, 100).decode())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("value", "is_left_out"), [("tasks", True), ("none", False)])
def test_a_fork_leaves_out_of_its_garbage_collection_what_it_shares(value: str, is_left_out: bool) -> None:
    """In a real worker: `tests/machines/test_two_workers.py`."""
    env = {**os.environ, "AIRFLOW__RECOVERY__PRELOAD": value}
    done = subprocess.run([sys.executable, "-c", FORKED], env=env, capture_output=True, text=True, check=True)
    frozen, collected = map(int, done.stdout.split())
    assert (frozen > 100 * collected) is is_left_out


def test_another_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__PRELOAD", "all")
    with pytest.raises(ConfigurationError, match=r"tasks, connect or none in \[recovery\] preload, found 'all'"):
        preload()
