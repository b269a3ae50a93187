"""Machines that work, but not well: a disk that is full, a clock that is wrong, other code, a folder of its own."""

from __future__ import annotations

import errno
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from machines_run import MachinesPipeline, machine_of, start_worker

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


def scratch_of(pipeline: MachinesPipeline, worker: str) -> Path:
    """The temporary folder of a machine, as it is seen from outside."""
    unshare = pipeline.airflow.processes[worker].pid
    first = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0]
    return Path(f"/proc/{first}/root{pipeline.airflow.home}/tmp")


def fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as out:
        while True:
            out.write(b"\0" * 4096)
    with pytest.raises(OSError, match="No space left") as full:
        (ballast.parent / "more").write_bytes(b"\0" * 4096)
    assert full.value.errno == errno.ENOSPC


def test_a_machine_without_disk_space_fails_its_attempts_by_name_and_goes_on_when_there_is_some(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    full = start_worker(pipeline, workers, "full", scratch_bytes=64 << 20)
    ballast = scratch_of(pipeline, full) / "ballast"
    fill(ballast)

    run = pipeline.run("full").start()
    run.wait(lambda: bool(run.journal().attempts.get("total")) and bool(run.journal().fenced("total")), "a failure")
    ballast.unlink()

    journal = run.ends()
    journal.check()
    assert machine_of(run, "total") == full
    failed = journal.attempts["total"][1].outcome
    assert failed["cause"] == "own failure"
    assert "No space left on device" in failed["failure"]["message"]
    assert journal.executions()["numbers"] == 1
    assert pipeline.rows(journal, "total") == [(45,)]


@pytest.mark.parametrize("offset_s", [600, -600])
def test_a_machine_whose_clock_is_ten_minutes_off_makes_what_any_other_makes(
    pipeline: MachinesPipeline, workers: list[str], offset_s: int
) -> None:
    """Its results are kept, found lost, and made again, as those of the others."""
    assert FAKETIME.exists(), "scripts/setup.sh --all installs it"
    wrong = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{offset_s:+d}s", "DONT_FAKE_MONOTONIC": "1"}
    clock = start_worker(pipeline, workers, "clock", env=wrong)

    run = pipeline.run("clock").start()
    before = run.ends()
    before.check()
    assert machine_of(run, "numbers") == clock
    ended, claimed = before.attempts["numbers"][1].outcome["ended_at"], before.attempts["total"][1].objects["claim"]
    ahead = datetime.fromisoformat(ended) - datetime.fromisoformat(claimed["claimed_at"])
    assert abs(ahead.total_seconds() - offset_s) < 120  # control: its clock is wrong indeed
    run.clear()
    kept = run.ends()
    assert kept.ran_since(before) == {}
    pipeline.delete(kept, "numbers", "total")
    run.clear("total")
    after = run.ends()

    after.check()
    assert after.ran_since(before) == {"numbers": 1, "total": 1}
    assert pipeline.rows(after, "total") == [(45,)]


def test_results_in_a_folder_of_each_machine_are_lost_for_the_others_and_the_run_ends_by_name(
    pipeline: MachinesPipeline, workers: list[str]
) -> None:
    """Nothing false is read: `total` finds none of what the records name, and its producer does, and keeps it."""
    env = {"AIRFLOW__RECOVERY__RESULTS": f"file://{pipeline.airflow.home}/results"}
    for queue in ("folder-1", "folder-2"):
        start_worker(pipeline, workers, queue, env=env)

    run = pipeline.run("folders").start()
    journal = run.ends("failed")

    assert journal.executions().get("total", 0) == 0
    assert all(attempt.is_finished for attempt in journal.attempts["numbers"].values())
    assert run.calls("total") == 0
    assert "total does not see the result of numbers@1" in run.log("total")


def test_workers_with_different_code_finish_nothing_together(pipeline: MachinesPipeline) -> None:
    """For `total`, numbers that other code has made are outdated; for the worker that made them, they are not."""
    airflow = pipeline.airflow
    files = {name: airflow.dags_of(name) / "machine_jobs" / "relay.py" for name in ("worker-1", "worker-2")}
    code = files["worker-1"].read_text()
    try:
        files["worker-2"].write_text(code.replace("range(10)", "range(11)"))
        run = pipeline.run("apart").start()
        apart = run.ends("failed")
        assert not any(attempt.is_finished for attempt in apart.attempts.get("total", {}).values())
        assert run.calls("total") == 0

        files["worker-1"].write_text(files["worker-2"].read_text())
        run.clear()
        together = run.ends()
        together.check()
        assert pipeline.rows(together, "total") == [(55,)]
    finally:
        for file in files.values():
            file.write_text(code)
