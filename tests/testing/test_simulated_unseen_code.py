"""Code that can't be seen: after a deploy and a person's clear it has run, whatever else happens; and it runs once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_controls import SAFE, finds

from airflow_recovery.attempt import region_task
from airflow_recovery.testing.simulation import TOPOLOGIES, Settings, Trouble, job_of, simulate
from airflow_recovery.testing.simulation.jobs import with_unseen

PAIR, CHAIN = TOPOLOGIES["pair"], TOPOLOGIES["chain"]
NAMES = sorted({*PAIR, *CHAIN})


def of(upstream: dict[str, tuple[str, ...]], *troubles: Trouble, **given: object) -> Settings:
    job = with_unseen(job_of(upstream), NAMES)
    return Settings(job, dict.fromkeys(troubles, 1), publishes=False, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "troubles",
    [
        (Trouble.DEPLOY,),
        (Trouble.DEPLOY, Trouble.KILL),
        (Trouble.DEPLOY, Trouble.HEARTBEAT),
        (Trouble.DEPLOY, Trouble.DELETE),
        (Trouble.DEPLOY, Trouble.CLEAR),
        (Trouble.DEPLOY, Trouble.PAUSE, Trouble.RESTART),
        (Trouble.DATABASE, Trouble.CLEAR_ALL),
    ],
)
def test_what_stands_was_made_by_the_code_of_the_last_deploy(troubles: tuple[Trouble, ...]) -> None:
    for upstream in (PAIR, CHAIN):
        for seed in range(SAFE):
            simulate(seed, of(upstream, *troubles))


def test_one_clear_of_the_whole_run_is_one_more_attempt_of_each_region() -> None:
    """``max_attempts`` is checked whenever the run is green."""
    for seed in range(SAFE):
        twice = of(PAIR, Trouble.CLEAR_ALL, detached_share=0.0)
        simulate(seed, replace(twice, max_attempts=dict.fromkeys(PAIR, 3)))


@pytest.mark.control
def test_control_without_the_look_at_the_clear_the_old_code_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_task, "why_unseen_code_runs", lambda *_: None)
    finds(of(PAIR, Trouble.DEPLOY), "unseen code: ")
