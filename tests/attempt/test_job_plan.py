"""The plan of a job with parallel vertices: a region a subtask, and who reads whom."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_recovery import BLOCKING, files, job, per_file, same_as
from airflow_recovery.attempt.job_plan import JobPlan, plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.job import Job
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model import groups
from airflow_recovery.model.region_plan import SubtaskPlan

FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {"k": "v"}, {})


def months(keys: Any = ("jan", "feb")) -> Job:
    #   read[m] --> cleaned[m] --> total --> shown[s]
    made = job("months", version="1")

    @made.source(result=BLOCKING, parallelism=keys, params={"month": "{{ subtask }}", "k": "{{ conf.k }}"}, version="1")
    def read(spark: Any, month: str, k: str) -> Any: ...

    @made.vertex(result=BLOCKING, parallelism=same_as("read"), version="1")
    def cleaned(read: Any) -> Any: ...

    @made.vertex(result=BLOCKING, version="1")
    def total(cleaned: Any) -> Any: ...

    @made.sink(parallelism=2, version="1")
    def shown(total: Any, cleaned: Any) -> Any: ...

    return made


def inputs(plan: JobPlan) -> dict[str, tuple[str, ...]]:
    return {region.name: tuple(region.inputs) for region in plan.record.regions}


def test_pointwise_between_the_same_subtasks_else_everything() -> None:
    plan = plan_job(months(), "x:y", FACTS)
    every = ("cleaned[jan]", "cleaned[feb]")
    assert inputs(plan) == {
        "read[jan]": (),
        "read[feb]": (),
        "cleaned[jan]": ("read[jan]",),
        "cleaned[feb]": ("read[feb]",),
        "total": every,
        "shown[0]": ("total", *every),
        "shown[1]": ("total", *every),
    }
    assert plan.record.regions[1].subtask == SubtaskPlan("read", 1, "feb")
    assert plan.regions["read[feb]"].params["read"] == {"month": "feb", "k": "v"}
    assert plan.task_keys("g") == {
        "read[jan]": "g.read|0",
        "read[feb]": "g.read|1",
        "cleaned[jan]": "g.cleaned|0",
        "cleaned[feb]": "g.cleaned|1",
        "total": "g.total",
        "shown[0]": "g.shown|0",
        "shown[1]": "g.shown|1",
    }


def test_neighbours_share_a_task_where_they_are_in_one_batch() -> None:
    plan = plan_job(months(["jan", "feb", "mar"]), "x:y", FACTS)
    batched = plan.in_batches(lambda count: 2 if count == 3 else 1)
    assert {name: key for name, key in batched.task_keys("g").items() if "[" in name} == {
        "read[jan]": "g.read|0",
        "read[feb]": "g.read|0",
        "read[mar]": "g.read|1",
        "cleaned[jan]": "g.cleaned|0",
        "cleaned[feb]": "g.cleaned|0",
        "cleaned[mar]": "g.cleaned|1",
        "shown[0]": "g.shown|0",
        "shown[1]": "g.shown|1",
    }
    # What is computed is the same, and a plan without batches is the record that it has always been.
    assert [region.fingerprint for region in batched.record.regions] == [
        region.fingerprint for region in plan.record.regions
    ]
    assert plan_hash(plan.in_batches(lambda count: 1).record) == plan_hash(plan.record) != plan_hash(batched.record)


def test_fault_62_a_key_keeps_its_region_and_fingerprint_wherever_it_stands() -> None:
    before = {region.name: region.fingerprint for region in plan_job(months(), "x:y", FACTS).record.regions}
    plan = plan_job(months(["mar", "feb", "jan"]), "x:y", FACTS)
    after = {region.name: region.fingerprint for region in plan.record.regions}
    assert before.items() <= after.items()
    assert set(after) - set(before) == {"read[mar]", "cleaned[mar]"}
    assert plan.task_keys("g")["read[jan]"] == "g.read|2"
    # No two subtasks can be taken for one another.
    assert len(set(after.values())) == len(after)


def test_fault_62_control_named_by_position_what_stands_would_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fingerprints(keys: list[str]) -> dict[str, str | None]:
        def by_position(region: str, key: str | None) -> str:
            return region if key is None else f"{region}[{keys.index(key) if key in keys else key}]"

        monkeypatch.setattr(groups, "subtask_region", by_position)
        return {region.name: region.fingerprint for region in plan_job(months(keys), "x:y", FACTS).record.regions}

    before, after = fingerprints(["jan", "feb"]), fingerprints(["feb", "jan"])
    # Never kept for another key, since the key is in the fingerprint; but all that has moved would run again.
    assert {name for name in before if before[name] != after[name]} == {
        f"{vertex}[{at}]" for vertex in ("read", "cleaned") for at in (0, 1)
    }


def test_without_parallelism_a_plan_is_what_it_was() -> None:
    made = job("plain", version="1")

    @made.sink(version="1", name="only")
    def only(src: Any) -> Any: ...

    @made.source(version="1", name="src")
    def src(spark: Any) -> Any: ...

    record = plan_job(made, "x:y", FACTS).record
    assert [(region.name, region.subtask) for region in record.regions] == [("only", None)]
    assert plan_hash(record) == plan_hash(plan_job(made, "x:y", FACTS).record)


@pytest.mark.parametrize(
    ("read", "finals"),
    [
        ("", ()),
        ("kept", ()),  # the sinks are what nobody reads
        ("first second", ()),  # the sinks are all that there is
        ("first", ("first", "second")),
        ("kept second", ("first", "second")),
        ("kept first second", ("first", "second")),
    ],
)
def test_a_plan_names_the_sinks_of_a_region_where_the_job_reads_one_of_them(read: str, finals: tuple[str, ...]) -> None:
    #   src -> first, second, kept: one region         each that is read has a sink of its own behind it
    made = job("sinks", version="1")

    @made.source(version="1")
    def src(spark: Any) -> Any: ...

    def write(rows: Any) -> Any: ...

    for name in ("first", "second"):
        made.sink(version="1", name=name, inputs={"rows": "src"})(write)
    if "kept" in read:
        made.vertex(version="1", name="kept", inputs={"rows": "src"}, result=BLOCKING)(write)
    for name in read.split():
        made.sink(version="1", name=f"after_{name}", inputs={"rows": name})(write)

    regions = plan_job(made, "x:y", FACTS).record.regions
    assert regions[0].vertices[:3] == ("src", "first", "second")
    assert [region.finals for region in regions] == [finals] + [()] * len(read.split())


def test_keys_of_the_run_are_recorded_by_a_region_of_their_own() -> None:
    plan = plan_job(months("{{ conf.get('m', 'a,b') }}"), "x:y", FACTS, {"read.subtasks": ["b", "a"]})
    assert list(inputs(plan))[:3] == ["read.subtasks", "read[b]", "read[a]"]
    assert plan.task_keys("g")["read.subtasks"] == "g.read.subtasks"
    assert "read.subtasks" not in plan.regions
    # What decides is its fingerprint: other keys are decided anew.
    other = RunFacts(FACTS.logical_date, None, None, {"k": "v", "m": "a"}, {})
    again = plan_job(months("{{ conf.get('m', 'a,b') }}"), "x:y", other, {"read.subtasks": ["b", "a"]})
    assert plan.record.regions[0].fingerprint != again.record.regions[0].fingerprint


def test_files_decide_by_their_pattern() -> None:
    made = job("j", version="1")

    @made.source(splits=files("s3://lake/{{ ds }}/*.csv"), parallelism=per_file, version="1")
    def raw(spark: Any, splits: Any) -> Any: ...

    @made.sink(parallelism=same_as("raw"), version="1")
    def kept(raw: Any) -> Any: ...

    plan = plan_job(made, "x:y", FACTS, {"kept.subtasks": ["a.csv"]})
    assert list(inputs(plan)) == ["kept.subtasks", "kept[a.csv]"]
    assert plan.regions["kept[a.csv]"].sources == {"raw": files("s3://lake/2026-01-01/*.csv")}
