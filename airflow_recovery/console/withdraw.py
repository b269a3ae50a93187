"""``withdraw DAG RUN [REGION] --reason TEXT``: readers outside the run are not given these results any more."""

from __future__ import annotations

import argparse
import json
import uuid
from dataclasses import asdict

from airflow_recovery.attempt.withdraw import withdraw
from airflow_recovery.console.arguments import add_run_arguments, journal_of
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.console.user import user_name
from airflow_recovery.escaping import one_line
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.story.run_view import view_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which results are meant, and why they are withdrawn."""
    add_run_arguments(parser)
    parser.add_argument(
        "region",
        metavar="REGION",
        nargs="?",
        help="a region, a task or a result (default: everything that is published)",
    )
    parser.add_argument("--reason", metavar="TEXT", required=True, help="what is wrong: readers are shown this")
    parser.add_argument("--off", action="store_true", help="give the results back to readers")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Changes nothing for the run's own tasks."""
    view = view_run(journal_of(args, deployment_of(args).journal, uuid.uuid4().hex))
    with recorded_journal(view.journal) as journal:
        turns = withdraw(journal, args.region, user_name(), args.reason, withdrawn=not args.off)
    if args.json:
        output(json.dumps([{**asdict(turn), "withdrawn": turn.is_withdrawn} for turn in turns], indent=1))
        return ExitCode.DONE
    for turn in turns:
        given = f"Readers are given {turn.region}@{turn.attempt}."
        output(one_line(f"Withdrawn: {turn.text()}") if turn.is_withdrawn else given)
    if not args.off:
        output("Other DAGs can't read it, or results that depend on it, until a publish names a newer attempt.")
        output("No file was deleted: readers of the store can still read the files. `release` and `gc` delete files.")
    return ExitCode.DONE
