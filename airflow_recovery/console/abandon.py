"""``abandon DAG RUN REGION``: what is prepared for a sink is never committed, and the region runs again."""

from __future__ import annotations

import argparse
import json
import uuid

from airflow_recovery.attempt.abandon import abandon, look_at_abandon
from airflow_recovery.console.arguments import add_run_arguments, journal_of
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.console.user import user_name
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.story.clearing import clear_text, task_keys
from airflow_recovery.story.run_view import view_run


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
    deployment = deployment_of(args)
    view = view_run(journal_of(args, deployment.journal, uuid.uuid4().hex))
    identity, region = view.journal.identity, view.region(args.region)
    with recorded_journal(view.journal) as journal:
        finish = look_at_abandon(
            journal, view.in_use.state, region.name, deployment.open_committer, not_applied=args.not_applied
        )
        if not args.dry_run:
            abandon(journal, finish, user_name(), args.why)
    run_id, keys = view.airflow_run_id(args.run), task_keys(identity, [region])
    cleared = None if args.dry_run else deployment.clear(identity.dag_id, run_id, keys)
    if args.json:
        document = {
            "region": finish.region,
            "attempt": finish.attempt,
            "sink": finish.spec.sink,
            "config": json.loads(finish.spec.config),
            "target_says": finish.target_says,
            "dry_run": args.dry_run,
            "airflow_run_id": run_id,
            "clear": keys,
            "cleared": cleared,
        }
        output(json.dumps(document, indent=1))
    else:
        where = f"{finish.spec.sink} with {finish.spec.config}; the target says: {finish.target_says}"
        output(f"{finish.name} is prepared for {where}.")
        does = "Would abandon" if args.dry_run else "Abandoned"
        output(f"{does} {finish.name}: its rows are never committed, and {finish.region} runs again.")
        if not args.dry_run:
            rest = clear_text(identity, run_id, keys) if cleared is None else f"Cleared: {', '.join(cleared) or '-'}."
            output(rest)
    return ExitCode.CLEAR_BY_HAND if cleared is None and not args.dry_run else ExitCode.DONE
