"""``verify DAG [RUN]``: the independent checker of the invariants, over the journal and the results alone."""

from __future__ import annotations

import argparse

from airflow_recovery.console.arguments import add_run_arguments
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.story.run_lookup import all_runs, find_run
from airflow_recovery.verify import verify_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which runs, and how closely they are checked."""
    add_run_arguments(parser, all_runs=True)
    parser.add_argument("--json", action="store_true", help="as JSON, a list with an object for each run and group")
    parser.add_argument(
        "--ended",
        action="store_true",
        help="the runs have ended in success: complain of what is left to do as well. Without it, what may be under "
        "way is no contradiction",
    )
    parser.add_argument(
        "--deep", action="store_true", help="count the rows in the published Parquet files (reads them)"
    )


def run(args: argparse.Namespace) -> int:
    """The subcommand. `ExitCode.VIOLATED` where anything contradicts an invariant."""
    deployment = deployment_of(args)
    store = deployment.journal
    runs = (
        all_runs(store, args.dag, args.group) if args.run is None else [find_run(store, args.dag, args.run, args.group)]
    )
    reports = [
        verify_run(
            store,
            deployment.open_location,
            dag_id=run.dag_id,
            run_key=run.run_key,
            group_id=run.group_id,
            ended=args.ended,
            deep=args.deep,
            results=deployment.results,
        )
        for run in runs
    ]
    answer(args, reports, "\n\n".join(report.text() for report in reports))
    return ExitCode.VIOLATED if any(report.violated for report in reports) else ExitCode.DONE
