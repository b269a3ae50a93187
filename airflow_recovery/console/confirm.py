"""``confirm DAG RUN REGION``: the process that might still commit is dead, so a commit in doubt may go on."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.console.applying import clear_tasks, code_of
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.terminal import answer
from airflow_recovery.console.user import user_name
from airflow_recovery.journal.recorded import recorded_journal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which region of which run, and how the user knows."""
    add_run_arguments(parser)
    parser.add_argument("region", metavar="REGION", help="region whose commit is in doubt, as `plan` names it")
    parser.add_argument("--why", metavar="TEXT", default="confirmed by hand", help="how you know, for the journal")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Raises `UnknownRegion`, and `NothingRecorded` where no commit of the region waits."""
    deployment, view = run_to_change(args)
    region = view.region(args.region)
    with recorded_journal(view.journal) as journal:
        confirmed = confirm_dead(journal, view.in_use.state, args.region, user_name(), args.why)
    cleared = clear_tasks(deployment, view, args.run, [region])
    confirmation = f"Confirmed: process {confirmed.writer} commits {confirmed.region}@{confirmed.attempt} no more."
    answer(args, {**asdict(confirmed), **asdict(cleared)}, f"{confirmation}\n{cleared.text(view.journal.identity)}")
    return code_of(cleared)
