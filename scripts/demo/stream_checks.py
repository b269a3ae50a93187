"""What has to be true at the end. Each check is one line of the output; one that fails makes the demo fail."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from airflow_recovery.streaming.run_channels import ChannelReport
from airflow_recovery.verify import verify_run
from scripts.demo.checks import unequal
from scripts.demo.flights_by_day import FlightsByDay
from scripts.demo.stream_acts import Act, Recovery
from scripts.demo.stream_run import REGIONS, SCORER, SINK, SOURCE, StreamRun


def published_table(run: StreamRun) -> dict[date, int]:
    """Flights by day in the published result, from exactly the files that its manifest names."""
    manifest = run.journal().result(SINK)
    store = run.pipeline.open_data(manifest.location)
    files = (io.BytesIO(store.get(file.path).body) for file in manifest.objects)
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    return {row["date"]: row["flights"] for row in rows}


def missing(flights: FlightsByDay, table: Mapping[date, int]) -> dict[date, int]:
    """How many flights of each day are in the CSV files and not in the table; negative where there are too many."""
    days = sorted({*flights.counts, *table})
    missed = {day: flights.counts.get(day, 0) - table.get(day, 0) for day in days}
    return {day: count for day, count in missed.items() if count}


def all_checks(
    one: Act, two: Act, flights: FlightsByDay, ledger: Sequence[ChannelReport]
) -> Iterator[tuple[str, str | None]]:
    """Each check as (what is claimed, what is wrong or `None`)."""
    run = one.run
    yield "act one: the run is a success in Airflow", unequal("success", run.airflow_state)
    state = run.state()
    tops = {name: state.of(name).latest_attempt for name in REGIONS}
    yield (
        "act one: one restart of the sink, one of the scorer, none of the source",
        unequal({SOURCE: 1, SCORER: 2, SINK: 2}, tops),
    )
    table = published_table(run)
    gone = missing(flights, table)
    reports = {report.channel.edge: report for report in ledger}
    lost = sum(gone.values())
    yield (
        f"independent count: {flights.total:,} flights in the CSV files, {sum(table.values()):,} in the published "
        f"table; {lost:,} are missing, and the ledger says so",
        unequal(lost, reports[SOURCE].loss.lost + reports[SCORER].loss.lost),
    )
    yield "no flight is counted twice on any day", unequal({}, {day: n for day, n in gone.items() if n < 0})
    yield (
        "the running table's own channel has lost nothing",
        unequal((0, 0), (reports[SCORER].loss.lost, reports[SCORER].unknown)),
    )
    yield f"what is missing is of few days in a row: {_days(gone)}", not_in_a_row(flights, gone)
    report = verify_run(
        run.pipeline.journal,
        run.pipeline.journal.sibling,
        dag_id=run.identity.dag_id,
        run_key=run.identity.run_key,
        group_id=run.identity.group_id,
        ended=True,
        deep=True,
        results=run.pipeline.results,
    )
    yield "the independent checker finds nothing", report.text() if report.violated else None
    (whole,) = two.recoveries
    yield "act two: all three regions restarted", unequal(len(REGIONS), len(whole.restarted))
    alone = one.recoveries[0]
    yield (
        f"act one: one region restarted, and a fresh table came after {alone.fresh_s:.0f} s, not {whole.fresh_s:.0f} s",
        unequal(1, len(alone.restarted)),
    )


def recovery_table(recoveries: Sequence[Recovery]) -> str:
    """A table with one line for each kill: who restarted, and how long it took to the first table."""
    rows = [("killed", "strategy", "restarted", "first table", "fresh table")]
    rows += [
        (
            recovery.killed,
            recovery.strategy,
            ", ".join(recovery.restarted),
            f"{recovery.first_s:.1f} s",
            f"{recovery.fresh_s:.1f} s",
        )
        for recovery in recoveries
    ]
    wide = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _days(gone: Mapping[date, int]) -> str:
    return f"{min(gone)} to {max(gone)}" if gone else "none"


def not_in_a_row(flights: FlightsByDay, gone: Mapping[date, int]) -> str | None:
    """A skip is one stretch of the stream, of every day of which something is gone. A batch of days is shuffled among
    subpartitions, so its ends may be frayed; days in the middle of it are gone as a whole."""
    days = [day for day in flights.counts if gone and min(gone) <= day <= max(gone)]
    middle = days[8:-8]
    there = [str(day) for day in days if day not in gone or (day in middle and gone[day] != flights.counts[day])]
    return f"days in between are there: {there[:5]}" if there else None
