"""Each check of the soak finds what it is there for: something wrong is put before it, and beside it what is right."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from airflow_recovery.verify.history import Attempt, History, Region
from airflow_recovery.verify.records import Named
from scripts.s3_proxy import Answer, CutReply, Delayed, LostReply, S3Request
from scripts.soak.disturbances import DISTURBANCES, Disturbance, drawn_for, first_round
from scripts.soak.growth import MOST_GROWTH, SHORTEST_S, WARM_UP_S, Growth, Sample, growths
from scripts.soak.leftovers import (
    MOST_IDLE_S,
    MOST_PROBED,
    Connection,
    Process,
    connections_of_nobody,
    is_unused,
    objects_of_nobody,
    processes_of_no_run,
    strange_records,
)
from scripts.soak.people import is_purged
from scripts.soak.report import Story, rendered, story_of
from scripts.soak.request_budget import REGIONS, beyond_budget, budget
from scripts.soak.runs import WEIGHTS
from scripts.soak.s3_faults import KINDS, S3Faults
from scripts.soak.soak import Done, Violation
from scripts.soak.truth import DAGS, truths, wrong_rows

DAY = "2013-01-31"


@pytest.mark.parametrize("dag_id", DAGS)
def test_a_run_that_published_what_plain_python_comes_to_is_right_and_one_row_more_less_or_other_is_not(
    dag_id: str,
) -> None:
    for right in truths(dag_id, DAY):
        assert wrong_rows(right, truths(dag_id, DAY)) == []
        for name, rows in right.items():
            (wrong,) = wrong_rows({**right, name: rows[1:]}, truths(dag_id, DAY))
            assert wrong.startswith(f"{name} has {len(rows) - 1} rows")
            assert wrong_rows({**right, name: [*rows, rows[0]]}, truths(dag_id, DAY))
            assert wrong_rows({**right, name: [(*rows[0][:-1], "other"), *rows[1:]]}, truths(dag_id, DAY))


def test_results_of_two_versions_of_the_code_in_one_run_are_wrong() -> None:
    before, after = truths("chain", DAY)
    mixed = {**before, "total": after["total"]}
    (wrong,) = wrong_rows(mixed, [before, after])
    assert wrong.startswith("total has 1 rows")


def test_a_result_that_nobody_declared_is_wrong() -> None:
    (allowed,) = truths("tables", DAY)
    assert wrong_rows({**allowed, "early": []}, [allowed]) == ["early is no result that is known"]


def test_a_process_that_only_a_run_needs_is_found_and_one_of_airflow_is_not() -> None:
    jvm = Process(7, 1, "java -cp x org.apache.spark.deploy.SparkSubmit --name chain.total@1 driver.py")
    task = Process(8, 5, "airflow worker -- 0198-77")
    airflow = [Process(2, 1, "airflow scheduler"), Process(3, 1, "[celeryd: celery@worker-1:ForkPoolWorker-1]")]
    assert processes_of_no_run(airflow) == []
    assert [text.split()[1] for text in processes_of_no_run([*airflow, jvm, task])] == ["7", "8"]


def test_a_connection_without_a_process_one_that_is_stuck_and_one_of_a_task_are_found() -> None:
    owners = {1: "airflow scheduler", 2: "airflow api-server", 3: "airflow worker -- 0198", 4: "soak"}
    fine = [
        Connection("airflow", 1, "idle", 900.0),
        Connection("airflow", 2, "idle in transaction", MOST_IDLE_S - 1),
        Connection("warehouse", 4, "idle", 900.0),
    ]
    assert connections_of_nobody(fine, owners) == []
    wrong = [
        Connection("airflow", 9, "idle", 1.0),
        Connection("airflow", 2, "idle in transaction", MOST_IDLE_S + 1),
        Connection("warehouse", 3, "idle", 1.0),
    ]
    found = connections_of_nobody([*fine, *wrong], owners)
    assert [text.split(" from ")[1].split()[1] for text in found] == ["9,", "2", "3"]


def test_an_object_that_no_record_names_is_found() -> None:
    runs = frozenset({"chain/date-1/g/"})
    named = frozenset({"chain/date-1/g/total/00000001/total/part-0.parquet"})
    marks = ["chain/date-1/g/total/00000001/total/_SUCCESS", "_probe/raced"]
    fine = [*named, *marks, "_owner", "_channels/chain/date-1/g/edge/1/x"]
    orphans = [f"chain/date-1/g/total/00000002/total/{name}" for name in ("part-0.parquet", "_SUCCESS")]
    orphans += ["chain/date-1/g/total/00000001/total/_temporary/0", "_channels/gone/date-1/g/edge/1/x"]
    assert objects_of_nobody(fine, named, runs) == []
    assert objects_of_nobody([*fine, *orphans], named, runs) == [f"s3://soak/results/{key}" for key in sorted(orphans)]


def test_what_killed_probes_leave_is_known_until_there_is_too_much_of_it() -> None:
    left = [f"_probe/{number:032x}" for number in range(MOST_PROBED + 1)]
    assert objects_of_nobody(left[1:], frozenset(), frozenset()) == []
    assert len(objects_of_nobody(left, frozenset(), frozenset())) == 1
    assert strange_records(["_probe/raced", *left]) == []
    assert strange_records(["_probe/other"]) == ["_probe/other"]


def test_an_object_of_no_known_kind_in_the_journal_is_found() -> None:
    run = "chain/date-1/g"
    fine = [f"{run}/t/total/00000001.claim", f"{run}/plan/00ab", f"{run}/h/total/00000001", "_streams/x", "_owner"]
    assert strange_records(fine) == []
    assert strange_records([*fine, f"{run}/t/total/draft"]) == [f"{run}/t/total/draft"]


def test_a_folder_that_no_process_holds_is_unused(tmp_path: Path) -> None:
    assert is_unused(tmp_path)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    assert not is_unused(tmp_path)
    os.close(held)


def test_one_request_more_than_the_budget_is_found_and_heartbeats_go_by_time() -> None:
    allowed = budget()
    assert beyond_budget({**allowed, "heartbeat": 99}, allowed) == []
    for method in allowed:
        assert len(beyond_budget({**allowed, method: allowed[method] + 1}, allowed)) == 1
    assert beyond_budget({"DELETE": 1}, allowed)
    slow = budget(heartbeats=len(REGIONS) + 3)
    assert slow == {**allowed, "LIST": allowed["LIST"] + 3}


def series(component: str, pid: int, begun: float, slope_an_hour: float, level: float = 200.0) -> list[Sample]:
    """Half an hour of one process, which begins with a steep warm-up."""
    found = []
    for at in range(0, 1800 + int(WARM_UP_S), 10):
        warm_up = max(0.0, WARM_UP_S - at)
        found.append(Sample(component, pid, begun + at, level - warm_up + slope_an_hour * at / 3600, 40))
    return found


def verdict(samples: list[Sample], what: str = "memory, MB") -> Growth:
    (growth,) = [growth for growth in growths(samples) if growth.what == what]
    return growth


def test_a_series_that_grows_is_found_also_over_several_processes_and_a_flat_one_is_flat() -> None:
    flat = verdict([*series("api-server", 1, 0.0, 0.0), *series("api-server", 2, 3000.0, 0.0, level=500.0)])
    assert flat.verdict == "flat"
    assert abs(flat.slope) < 1.0
    growing = verdict([*series("api-server", 1, 0.0, 300.0), *series("api-server", 2, 3000.0, 300.0, level=500.0)])
    assert growing.verdict == "GROWS"
    assert growing.slope == pytest.approx(300.0)
    step = [
        sample._replace(megabytes=sample.megabytes + 90.0 * (sample.at > 1000.0))
        for sample in series("triggerer", 1, 0.0, 0.0)
    ]
    assert verdict(step).slope > 100.0
    assert verdict(step).verdict == "flat"
    leaking = [sample._replace(files=int(sample.at / 20)) for sample in series("worker-1", 1, 0.0, 0.0)]
    assert verdict(leaking, "open files").verdict == "GROWS"


def test_of_a_short_stretch_nobody_says_that_it_is_flat() -> None:
    short = [sample for sample in series("triggerer", 1, 0.0, 300.0) if sample.at < WARM_UP_S + SHORTEST_S / 2]
    assert verdict(short).verdict == "too short to say"
    assert Growth("x", "memory, MB", 100.0, 0.0, 3600.0, MOST_GROWTH * 100.0 * 0.9).verdict == "flat"
    assert Growth("x", "memory, MB", 100.0, 0.0, 3600.0, MOST_GROWTH * 100.0 * 1.1).verdict == "GROWS"


def request(method: str, key: str = "journal/a/b/t/x", prefix: str = "") -> S3Request:
    return S3Request(method, "soak", key, {"prefix": prefix} if prefix else {}, {}, b"")


def test_s3_is_ill_while_it_is_said_to_be_and_what_is_watched_is_counted() -> None:
    faults = S3Faults(1)
    assert {faults(request("PUT")) for _ in range(200)} == {None}
    met = {}
    for kind in KINDS:
        with faults.ill(kind):
            met[kind] = {type(faults(request(method))) for method in ("GET", "PUT") for _ in range(300)}
    assert met == {
        "storm": {Answer, type(None)},
        "lost replies": {LostReply, type(None)},
        "latency": {Delayed, type(None)},
        "cut replies": {CutReply, type(None)},
    }
    assert set(faults.struck) == set(KINDS)
    faults.watch("journal/a/b/")
    for seen in (
        request("PUT"),
        request("GET", key="", prefix="journal/a/b/"),
        request("GET", key="journal/other/b"),
        request("PUT", key="journal/a/b/h/x/00000001"),
    ):
        faults(seen)
    assert faults.watched == Counter({"PUT": 1, "LIST": 1, "heartbeat": 1})


def test_the_table_of_disturbances_draws_every_one_by_the_seed() -> None:
    names = [one.name for one in DISTURBANCES]
    assert len(set(names)) == len(names)
    drawn = [drawn_for(7, tick) for tick in range(2000)]
    assert {one.name for one, _, _ in drawn} == set(names)
    assert [(one.name, lasts) for one, lasts, _ in drawn] == [
        (one.name, lasts) for one, lasts, _ in (drawn_for(7, tick) for tick in range(2000))
    ]
    assert [one.name for one, _, _ in drawn] != [drawn_for(8, tick)[0].name for tick in range(2000)]
    by_name: dict[str, Disturbance] = {one.name: one for one in DISTURBANCES}
    assert all(by_name[one.name].lasts[0] <= lasts <= by_name[one.name].lasts[1] for one, lasts, _ in drawn)


def test_no_kind_is_drawn_a_second_time_before_all_were_tried() -> None:
    owed = first_round(7)
    assert sorted(one.name for one in owed) == sorted(one.name for one in DISTURBANCES)
    assert owed != first_round(8)
    drawn = [drawn_for(7, tick + 1, owed[tick:])[0] for tick in range(len(owed))]
    assert drawn == owed
    assert drawn_for(7, 40, owed[3:4])[0] == owed[3]
    assert drawn_for(7, 40)[0] == drawn_for(7, 40, [])[0]


def test_a_run_is_purged_until_somebody_runs_it_again() -> None:
    region = Region("total", {}, 2)
    assert is_purged(History("x", {"total": region}))
    assert not is_purged(History("x", {"total": replace(region, purged=0)}))
    again = {3: Attempt(Named("total", 3), {})}
    assert not is_purged(History("x", {"total": replace(region, attempts=again)}))


def test_every_dag_is_started_and_has_a_truth() -> None:
    assert set(WEIGHTS) == set(DAGS)


def story(violations: list[Violation], seconds: float = 7300.0) -> Story:
    """As the log of a soak tells it."""
    counts = {
        "seed": 9,
        "ended": "2026-01-01 00:00 UTC",
        "machine": {"cores": "2", "memory": "24 GiB", "load in the last minute": "3.00"},
        "missed": {"kill a driver": 2},
        "struck": {"storm": 5},
        "runs": {"chain": 3},
        **{"created_again": 1, "purged": 0, "pauses": 2, "verified": 6, "compared": 6},
    }
    samples = series("worker-1", 1, 0.0, 0.0)
    lines = [
        {"kind": "done", "s": 31.0, **asdict(Done(31.0, "kill a worker", "worker-1"))},
        *({"kind": "violation", "s": found.at, **asdict(found)} for found in violations),
        {"kind": "counts", "s": 600.0, **counts, "seed": 8},
        {"kind": "samples", "s": 600.0, "samples": samples[:100]},
        {"kind": "counts", "s": seconds, **counts},
        {"kind": "samples", "s": seconds, "samples": samples[100:]},
    ]
    told = story_of(map(json.dumps, lines))
    assert told.samples == samples
    return told


def test_the_page_says_what_was_done_and_what_was_found_and_admits_that_it_was_short() -> None:
    page = rendered(story([]), "### Of earlier soaks\n\nNothing yet.")
    assert "2.03 hours with seed 9" in page
    assert "nothing wrong was found" in page
    assert "less than" not in page
    assert "| kill a worker | kill -9 of a machine with all that runs on it | 1 |  |" in page
    assert "| kill a driver | kill -9 of the JVM of an application | 0 | 2 |" in page
    wrong = Violation(600.0, "total has 1 rows", "chain 2013-01-05", ("0:09:40 kill a worker: worker-1",))
    short = rendered(story([wrong], seconds=3000.0), "")
    assert "less than the 2 hours" in short
    assert "1 violations were found" in short
    assert "- 10 min, chain 2013-01-05: total has 1 rows (before: 0:09:40 kill a worker: worker-1)" in short
