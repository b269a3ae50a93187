"""How the soak brings its runs to an end, with a fake in place of Airflow; and who is found on a machine."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scripts.soak.growth import Sampler
from scripts.soak.leftovers import left_processes
from scripts.soak.runs import RunName, Runs


class FakeAirflow:
    """Of each run the states that it will have, one after each look; the last one stays. A clear goes on."""

    def __init__(self, **states: list[str]) -> None:
        self.states = states
        self.cleared: list[tuple[str, bool]] = []
        self.triggered: list[str] = []

    def api(self, method: str, path: str, body: object = None) -> Any:
        runs = [
            {"dag_id": dag, "logical_date": "2013-01-02T00:00:00Z", "dag_run_id": dag, "state": states[0]}
            for dag, states in self.states.items()
        ]
        for states in self.states.values():
            if len(states) > 1 and states[0] == "running":
                states.pop(0)
        return {"dag_runs": runs, "total_entries": len(runs)}

    def trigger(self, dag_id: str, *, logical_date: str, run_id: str) -> str:
        self.triggered.append(f"{dag_id} {logical_date}")
        self.states[dag_id] = ["success"]
        return run_id

    def clear(
        self, dag_id: str, run_id: str, tasks: Sequence[str] | None, *, only_failed: bool, downstream: bool
    ) -> list[str]:
        self.cleared.append((dag_id, only_failed))
        if len(self.states[dag_id]) > 1:
            self.states[dag_id].pop(0)
        return ["g.total"]

    def describe(self, dag_id: str, run_id: str) -> str:
        return "g.total failed"

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return []


def settled(airflow: FakeAirflow, prepare: Callable[[Runs], object] = lambda runs: None) -> Runs:
    runs = Runs(airflow, random.Random(1))  # type: ignore[arg-type]
    runs.look()
    prepare(runs)
    runs.settle(20.0, lambda seconds: None)
    return runs


def test_a_run_that_fails_is_cleared_and_one_that_fails_again_and_again_is_given_up_by_name() -> None:
    airflow = FakeAirflow(chain=["running", "failed", "success"], ledger=["failed"], months=["success"])
    runs = settled(airflow)
    assert sorted(airflow.cleared) == [("chain", True), *[("ledger", True)] * 4]
    assert [name.dag_id for name in runs.given_up] == ["ledger"]
    assert "has failed again after 4 clears" in runs.given_up[RunName("ledger", "2013-01-02")]


def test_a_run_that_does_not_end_is_given_up_by_name() -> None:
    runs = settled(FakeAirflow(chain=["running"], months=["success"]))
    assert [why.partition("\n")[0] for why in runs.given_up.values()] == ["has not ended in 20 s"]


def test_a_run_of_which_a_result_was_deleted_is_cleared_as_a_whole() -> None:
    airflow = FakeAirflow(chain=["success", "success"], months=["success"])
    settled(airflow, lambda runs: runs.to_clear.add(RunName("chain", "2013-01-02")))
    assert airflow.cleared == [("chain", False)]


def test_a_run_that_a_restored_database_does_not_know_is_created_again_for_its_date() -> None:
    airflow = FakeAirflow(chain=["success"])
    runs = settled(airflow, lambda runs: airflow.states.pop("chain"))
    assert airflow.triggered == ["chain 2013-01-02T00:00:00Z"]
    assert runs.created_again == 1


def test_a_process_that_was_started_for_this_airflow_is_found_and_another_one_not(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    env = {**os.environ, "AIRFLOW_HOME": str(tmp_path)}
    with (
        subprocess.Popen(sleep, stdin=subprocess.PIPE, env=env) as ours,
        subprocess.Popen(sleep, stdin=subprocess.PIPE) as other,
    ):
        ground: Any = SimpleNamespace(airflow=SimpleNamespace(home=tmp_path, processes={}))
        found = {process.pid for process in left_processes(ground)}
        ours.communicate()
        other.communicate()
    assert ours.pid in found
    assert other.pid not in found


def test_the_sampler_sees_memory_and_open_files_of_components_that_live(tmp_path: Path) -> None:
    holding = (
        "import sys; kept = [open(sys.executable) for _ in range(50)]; print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holding]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        sampler = Sampler({"worker-1": process, "dag-processor": process})
        sampler.look()
        process.communicate()
    sampler.look()
    (sample,) = sampler.samples
    assert (sample.component, sample.pid) == ("worker-1", process.pid)
    assert sample.megabytes > 1
    assert sample.files >= 50
