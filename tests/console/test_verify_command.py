"""``python -m airflow_recovery verify``."""

from __future__ import annotations

import json
import subprocess
import sys

from test_show_command import BLOCKER

from airflow_recovery.console.exit_codes import ExitCode

RUN = ("flights", "2026-01-01")


def test_a_good_run(recorded):
    recorded.world().until_green()
    code, said = recorded.call("verify", *RUN, "--ended")
    assert code == ExitCode.DONE, said
    assert said.startswith("DAG flights, run date-2026-01-01T000000Z, group flights")
    assert "I9   n/a" in said
    assert "VIOLATED" not in said


def test_a_violation_says_what_was_expected_and_found_and_what_to_do(recorded):
    world = recorded.world()
    world.until_green()
    world.delete_results("busiest", 1)
    code, said = recorded.call("verify", *RUN)
    assert code == ExitCode.VIOLATED
    told = said.partition("I4 is violated")[2]
    assert "expected  the 1 objects of busiest of busiest@1 as registered" in told
    assert "part-0 is not there" in told
    assert "next      Clear the task of busiest" in told


def test_as_json(recorded):
    world = recorded.world()
    world.until_green()
    world.delete_results("busiest", 1)
    code, said = recorded.call("verify", *RUN, "--json")
    (found,) = json.loads(said)
    assert (code, found["violated"]) == (ExitCode.VIOLATED, [4])
    assert [each["invariant"] for each in found["invariants"]] == list(range(1, 16))
    (finding,) = found["invariants"][3]["findings"]
    assert set(finding) == {"objects", "expected", "found", "next"}


def test_without_a_run_every_run_and_group_is_checked(recorded):
    recorded.world().until_green()
    recorded.world(group="g" * 150).until_green()
    broken = recorded.world(key="run-by hand")
    broken.until_green()
    broken.delete_results("raw", 1)
    code, said = recorded.call("verify", "flights", "--json")
    assert code == ExitCode.VIOLATED
    found = {(load["run_key"], load["group_id"]): load["violated"] for load in json.loads(said)}
    assert found == {
        ("date-2026-01-01T000000Z", "flights"): [],
        ("date-2026-01-01T000000Z", "g" * 150): [],
        ("run-by hand", "flights"): [4],
    }
    assert recorded.call("verify", "flights", "--group", "g" * 150)[0] == ExitCode.DONE


def test_what_is_not_there_is_named(recorded):
    recorded.world().go("raw")
    assert recorded.call("verify", "weather")[0] == ExitCode.NOT_FOUND
    assert "has no DAG 'weather'. The nearest DAGs of 1: flights" in recorded.errors
    assert recorded.call("verify", "flights", "2026-01-02")[0] == ExitCode.NOT_FOUND
    assert recorded.call("verify", "flights", "--group", "other")[0] == ExitCode.NOT_FOUND


def test_without_airflow_at_all(recorded):
    recorded.world().until_green()
    code = f"{BLOCKER}\nfrom airflow_recovery.console.main import main\nsys.exit(main(sys.argv[1:]))"
    arguments = ["verify", *RUN, "--journal", recorded.uri]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
