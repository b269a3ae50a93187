"""``python -m scripts.demo [--keep] [--s3a]``: what ``make demo`` runs. Exit code 1 where any check fails."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from scripts.demo.clock import Clock
from scripts.wheel import use_wheel

CLOCK = Clock()
use_wheel()

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "dags"))  # as in Airflow: jobs are imported from the DAGs folder

from airflow_recovery.testing.local_airflow import LocalAirflowError  # noqa: E402
from scripts.demo.acts import act_one, act_three, act_two  # noqa: E402
from scripts.demo.checks import all_checks  # noqa: E402
from scripts.demo.lake import fill_lake  # noqa: E402
from scripts.demo.local_pipeline import LocalPipeline, open_local_pipeline, own_folder, stop_by_signals  # noqa: E402
from scripts.demo.pipeline_run import DemoFailed  # noqa: E402
from scripts.demo.report import saved, table  # noqa: E402
from scripts.demo.results import copy_sinks  # noqa: E402


def main() -> int:
    """Run the demo. Returns 0 where every check holds, else 1."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave Airflow up at the end, until Ctrl-C")
    parser.add_argument("--s3a", action="store_true", help="sources and results on S3, too: Spark uses s3a://")
    arguments = parser.parse_args()
    stop_by_signals()
    try:
        with own_folder() as folder:
            return _run(folder, keep=arguments.keep, on_s3=arguments.s3a)
    except BlockingIOError:
        print("Another demo is running in this checkout: stop it first", file=sys.stderr)
        return 1


def _run(folder: Path, *, keep: bool, on_s3: bool) -> int:
    lake = folder / "lake"
    fill_lake(lake)
    print("Starting an S3 server and Airflow (API server, scheduler, DAG processor, triggerer) ...", flush=True)
    try:
        with open_local_pipeline(folder / "pipeline", lake, on_s3=on_s3) as pipeline:
            CLOCK.lap("start")
            print(f"  ready after {CLOCK.seconds:.0f} s; data is at {pipeline.results_uri}", flush=True)
            try:
                passed = _play(pipeline, folder, lake)
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
    passed = True
    for claim, wrong in all_checks(acts, lake, pipeline.open_data):
        print(f"{'ok    ' if wrong is None else 'FAILED'}  {claim}{'' if wrong is None else f': {wrong}'}")
        passed = passed and wrong is None
    output = folder / "output"
    copy_sinks(two, output, pipeline.open_data)
    CLOCK.lap("checks")
    again = sum(story.ran_again for story in stories)
    print(f"recovered: {len(stories) - again} regions kept, {again} run again")
    print(f"output: {output}")
    print(f"took {CLOCK}", flush=True)
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
