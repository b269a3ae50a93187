"""``python -m airflow_recovery show``, and how a run is found."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta

import pytest
from expected_errors import fails_with
from fakes import Hooks, Killed, Process

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import Failure, RegionFailed

RUN = ("flights", "2026-01-01")


def boom() -> None:
    raise RegionFailed("boom", Failure("ValueError", "boom"))


def test_what_a_run_did(recorded):
    world = recorded.world()
    with pytest.raises(RegionFailed):
        world.go("raw", on_start=boom)
    world.until_green()
    world.restart("by_route")
    world.until_green()
    world.new_airflow()
    world.until_green()
    world.keep_events()
    code, said = recorded.call("show", *RUN)
    assert code == ExitCode.DONE
    rows = {line.split()[0]: line.split() for line in said.partition("Attempts:")[0].splitlines() if line}
    assert rows["raw"][1:3] == ["FINISHED", "@2"]
    assert rows["by_route"][1:4] == ["FINISHED", "@2", "1"]
    assert "kept: attempt 2 is valid, 1 files are as registered" in said
    assert "  @1 FENCED: own failure: RegionFailed: boom" in said
    assert "  @1 FINISHED, reads raw@2: reset by user: asked for" in said
    assert "by_route: 1 rows, 1 files, " in said


def test_a_run_in_the_middle_of_it(recorded):
    world = recorded.world()
    world.go("raw")
    with pytest.raises(RegionFailed):
        world.go("by_route", on_start=boom)
    own = world.airflow.start("by_carrier")
    process = Process()
    task = world.region_task(own, process, Hooks(on_start=process.kill))
    with pytest.raises(Killed):
        task.execute()
    code, said = recorded.call("show", *RUN, "--json")
    assert code == ExitCode.DONE
    loads = {load["name"]: load for load in json.loads(said)["regions"]}
    assert {name: each["state"] for name, each in loads.items()} == {
        "raw": "FINISHED",
        "by_route": "FAILED",
        "by_carrier": "OPEN",
        "busiest": "NEVER RAN",
    }
    assert loads["by_route"]["why"] == "must run: failed (attempt 1: RegionFailed: boom)"
    assert loads["by_carrier"]["attempts"][0]["reads"] == ["raw@1"]
    assert loads["by_carrier"]["why"] == "must run: never finished (attempt 1 is open)"
    assert loads["raw"]["results"][0]["rows"] == 1


def test_a_run_that_is_being_purged(recorded):
    recorded.world().go_all()
    assert "It was purged" not in recorded.call("show", *RUN)[1]
    recorded.call("gc", "--purge", "--older-than", "0s", "--force", "--grace", "1h")
    code, said = recorded.call("show", *RUN)
    assert code == ExitCode.DONE
    assert "It was purged: nothing of it counts, and its data goes. To have it again, clear the tasks" in said


def test_a_report_of_loss_and_a_release_are_told(recorded):
    world = recorded.world()
    world.go_all(["raw"])
    world.delete_results("raw", 1)
    with fails_with("input-cleared", cleared=["raw"]):
        world.go("by_route")
    world.until_green()
    world.release("raw", 2)
    _, said = recorded.call("show", *RUN)
    assert "reported lost by by_route: raw: result is missing" in said
    assert "  @2 FINISHED: its data was released" in said


# which plan


def test_fault_61_the_newest_claim_names_the_plan_and_what_was_renamed_is_told(recorded):
    world = recorded.world()
    times = iter(f"2026-01-01T00:00:{n:02d}" for n in range(60))
    world.now = lambda: next(times)
    world.until_green()
    old = world.upstream
    world.upstream = {"raw": (), "per_route": ("raw",), "busiest": ("per_route",)}
    world.new_airflow()
    world.fingerprints["busiest"] = "code 2"
    world.go("raw")
    world.go("per_route")
    code, said = recorded.call("plan", *RUN)
    assert code == ExitCode.DONE
    assert "one of 2, named by the newest claim: per_route@1." in said
    assert "In other plans only (renamed or removed since): by_carrier, by_route." in said
    assert "busiest: code or parameters changed (since attempt 1)" in said
    assert set(old) - set(world.upstream) == {"by_route", "by_carrier"}


@pytest.mark.slow
def test_fault_61_control_by_the_order_of_their_hashes_an_old_plan_is_shown(recorded, monkeypatch):
    from airflow_recovery.journal import in_use

    shown = set()
    for fingerprint in ("code 2", "code 3", "code 4", "code 5", "code 6", "code 7"):
        world = recorded.world(key=f"run-{fingerprint}")
        times = iter(f"2026-01-01T00:00:{n:02d}" for n in range(60))
        world.now = lambda times=times: next(times)
        world.until_green()
        world.fingerprints["busiest"] = fingerprint
        world.new_airflow()
        world.until_green()
        assert "keep    @2" in recorded.call("plan", "flights", fingerprint)[1]
        with monkeypatch.context() as patch:
            patch.setattr(in_use, "newest_claim", lambda journal, names: None)
            shown.add("0 run" if "4 keep" in recorded.call("plan", "flights", fingerprint)[1] else "1 run")
    assert shown == {"0 run", "1 run"}


# which run


@pytest.mark.parametrize(
    "run",
    [
        "date-2026-01-01T000000Z",
        "2026-01-01",
        "2026-01-01T00:00:00+00:00",
        "2026-01-01T00:00:00Z",
        "2026-01-01T01:00:00+01:00",
        "run",  # the run id that the claims name
    ],
)
def test_a_run_is_found_by_key_date_or_run_id(recorded, run):
    recorded.world().until_green()
    recorded.world(key="date-2026-01-02T000000Z", run_id="another").until_green()
    code, said = recorded.call("show", "flights", run)
    assert (code, said.splitlines()[0]) == (
        ExitCode.DONE,
        "DAG flights, run date-2026-01-01T000000Z, group flights",
    )


@pytest.mark.parametrize("days", [0, 1, 40])
def test_a_run_id_is_that_of_its_claims_whatever_the_date_in_it(recorded, days):
    # Airflow writes into an id when the run could start: with a data interval, the logical date of the next run.
    first = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    ids = {}
    for date in (first + timedelta(days=at * max(1, days)) for at in range(3)):
        key = f"date-{date:%Y-%m-%d}T000000Z"
        ids[key] = f"scheduled__{(date + timedelta(days=days)).isoformat()}"
        recorded.world(key=key, run_id=ids[key]).go("raw")
    for key, run_id in ids.items():
        code, said = recorded.call("show", "flights", run_id)
        assert (code, said.splitlines()[0]) == (ExitCode.DONE, f"DAG flights, run {key}, group flights")
    if days:
        assert recorded.call("show", "flights", f"scheduled__{first.isoformat()}")[0] == ExitCode.NOT_FOUND
        assert "or a run id that a claim has" in recorded.errors


@pytest.mark.parametrize(("key", "run"), [("run-by hand/1", "by hand/1"), ("partition-de", "de")])
def test_a_run_without_a_date(recorded, key, run):
    recorded.world(key=key).until_green()
    assert recorded.call("show", "flights", run)[0] == ExitCode.DONE


def test_an_empty_journal(recorded):
    assert recorded.call("show", *RUN)[0] == ExitCode.NOT_FOUND
    assert "is empty: no run has claimed an attempt yet." in recorded.errors


def test_an_unknown_dag_or_run_names_the_nearest(recorded):
    recorded.world().go("raw")
    recorded.world(dag="weather").go("raw")
    assert recorded.call("show", "flight", "2026-01-01")[0] == ExitCode.NOT_FOUND
    assert "has no DAG 'flight'. The nearest DAGs of 2: flights" in recorded.errors
    assert recorded.call("show", "flights", "2026-01-02")[0] == ExitCode.NOT_FOUND
    assert "has no run '2026-01-02'. The nearest run keys of 1: date-2026-01-01T000000Z." in recorded.errors


def test_several_groups_must_be_named(recorded):
    recorded.world().go("raw")
    recorded.world(group="weather").go("raw")
    assert recorded.call("show", *RUN)[0] == ExitCode.NOT_FOUND
    assert "has 2 groups: name one with --group: flights, weather." in recorded.errors
    assert recorded.call("show", *RUN, "--group", "weather")[0] == ExitCode.DONE
    assert recorded.call("show", *RUN, "--group", "wether")[0] == ExitCode.NOT_FOUND
    assert "has no group 'wether'. It has flights, weather." in recorded.errors


def test_ids_that_are_shortened_in_keys(recorded):
    group = "g" * 150
    recorded.world(group=group).until_green()
    assert recorded.call("show", *RUN)[1].splitlines()[0].endswith(f"group {group}")
    assert recorded.call("show", *RUN, "--group", group)[0] == ExitCode.DONE


def test_a_damaged_stream_does_not_hide_the_run(recorded):
    world = recorded.world()
    world.until_green()
    world.keep_events()
    (segment,) = [info.key for info in world.journal_store.list("_streams/")]
    assert "History: " in recorded.call("show", *RUN)[1]
    assert recorded.call("show", *RUN)[1].endswith("complete.\n")
    whole = world.journal_store.get(segment).body
    world.journal_store.put(segment, whole.replace(b"FINISHED", b"FINISHEd", 1))
    code, told = recorded.call("show", *RUN)
    assert code == ExitCode.DONE
    assert "It has holes (recovery does not need it)" in told
    assert "damaged: " in told
    assert "in the journal" in told
    _, document = recorded.call("show", *RUN, "--json")
    assert len(json.loads(document)["history"]["holes"]) > 1


# without Airflow

BLOCKER = """
import sys

class NoAirflow:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("airflow", "pyspark"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, NoAirflow())
"""


@pytest.mark.parametrize("command", ["show", "plan"])
def test_without_airflow_at_all(recorded, command):
    recorded.world().until_green()
    code = f"{BLOCKER}\nfrom airflow_recovery.console.main import main\nsys.exit(main(sys.argv[1:]))"
    arguments = [command, *RUN, "--journal", recorded.uri]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "group flights" in done.stdout


def test_control_the_import_blocker_blocks():
    code = f"{BLOCKER}\nimport airflow_recovery.hooks.settings"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: airflow" in done.stderr


def test_as_a_module(recorded):
    recorded.world().until_green()
    command = [sys.executable, "-m", "airflow_recovery", "show", *RUN, "--journal", recorded.uri, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["run_key"] == "date-2026-01-01T000000Z"


def test_the_help_documents_the_exit_codes():
    command = [sys.executable, "-m", "airflow_recovery", "plan", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = " ".join(done.stdout.split())
    for each in ExitCode:
        assert f"{each.value} {each.meaning}" in said


# a large run


def test_of_a_large_run_what_ran_once_is_told_in_one_line(recorded, monkeypatch):
    monkeypatch.setattr("airflow_recovery.console.show.MAX_REGIONS", 2)
    world = recorded.world()
    world.until_green()
    world.restart("by_route")
    world.until_green()
    world.keep_events()
    _, said = recorded.call("show", *RUN)
    table, _, attempts = said.partition("Attempts:")
    assert {"raw", "by_route", "by_carrier", "busiest"} <= {line.split()[0] for line in table.splitlines() if line}
    assert [line for line in attempts.splitlines() if line and line[0] != " "] == [
        "by_route",
        "busiest",
        "2 regions ran once and are valid, or have not begun: with --all, every attempt and the history are told.",
    ]
    _, whole = recorded.call("show", *RUN, "--all")
    assert "History: " in whole
    assert [line for line in whole.partition("Attempts:")[2].splitlines() if line.startswith("raw")] == ["raw"]


def test_of_a_large_run_not_more_than_so_many_regions_are_written_out(recorded, monkeypatch):
    monkeypatch.setattr("airflow_recovery.console.show.MAX_REGIONS", 1)
    world = recorded.world()
    world.until_green()
    world.restart("by_route")
    world.until_green()
    _, said = recorded.call("show", *RUN)
    assert "  and 1 regions more" in said
    assert "2 regions ran once" in said


def test_of_a_large_run_regions_that_have_not_begun_are_not_written_out(recorded, monkeypatch):
    monkeypatch.setattr("airflow_recovery.console.show.MAX_REGIONS", 2)
    recorded.world().go("raw")
    _, said = recorded.call("show", *RUN)
    assert said.partition("Attempts:")[2].split("\n")[2:-1] == [
        "4 regions ran once and are valid, or have not begun: with --all, every attempt and the history are told."
    ]
