"""Seeded schedules in which drivers outlive their tasks: followed while they live, and no other one is started."""

from __future__ import annotations

import pytest

from airflow_recovery.attempt import region_task
from airflow_recovery.testing.simulation import TOPOLOGIES, Report, Schedule, Settings, Trouble, job_of

KILLS = Settings(job_of(TOPOLOGIES["diamond"]), {Trouble.KILL_TASK: 3}, publishes=False, detached_share=1.0)
SEEDS = 150


def schedules() -> list[tuple[Schedule, Report]]:
    return [(schedule, schedule.run()) for schedule in (Schedule(seed, KILLS) for seed in range(SEEDS))]


def hasty(ran: list[tuple[Schedule, Report]]) -> list[str]:
    return [each for schedule, _ in ran for each in schedule.world.cluster.hasty]


@pytest.mark.slow
def test_fault_3_no_application_is_started_while_the_driver_of_another_gives_signs_of_life() -> None:
    ran = schedules()
    assert hasty(ran) == []
    followed = [report for _, report in ran if any("waiting for it" in line for line in report.trace)]
    adopted = [report for report in followed if all(attempt == 1 for _, attempt in report.ran)]
    # Not all: one that is frozen for long is taken for dead, and what it writes is rejected.
    assert len(followed) >= 5
    assert len(adopted) > len(followed) / 2


@pytest.mark.slow
def test_control_without_following_a_second_application_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_task, "reconnect", lambda *given: False)
    assert hasty(schedules())
