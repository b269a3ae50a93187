"""``withdraw DAG RUN [REGION] --reason TEXT``: readers outside the run are not given these results any more."""

from __future__ import annotations

import argparse

from airflow_recovery.attempt.withdraw import withdraw
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.console.user import user_name
from airflow_recovery.escaping import one_line
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.story.changed import Withdrawn


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
    _, view = run_to_change(args)
    with recorded_journal(view.journal) as journal:
        turns = withdraw(journal, args.region, user_name(), args.reason, withdrawn=not args.off)
    lines = [
        one_line(f"Withdrawn: {turn.text()}")
        if turn.is_withdrawn
        else f"Readers are given {turn.region}@{turn.attempt}."
        for turn in turns
    ]
    if not args.off:
        lines += [
            "Other DAGs can't read it, or results that depend on it, until a publish names a newer attempt.",
            "No file was deleted: readers of the store can still read the files. `release` and `gc` delete files.",
        ]
    answer(args, Withdrawn.of(turns), "\n".join(lines))
    return ExitCode.DONE
