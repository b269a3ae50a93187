"""``python -m scripts.demo [--keep] [--s3a | --streams]``: what ``make demo`` and ``make demo-approximate`` run.

Exit code 1 if any check fails.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterable
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
from scripts.demo import stream_acts, stream_checks  # noqa: E402
from scripts.demo.acts import act_one, act_three, act_two  # noqa: E402
from scripts.demo.checks import all_checks  # noqa: E402
from scripts.demo.flights_by_day import FlightsByDay  # noqa: E402
from scripts.demo.lake import date_files, end_stream, fill_lake  # noqa: E402
from scripts.demo.local_pipeline import LocalPipeline, open_local_pipeline, own_folder, stop_by_signals  # noqa: E402
from scripts.demo.pipeline_run import DemoFailed  # noqa: E402
from scripts.demo.report import saved, table  # noqa: E402
from scripts.demo.results import copy_sinks  # noqa: E402
from scripts.demo.stream_run import REGIONS  # noqa: E402

LAST_DAY = date(2013, 4, 30)
"""A stream ends here: long enough for two kills, and for what it goes on meanwhile."""


def main() -> int:
    """Run the demo. Returns 0 where every check holds, else 1."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave Airflow up at the end, until Ctrl-C")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--s3a", action="store_true", help="sources and results on S3, too: Spark uses s3a://")
    kind.add_argument(
        "--streams", action="store_true", help="a chain of streams, which loses and counts: approximate recovery"
    )
    arguments = parser.parse_args()
    stop_by_signals()
    try:
        with own_folder() as folder:
            return _run(folder, keep=arguments.keep, on_s3=arguments.s3a, of_streams=arguments.streams)
    except BlockingIOError:
        print("Another demo is running in this checkout: stop it first", file=sys.stderr)
        return 1


def _run(folder: Path, *, keep: bool, on_s3: bool, of_streams: bool) -> int:
    lake = folder / "lake"
    fill_lake(lake)
    if of_streams:
        end_stream(lake, LAST_DAY)
        date_files(lake)
    print("Starting an S3 server and Airflow (API server, scheduler, DAG processor, triggerer) ...", flush=True)
    try:
        with open_local_pipeline(folder / "pipeline", lake, on_s3=on_s3, of_streams=of_streams) as pipeline:
            CLOCK.lap("start")
            print(f"  ready after {CLOCK.seconds:.0f} s; data is at {pipeline.results_uri}", flush=True)
            try:
                passed = _play_streams(pipeline, lake) if of_streams else _play(pipeline, folder, lake)
            except (DemoFailed, LocalAirflowError) as error:
                print(f"\nThe demo failed: {error}", file=sys.stderr, flush=True)
                passed = False
            if keep:
                _keep(pipeline)
    except LocalAirflowError as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr, flush=True)
        passed = False
    return 0 if passed else 1


def _play(pipeline: LocalPipeline, folder: Path, lake: Path) -> bool:
    acts = []
    for name, act in (("act one", act_one), ("act two", act_two), ("act three", act_three)):
        acts.append(act(pipeline).journal())
        CLOCK.lap(name)
    _, two, three = acts
    stories = two.stories()
    print(f"\nAct two\n{table(stories)}\n\nAct three\n{table(three.stories())}\n")
    print(saved(stories))
    passed = _print_checks(all_checks(acts, lake, pipeline.open_data))
    output = folder / "output"
    copy_sinks(two, output, pipeline.open_data)
    CLOCK.lap("checks")
    again = sum(story.ran_again for story in stories)
    print(f"recovered: {len(stories) - again} regions kept, {again} run again")
    print(f"output: {output}")
    print(f"took {CLOCK}", flush=True)
    return passed


def _play_streams(pipeline: LocalPipeline, lake: Path) -> bool:
    flights = FlightsByDay.of_lake(lake)
    one = stream_acts.act_single(pipeline, flights)
    CLOCK.lap("act one")
    two = stream_acts.act_regional(pipeline, flights)
    CLOCK.lap("act two")
    state = one.run.state()
    restarts = (f"{region} {len([n for n in state.of(region).attempts if n]) - 1}" for region in REGIONS)
    print(f"\nRestarts in act one: {', '.join(restarts)}\n")
    ledger = ledger_of(view_run(one.run.records()), pipeline.results)
    print(f"{ledger.text()}\n")
    print(f"{stream_checks.recovery_table([*one.recoveries, *two.recoveries])}\n")
    passed = _print_checks(stream_checks.all_checks(one, two, flights, ledger.channels))
    CLOCK.lap("checks")
    print(f"took {CLOCK}", flush=True)
    return passed and ledger.trouble is None


def _print_checks(checks: Iterable[tuple[str, str | None]]) -> bool:
    """Print each check; whether all of them hold."""
    passed = True
    for claim, wrong in checks:
        print(f"{'ok    ' if wrong is None else 'FAILED'}  {claim}{'' if wrong is None else f': {wrong}'}")
        passed = passed and wrong is None
    return passed


def _keep(pipeline: LocalPipeline) -> None:
    login = pipeline.airflow.admin
    print(f"\nAirflow stays up at {pipeline.airflow.url}  (user {login.user}, password {login.password})")
    print(f"Stop it with Ctrl-C here, or with: kill {os.getpid()}", flush=True)
    stopped = threading.Event()
    for signals in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signals, lambda *_: stopped.set())
    stopped.wait()
    print("Stopping ...", flush=True)


if __name__ == "__main__":
    sys.exit(main())
