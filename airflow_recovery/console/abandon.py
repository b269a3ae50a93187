"""``abandon DAG RUN REGION``: what is prepared for a sink is never committed, and the region runs again."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from airflow_recovery.attempt.abandon import abandon, look_at_abandon
from airflow_recovery.console.applying import clear_tasks, code_of
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.console.user import user_name
from airflow_recovery.journal.recorded import recorded_journal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which region of which run, and why."""
    add_run_arguments(parser)
    parser.add_argument("region", metavar="REGION", help="region whose commit is refused, as `plan` names it")
    parser.add_argument("--why", metavar="TEXT", default="given up by hand", help="for the journal")
    parser.add_argument(
        "--not-applied",
        action="store_true",
        help="your word that the target has not taken it, where the target can't be asked any more",
    )
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and say what it would mean")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. `ExitCode.REFUSED` where the target has taken it, or a process might still commit it."""
    deployment, view = run_to_change(args)
    region = view.region(args.region)
    with recorded_journal(view.journal) as journal:
        finish = look_at_abandon(
            journal, view.in_use.state, region.name, deployment.open_committer, not_applied=args.not_applied
        )
        if not args.dry_run:
            abandon(journal, finish, user_name(), args.why)
    cleared = clear_tasks(deployment, view, args.run, [region], dry_run=args.dry_run)
    document = {
        "region": finish.region,
        "attempt": finish.attempt,
        "sink": finish.spec.sink,
        "config": json.loads(finish.spec.config),
        "target_says": finish.target_says,
        "dry_run": args.dry_run,
        **asdict(cleared),
    }
    where = f"{finish.spec.sink} with {finish.spec.config}; the target says: {finish.target_says}"
    does = "Would abandon" if args.dry_run else "Abandoned"
    lines = [
        f"{finish.name} is prepared for {where}.",
        f"{does} {finish.name}: its rows are never committed, and {finish.region} runs again.",
        *([] if args.dry_run else [cleared.text(view.journal.identity)]),
    ]
    answer(args, document, "\n".join(lines))
    return ExitCode.DONE if args.dry_run else code_of(cleared)
