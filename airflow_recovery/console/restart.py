"""``restart DAG RUN REGION...``: the plan of a restart, and its application, in one call."""

from __future__ import annotations

import argparse

from airflow_recovery.console.applying import apply_and_clear
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.connect import add_connect_argument, evaluation_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.console.user import user_name
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.planning.plan_text import plan_text
from airflow_recovery.planning.scenario import Request
from airflow_recovery.story.what_if import WhatIf, plan_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which regions or vertices run again."""
    add_run_arguments(parser)
    add_connect_argument(parser)
    parser.add_argument("region", metavar="REGION", nargs="*", help="a region to restart, as `plan` names it")
    parser.add_argument("--from", action="append", metavar="V", dest="from_", help="restart from vertex V on")
    parser.add_argument("--everything", action="store_true", help="run everything again")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and say what would run")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Refused as outdated where the run moves on between the plan and its application."""
    request = _request(args)
    deployment, view = run_to_change(args)
    evaluation = evaluation_of(args, deployment, view)
    plan = plan_run(view, evaluation, request)
    done = None if args.dry_run else apply_and_clear(deployment, view, plan, args.run)
    text = "\n\n".join([view.header(), plan_text(plan), done.text if done is not None else "Nothing was changed."])
    answer(args, {"plan": plan, **(done.document if done is not None else {})}, text)
    return ExitCode.DONE if done is None else done.code


def _request(args: argparse.Namespace) -> Request:
    asked = WhatIf(restart=tuple(args.region), from_=tuple(args.from_ or ()), recompute=args.everything)
    if asked == WhatIf():
        raise ConfigurationError("Expected what to restart, found nothing: name regions, --from V or --everything.")
    return asked.request(user_name())
