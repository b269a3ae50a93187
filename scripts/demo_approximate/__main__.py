"""``python -m scripts.demo_approximate``: what ``make demo-approximate`` runs. Exit code 1 where any check fails."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

from scripts.demo.clock import Clock
from scripts.wheel import use_wheel

CLOCK = Clock()
use_wheel()

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "dags"))  # as in Airflow: jobs are imported from the DAGs folder

from airflow_recovery.story.run_view import view_run  # noqa: E402
from airflow_recovery.streaming.describe import ledger_of  # noqa: E402
from airflow_recovery.testing.local_airflow import LocalAirflowError  # noqa: E402
from scripts.demo.lake import fill_lake  # noqa: E402
from scripts.demo.local_pipeline import own_folder, stop_by_signals  # noqa: E402
from scripts.demo_approximate.acts import act_regional, act_single  # noqa: E402
from scripts.demo_approximate.checks import all_checks, recovery_table  # noqa: E402
from scripts.demo_approximate.flights import FlightsByDay  # noqa: E402
from scripts.demo_approximate.live_pipeline import LivePipeline, date_files, end_stream, open_live_pipeline  # noqa: E402
from scripts.demo_approximate.live_run import REGIONS, DemoFailed  # noqa: E402

LAST_DAY = date(2013, 4, 30)
"""The stream ends here: long enough for two kills, and for what it goes on meanwhile."""


def main() -> int:
    """Run the demo. Returns 0 where every check holds, else 1."""
    argparse.ArgumentParser(prog="make demo-approximate", description=__doc__).parse_args()
    stop_by_signals()
    try:
        with own_folder() as folder:
            return _run(folder)
    except BlockingIOError:
        print("Another demo is running in this checkout: stop it first", file=sys.stderr)
        return 1


def _run(folder: Path) -> int:
    lake = folder / "lake"
    fill_lake(lake)
    end_stream(lake, LAST_DAY)
    date_files(lake)
    print("Starting an S3 server and Airflow (API server, scheduler, DAG processor, triggerer) ...", flush=True)
    try:
        with open_live_pipeline(folder / "pipeline", lake) as pipeline:
            CLOCK.lap("start")
            print(f"  ready after {CLOCK.seconds:.0f} s; channels are in {pipeline.results.base_uri}", flush=True)
            return 0 if _play(pipeline, FlightsByDay.of_lake(lake)) else 1
    except (DemoFailed, LocalAirflowError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr, flush=True)
        return 1


def _play(pipeline: LivePipeline, flights: FlightsByDay) -> bool:
    one = act_single(pipeline, flights)
    CLOCK.lap("act one")
    two = act_regional(pipeline, flights)
    CLOCK.lap("act two")
    state = one.run.state()
    restarts = (f"{region} {len([n for n in state.of(region).attempts if n]) - 1}" for region in REGIONS)
    print(f"\nRestarts in act one: {', '.join(restarts)}\n")
    ledger = ledger_of(view_run(one.run.journal()), pipeline.results)
    print(f"{ledger.text()}\n")
    print(f"{recovery_table([*one.recoveries, *two.recoveries])}\n")
    passed = ledger.trouble is None
    for claim, wrong in all_checks(one, two, flights, ledger.channels):
        print(f"{'ok    ' if wrong is None else 'FAILED'}  {claim}{'' if wrong is None else f': {wrong}'}")
        passed = passed and wrong is None
    CLOCK.lap("checks")
    print(f"took {CLOCK}", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
