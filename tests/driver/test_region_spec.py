from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from dataclass_strategies import values_of
from hypothesis import given

from airflow_recovery.annexes import ANNEXES
from airflow_recovery.driver import ModeSpec, RegionSpec, RunDates, StoreSpec, VertexSpec
from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.committing import CommitKind, CommitMode, CommitSpec
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptTrace, ExternalObject, RunIdentity
from airflow_recovery.splits.mode import AdoptedBatches
from airflow_recovery.splits.spec import SplitSpec
from airflow_recovery.streaming.spec import ChannelSpec, StreamingSpec

SPEC = RegionSpec(
    job="regionjobs.flights:flights",
    identity=RunIdentity("dag/ü", "2026-01-01T00:00:00+00:00", "group"),
    trace=AttemptTrace(
        "by_route",
        2,
        "w",
        "f",
        (InputRef("raw", 1, (("raw", "sum:7"),)),),
        (ExternalObject("a", "s3://lake/in.csv", 5, "e-2"),),
        CommitSpec("by_route", CommitKind.PROBE_ONLY, CommitMode.REPLACE, "jobs:Mine", '{"mode":"replace"}'),
    ),
    tag="t",
    vertices=(VertexSpec("a", {"day": "2026-01-01", "n": 3, "deep": [{"x": None}]}, False, True),),
    inputs=(PartitionManifest("raw", "s3://lake/x", (ResultObject("part-0", 10, "e"),), 3, '{"type":"struct"}'),),
    run=RunDates("2026-01-01", None, None),
    location="s3://lake/data/by_route/2",
    journal=StoreSpec("s3://lake/journal", "http://127.0.0.1:9000", "us-east-1"),
    results=StoreSpec("s3://lake/data"),
    receipt="/tmp/r",
)


@pytest.mark.slow
@given(values_of(RegionSpec).map(lambda spec: replace(spec, version=SPEC.version)))
def test_round_trip(spec: RegionSpec) -> None:
    text = spec.to_json()
    assert "\n" not in text
    assert RegionSpec.from_json(text) == spec


CHANNEL = ChannelSpec(
    result="clicks",
    generation=2,
    reconnect=Reconnect.LATEST,
    overflow=Overflow.DROP,
    max_bytes=1000,
    block_timeout_s=60.0,
    subpartitions=2,
    partition_by=("user",),
    budget=LossBudget(max_lost_records=7),
    restart_budget=LossBudget(max_lost_fraction=0.5),
    drained=(1,),
)


@pytest.mark.parametrize(
    "mode",
    [
        ModeSpec(),
        SplitSpec("a", 100, (AdoptedBatches(1, 3, (2,)),), 1, 4, is_pulled=True),
        StreamingSpec(input=CHANNEL, run_for_s=5.0, earlier=(1,)),
        StreamingSpec(output=CHANNEL),
    ],
    ids=repr,
)
def test_round_trip_of_an_example_in_each_mode(mode: ModeSpec) -> None:
    spec = replace(SPEC, mode=mode)
    assert RegionSpec.from_json(spec.to_json()) == spec


def test_a_batch_region_is_read_and_run_without_what_other_modes_do_in_a_driver() -> None:
    script = f"""
import sys
from airflow_recovery.driver import RegionSpec, driver
from airflow_recovery.driver.region import answers_of, DriverMode
spec = RegionSpec.from_json({SPEC.to_json()!r})
answers_of(spec.mode.name, "driver", DriverMode)
print(*sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    rooms = ("driver", "spec")
    assert {f"{annex.package}.{room}" for annex in ANNEXES.values() for room in rooms}.isdisjoint(answer.stdout.split())


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", "null", '{"job": 1}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        RegionSpec.from_json(text)


@pytest.mark.parametrize(
    "change",
    [{"new_field": 1}, {"trace": {"region": "r"}}, {"identity": {"dag_id": "d"}}, {"vertices": [{"name": "a"}]}],
)
def test_another_versions_document_is_refused(change: dict[str, object]) -> None:
    document = {**json.loads(SPEC.to_json()), **change}
    with pytest.raises(ValueError, match="the same version"):
        RegionSpec.from_json(json.dumps(document))


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        replace(SPEC, vertices=(VertexSpec("a", {"x": float("nan")}, True, False),)).to_json()
