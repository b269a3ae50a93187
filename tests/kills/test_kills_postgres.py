"""Any part of Airflow is killed, or its database lost, in the middle of a run: nothing that is finished runs again.

PostgreSQL, two schedulers, real Spark; thirteen regions (`dags/relay_jobs/relay.py`). One run is harmed in all
ways, at moments that the seed decides ("when n regions have finished"), as it decides which task, which scheduler.
``--drill 10`` is ten such runs; ``--seed 7`` repeats that of seed 7.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from disturbances import (
    Disturbance,
    DisturbedRun,
    api_server_down,
    disturb,
    freeze_a_task,
    kill_a_supervisor,
    kill_a_task,
    kill_all_schedulers,
    kill_and_restart,
    kill_the_jvm,
    kill_the_triggerer,
    lose_the_database,
    restore_the_database,
)
from pipeline import Pipeline

from airflow_recovery.store import open_store
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.verify import verify_run

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

REGIONS = [f"{chain}{number}" for chain in "abc" for number in range(1, 5)] + ["total"]
MOMENTS = range(1, len(REGIONS) - 1)
"""After so many finished regions there is always one more that runs, or is about to."""

Undisturbed = dict[str, list[tuple[Any, ...]]]


def begin(pipeline: Pipeline, dag_id: str, seed: int) -> DisturbedRun:
    return DisturbedRun(pipeline.run(dag_id, name=f"seed-{seed}"), Random(f"{dag_id} {seed}"))


def moments(disturbed: DisturbedRun, count: int) -> list[int]:
    """Which ones, and in which order the harms take them."""
    return disturbed.random.sample(MOMENTS, count)


def assert_survived(disturbed: DisturbedRun, undisturbed: Undisturbed) -> None:
    """The run ends, and nobody can tell from its results that anything has happened to it."""
    run = disturbed.run
    journal = run.ends()
    journal.check()
    claims = journal.executions()
    assert set(claims) == set(REGIONS)
    for region, attempts in journal.attempts.items():
        finished = [number for number, each in attempts.items() if each.is_finished]
        # One finish, and no attempt after it: what was finished has not run again.
        assert finished == [claims[region]], (
            f"{region}: finished are {finished}, claimed {claims[region]}: {disturbed.said}"
        )
        assert 1 <= run.calls(region) <= claims[region], disturbed.said
    assert {name: journal.rows(name) for name in undisturbed} == undisturbed
    report = verify_run(
        S3Store(
            f"s3://{run.pipeline.bucket}/journal",
            endpoint_url=run.pipeline.s3.endpoint_url,
            session=run.pipeline.s3.session(),
        ),
        open_store,
        dag_id=run.dag_id,
        run_key=f"date-{run.day}T000000Z",
        group_id=run.group_id,
        ended=True,
        deep=True,
    )
    assert report.violated == (), report.text()


def test_fault_4_fault_9_fault_10_fault_11_fault_60_every_part_is_killed_or_frozen_and_the_database_lost(
    pipeline: Pipeline, undisturbed: Undisturbed, seed: int, api_down_s: float, tmp_path: Path
) -> None:
    """The database is restored to before the last three finishes, and lost some regions later."""
    disturbed = begin(pipeline, "relay", seed)
    task, supervisor, frozen, scheduler, triggerer, api_server, schedulers = moments(disturbed, 7)
    restored, lost = disturbed.random.choice(range(5)), disturbed.random.choice(range(8, len(REGIONS) - 1))

    def database() -> Disturbance:
        yield from restore_the_database(disturbed, restored, tmp_path / "backup")
        yield from lose_the_database(disturbed, lost)

    harms = [
        kill_a_task(disturbed, task),
        kill_a_supervisor(disturbed, supervisor),
        kill_the_jvm(disturbed, "b2"),
        freeze_a_task(disturbed, frozen),
        kill_and_restart(disturbed, scheduler, disturbed.random.choice(["scheduler", "scheduler-2"])),
        kill_the_triggerer(disturbed, triggerer, "watch"),
        api_server_down(disturbed, api_server, api_down_s),
        database(),
        kill_all_schedulers(disturbed, schedulers),
    ]
    disturbed.run.start()

    disturb(disturbed, *harms)

    assert_survived(disturbed, undisturbed)
    assert disturbed.run.journal().executions()["b2"] >= 2
    assert disturbed.run.airflow.tries(disturbed.run.dag_id, disturbed.run.run_id, "watch")[-1]["state"] == "success"
