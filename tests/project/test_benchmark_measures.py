"""What the benchmarks count: who was struck by a failure, who ran twice or at the same time, and what a cell says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from airflow_recovery.testing.patience import HANG_S, NEVER_S, wait_until
from benchmarks.mtbf import Killer
from benchmarks.peers.comparison import KILLED, LOSES, Ledger, Outcome, ran_at_once
from benchmarks.peers.flights import steps


def test_a_killer_strikes_who_runs_and_counts_the_failures_that_find_nobody() -> None:
    sleepers = [subprocess.Popen(["sleep", str(NEVER_S)]) for _ in range(2)]

    def running() -> list[psutil.Process]:
        return [psutil.Process(sleeper.pid) for sleeper in sleepers if sleeper.poll() is None]

    try:
        with Killer(1, 0.02, running).at_work() as killer:
            wait_until(lambda: len(killer.kills) == 2 and killer.missed, "two kills and a miss")
        assert [sleeper.wait(HANG_S) for sleeper in sleepers] == [-9, -9]
        assert len(killer.kills) == 2
        assert killer.missed
        assert min(killer.missed) > max(killer.kills)
    finally:
        for sleeper in sleepers:
            sleeper.kill()


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("a", LOSES, 25.0, 20.0), "1.25"),
        (Outcome("a", LOSES, 25.0, 20.0, persons=1), "1.25, a person"),
        (Outcome("a", LOSES, None, 20.0, persons=2), "never"),
        (Outcome("a", LOSES, 25.0, 20.0, right=False), "done with wrong numbers"),
        (Outcome("a", KILLED, None, None), "nothing ran twice"),
        (Outcome("a", KILLED, None, None, persons=1, twice=("planes",)), "planes ran twice; a person"),
        (
            Outcome("a", KILLED, None, None, persons=1, twice=("planes",), at_once=("planes",)),
            "two wrote planes at once; a person",
        ),
    ],
)
def test_a_cell_says_what_happened(outcome: Outcome, said: str) -> None:
    assert outcome.text == said


def test_two_of_one_step_at_the_same_time_are_seen_in_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")

    def note(what: str, pid: int, at: float) -> None:
        with (tmp_path / "ledger").open("a") as lines:
            lines.write(f'{{"step": "planes", "what": "{what}", "pid": {pid}, "at": {at}, "out": ""}}\n')

    note("begun", 1, 0.0)
    note("ended", 1, 5.0)
    note("begun", 2, 6.0)
    note("ended", 2, 9.0)
    assert not ran_at_once(ledger.lines("planes"))
    note("begun", 3, 8.0)
    assert ran_at_once(ledger.lines("planes"))
    ledger.turn_page()
    assert ledger.lines() == []


def test_every_step_of_the_pipeline_reads_steps_before_it() -> None:
    """The order of the table is one in which they can run."""
    for number, (step, reads) in enumerate(steps.STEPS.items()):
        assert set(reads) <= set(list(steps.STEPS)[:number]), step
    assert {*steps.SINKS} == steps.STEPS.keys() - {name for reads in steps.STEPS.values() for name in reads}
    assert sum("joined" in reads for reads in steps.STEPS.values()) == 4
