"""``confirm DAG RUN REGION``: the process that might still commit is dead, so a commit in doubt may go on."""

from __future__ import annotations

import argparse
import json
import uuid
from dataclasses import asdict

from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.console.arguments import add_run_arguments, journal_of
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.console.user import user_name
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.story.clearing import clear_text, task_keys
from airflow_recovery.story.run_view import view_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which region of which run, and how the user knows."""
    add_run_arguments(parser)
    parser.add_argument("region", metavar="REGION", help="region whose commit is in doubt, as `plan` names it")
    parser.add_argument("--why", metavar="TEXT", default="confirmed by hand", help="how you know, for the journal")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Raises `UnknownRegion`, and `NothingRecorded` where no commit of the region waits."""
    deployment = deployment_of(args)
    view = view_run(journal_of(args, deployment.journal, uuid.uuid4().hex))
    identity = view.journal.identity
    region = view.region(args.region)
    with recorded_journal(view.journal) as journal:
        confirmed = confirm_dead(journal, view.in_use.state, args.region, user_name(), args.why)
    run_id, keys = view.airflow_run_id(args.run), task_keys(identity, [region])
    cleared = deployment.clear(identity.dag_id, run_id, keys)
    if args.json:
        output(json.dumps({**asdict(confirmed), "airflow_run_id": run_id, "clear": keys, "cleared": cleared}, indent=1))
    else:
        confirmation = f"Confirmed: process {confirmed.writer} commits {confirmed.region}@{confirmed.attempt} no more."
        rest = clear_text(identity, run_id, keys) if cleared is None else f"Cleared: {', '.join(cleared) or 'nothing'}."
        output(f"{confirmation}\n{rest}")
    return ExitCode.CLEAR_BY_HAND if cleared is None else ExitCode.DONE
