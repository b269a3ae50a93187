"""The streaming demo without Airflow: its job, its DAGs, and that its checks see what they are there to see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_recovery.testing.patience import HANG_S
from scripts.wheel import INSTALLED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)
FLIGHTS = {
    # per day: delay on departure, distance
    "2013-01-01": [("20", "1000"), ("2", "100"), ("NA", "500")],
    "2013-01-02": [("60", "2000")],
    "2013-02-01": [("15", "0"), ("16", "0")],
}
PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

bag = DagBag(sys.argv[1])
dags = {each.dag_id: each for each in bag.dags.values() if each.dag_id.startswith("live_flights")}
for dag in dags.values():
    DagSerialization.to_dict(dag)
told = {name: {each.task_id: sorted(each.upstream_task_ids) for each in dag.tasks} for name, dag in dags.items()}
print(json.dumps({"errors": bag.import_errors, "dags": told}))
"""


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in Airflow: jobs are imported from the DAGs folder."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    monkeypatch.syspath_prepend(str(REPOSITORY / "dags"))
    yield
    for name in [module for module in sys.modules if module.partition(".")[0] == "jobs"]:
        del sys.modules[name]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for day, flights in FLIGHTS.items():
        year, month, number = (int(piece) for piece in day.split("-"))
        rows = [
            f"{year},{month},{number},NA,600,{delay},NA,NA,NA,UA,1,N1,EWR,IAH,NA,{distance},6,0,2013-01-01T11:00:00Z"
            for delay, distance in flights
        ]
        file = tmp_path / "flights" / day[:7] / f"{day}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([HEADER, *rows, ""]))
    return tmp_path


def test_the_chain_has_three_regions() -> None:
    from jobs.live_flights import live_flights

    from airflow_recovery import FailoverStrategy
    from scripts.demo.stream_run import REGIONS, SCORER, SINK, SOURCE

    regions = {region.name: region for region in live_flights.regions().regions}
    assert tuple(regions) == REGIONS
    assert regions[SOURCE].channels_out == (SOURCE,)
    assert [each.result for each in regions[SCORER].channels_in] == [SOURCE]
    assert [each.result for each in regions[SINK].channels_in] == [SCORER]
    assert regions[SINK].results == (SINK,)
    assert live_flights.failover_strategy is FailoverStrategy.APPROXIMATE_SINGLE


@pytest.mark.slow
def test_airflow_takes_both_dags_as_they_are_written(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    folder = REPOSITORY / "dags"
    env |= {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__DAGS_FOLDER": str(folder)}
    env |= {"AIRFLOW__CORE__LOAD_EXAMPLES": "False", "PYTHONPATH": f"{INSTALLED}:{folder}"}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(folder)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["errors"] == {}
    regions: dict[str, Any] = {f"flights.{name}": [] for name in ("departures", "predicted", "delays_by_day")}
    tasks = {**regions, "flights.audit": sorted(regions)}
    assert document["dags"] == {"live_flights": tasks, "live_flights_regional": tasks}


@pytest.mark.spark
def test_the_vertices_agree_with_a_count_without_spark(lake: Path, tmp_path: Path, spark: SparkSession) -> None:
    from jobs.live_flights import delays_by_day, departures, predicted

    from airflow_recovery.driver.region import avoid_udf_hang
    from scripts.demo.flights_by_day import FlightsByDay
    from scripts.demo.lake import date_files

    date_files(lake)
    rehearsal = tmp_path / "rehearsal"
    rehearsal.mkdir()
    (rehearsal / "pace").write_text("0")
    # As a region's code is shipped to the workers, which are there already.
    spark.sparkContext.addPyFile(shutil.make_archive(str(tmp_path / "live"), "zip", REPOSITORY / "dags", "jobs"))
    avoid_udf_hang(spark)
    for slowed in ("", str(rehearsal)):
        table = delays_by_day(predicted(departures(spark, f"file://{lake}", slowed), "0"))
        name = f"table_{len(slowed)}"
        query = table.writeStream.format("memory").queryName(name).outputMode("complete")
        query.trigger(availableNow=True).start().awaitTermination()
        rows = {row["date"]: (row["flights"], row["late"]) for row in spark.table(name).collect()}
        counts = FlightsByDay.of_lake(lake).counts
        assert {day: flights for day, (flights, _) in rows.items()} == counts
        assert [late for _, (_, late) in sorted(rows.items())] == [1, 1, 1]


def test_a_pace_holds_a_batch_while_it_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobs import rehearsal

    paused: list[float] = []
    monkeypatch.setattr(rehearsal, "time", SimpleNamespace(sleep=paused.append))
    rehearsal.rehearse_pace("")
    rehearsal.rehearse_pace(str(tmp_path))
    (tmp_path / rehearsal.PACE).write_text("2.5")
    rehearsal.rehearse_pace(str(tmp_path))
    (tmp_path / rehearsal.PACE).write_text("")  # in the middle of being rewritten
    rehearsal.rehearse_pace(str(tmp_path))
    assert paused == [2.5, 0.0]


def test_a_limit_holds_the_days_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobs import rehearsal

    limit = tmp_path / rehearsal.LIMIT
    held: list[float] = []

    def lift(seconds: float) -> None:
        held.append(seconds)
        limit.write_text("2013-01-13")

    clock = SimpleNamespace(sleep=lift, monotonic=lambda: 600.0 * len(held))
    monkeypatch.setattr(rehearsal, "time", clock)
    rehearsal.rehearse_limit("", "2013-12-31")
    rehearsal.rehearse_limit(str(tmp_path), "2013-12-31")
    limit.write_text("2013-01-12")
    rehearsal.rehearse_limit(str(tmp_path), "2013-01-12")
    assert held == []
    rehearsal.rehearse_limit(str(tmp_path), "2013-01-13")
    assert len(held) == 1
    rehearsal.rehearse_limit(str(tmp_path), "2013-01-14", heartbeat_timeout_s=1200.0)  # never lifted so far
    assert len(held) == 3


def run_in(folder: Path, limit: date | None) -> Any:
    """A run whose Airflow nobody asks."""
    from scripts.demo.stream_run import StreamRun

    run = StreamRun.__new__(StreamRun)
    run.run_id, run._limit, run._pace = "r", limit, folder / "pace"
    return run


def test_a_source_goes_as_far_as_it_is_let_and_at_last_to_its_end(tmp_path: Path) -> None:
    from jobs.rehearsal import LIMIT

    run = run_in(tmp_path, date(2013, 1, 13))
    run.go_on_to(date(2013, 2, 10))
    assert (tmp_path / LIMIT).read_text() == "2013-02-10"
    run.at_full_speed()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pace"]
    free = run_in(tmp_path, None)
    free.go_on_to(date(2013, 2, 10))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pace"]


def test_a_table_that_can_not_come_any_more_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.demo.pipeline_run import DemoFailed
    from scripts.demo.stream_run import SINK, Seen, StreamRun

    run = run_in(tmp_path, None)
    last = Seen(1, 7, date(2013, 4, 30), {})
    states: dict[str, tuple[str, int]] = {}
    answers: list[bool] = []
    monkeypatch.setattr(StreamRun, "look", lambda self: last)
    monkeypatch.setattr(StreamRun, "until", lambda self, done, what: answers.append(done(states)))
    run.until_table(lambda seen: False, "a table up to 2013-05-04")
    assert answers == [False]  # the stream goes on
    states[SINK] = ("success", 2)
    run.until_table(lambda seen: seen is last, "a table up to 2013-04-30")
    assert answers == [False, True]
    with pytest.raises(DemoFailed, match=r"expected a table up to 2013-05-04 .* the last table goes up to 2013-04-30"):
        run.until_table(lambda seen: False, "a table up to 2013-05-04")


def test_the_files_are_a_stream_in_the_order_of_their_days(lake: Path) -> None:
    from scripts.demo.lake import date_files

    date_files(lake)
    files = sorted((lake / "flights").glob("*/*.csv"), key=lambda path: path.stat().st_mtime)
    assert [candidate.stem for candidate in files] == list(FLIGHTS)


def test_the_stream_ends_after_its_last_day(lake: Path) -> None:
    from scripts.demo.lake import end_stream

    end_stream(lake, date(2013, 1, 2))
    assert sorted(file.stem for file in lake.glob("flights/*/*.csv")) == ["2013-01-01", "2013-01-02"]


def test_flights_are_counted_in_the_files(lake: Path) -> None:
    from scripts.demo.flights_by_day import FlightsByDay

    found = FlightsByDay.of_lake(lake)
    assert found.counts == {date(2013, 1, 1): 3, date(2013, 1, 2): 1, date(2013, 2, 1): 2}
    assert found.total == 6
    days = [found.day_of(number).isoformat() for number in (0, 1, 3, 4, 5, 6, 7)]
    assert days == ["2013-01-01"] * 3 + ["2013-01-02"] + ["2013-02-01"] * 3


def flights_of(*counts: int) -> Any:
    from scripts.demo.flights_by_day import FlightsByDay

    return FlightsByDay({date(2013, 1, number): count for number, count in enumerate(counts, 1)})


def test_the_independent_count_sees_a_flight_too_few_and_one_too_many() -> None:
    from scripts.demo.stream_checks import missing

    flights = flights_of(3, 4, 5)
    assert missing(flights, flights.counts) == {}
    assert missing(flights, {date(2013, 1, 1): 3, date(2013, 1, 3): 6}) == {date(2013, 1, 2): 4, date(2013, 1, 3): -1}
    assert missing(flights, {**flights.counts, date(2012, 1, 1): 1}) == {date(2012, 1, 1): -1}


def test_a_skip_is_one_stretch_of_days() -> None:
    from scripts.demo.stream_checks import missing, not_in_a_row

    flights = flights_of(*[10] * 31)
    kept = {day: 10 for day in flights.counts if day < date(2013, 1, 3) or day > date(2013, 1, 29)}
    assert not_in_a_row(flights, {}) is None
    assert not_in_a_row(flights, missing(flights, kept)) is None
    for day, rows in ((15, 10), (15, 1), (4, 10), (28, 10)):
        there = not_in_a_row(flights, missing(flights, {**kept, date(2013, 1, day): rows}))
        assert there == f"days in between are there: ['2013-01-{day:02}']"
    assert not_in_a_row(flights, missing(flights, {**kept, date(2013, 1, 4): 1})) is None  # an end that is frayed


@pytest.mark.slow
def test_a_kill_ends_every_process_of_a_driver() -> None:
    import psutil

    from scripts.demo.stream_run import kill_family

    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(86400)']); "
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}print(1, flush=True); time.sleep(86400)"], stdout=-1
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        family = psutil.Process(parent.pid)
        children = family.children(recursive=True)
        reaper = threading.Thread(target=parent.wait)
        reaper.start()
        assert kill_family(family) == 2
        reaper.join(HANG_S)
        assert parent.returncode is not None
        assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
