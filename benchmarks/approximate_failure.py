"""From the death of the scorer to the first fresh result: it restarts alone, with what is behind it, or with all."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from statistics import median

from airflow_recovery.model.failover_strategy import FailoverStrategy
from benchmarks.local_pipeline import HERE
from benchmarks.report import Figure, Report, Table, summary
from scripts.demo.flights_by_day import FlightsByDay
from scripts.demo.lake import date_files, fill_lake
from scripts.demo.local_pipeline import LocalPipeline, open_local_pipeline
from scripts.demo.stream_acts import Recovery, kill_and_measure
from scripts.demo.stream_run import SCORER, StreamRun

FIRST_KILL = date(2013, 1, 21)
"""Late enough that a restart of all has something to read again."""
SINGLE, DOWNSTREAM, REGION = (
    FailoverStrategy.APPROXIMATE_SINGLE.value,
    FailoverStrategy.APPROXIMATE_DOWNSTREAM.value,
    FailoverStrategy.REGION.value,
)


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 1) rounds of the three strategies, in one Airflow."""
    folder.mkdir(parents=True)
    fill_lake(folder / "lake")
    date_files(folder / "lake")
    flights = FlightsByDay.of_lake(folder / "lake")
    found: dict[str, list[Recovery]] = {SINGLE: [], DOWNSTREAM: [], REGION: []}
    opened = open_local_pipeline(folder / "pipeline", folder / "lake", of_streams=True, dags=HERE / "dags")
    with opened as pipeline:
        for number in range(repeats or 1):
            for strategy, recoveries in found.items():
                recoveries.append(_once(pipeline, strategy, number, flights))
    fresh = {strategy: [recovery.fresh_s for recovery in recoveries] for strategy, recoveries in found.items()}
    first = {strategy: [recovery.first_s for recovery in recoveries] for strategy, recoveries in found.items()}
    single, downstream, region = (median(fresh[name]) for name in (SINGLE, DOWNSTREAM, REGION))
    return Report(
        name="approximate_failure",
        title="From a failure to the first fresh result",
        method=(
            "The chain of `make demo-approximate` in a real Airflow, with real Spark and an S3 server over HTTP, all "
            "on one machine: a source, a scorer that takes 8 s to load its model (a pause), and a sink with a running "
            f"table. When the table has come to {FIRST_KILL} the scorer is killed with kill -9. Fresh is the first "
            "committed table with flights that had not left the source at that moment; first is the first table that "
            "a restarted region has a part in. A regional restart reads everything from the beginning, so that it has "
            "to come to the same point again: what that takes grows with the run."
        ),
        figures=[
            Figure("the region alone (single), first fresh result", single, "s"),
            Figure("with what is behind it (downstream), against that", downstream / single, "times"),
            Figure("with all (region), against that", region / single, "times"),
        ],
        tables=[
            Table(
                "Seconds from the kill to the first fresh table",
                ("strategy", "restarted", "median", "least", "most", "tries"),
                [(name, ", ".join(found[name][-1].restarted), *summary(each)) for name, each in fresh.items()],
            ),
            Table(
                "Seconds from the kill to the first table of a restarted region",
                ("strategy", "median", "least", "most", "tries"),
                [(name, *summary(each)) for name, each in first.items()],
            ),
        ],
        samples={"fresh": fresh, "first": first},
    )


def _once(pipeline: LocalPipeline, strategy: str, number: int, flights: FlightsByDay) -> Recovery:
    run = StreamRun(pipeline, f"failure_{strategy}", name=f"round-{number}")
    run.until_table(lambda seen: seen is not None and seen.newest >= FIRST_KILL, f"a table up to {FIRST_KILL}")
    recovery = kill_and_measure(run, SCORER, flights, strategy)
    run.stop()
    return recovery
