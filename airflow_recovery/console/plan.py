"""``plan DAG RUN``: what would run, what is kept, and why. With ``--apply``: have it done."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from airflow_recovery.console.applying import apply_and_clear
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.connect import add_connect_argument, evaluation_of
from airflow_recovery.console.deployment import Deployment
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer, output
from airflow_recovery.console.user import user_name
from airflow_recovery.errors import ConfigurationError, RecordInvalid
from airflow_recovery.journal.codec import parse_json
from airflow_recovery.model.codec import to_json
from airflow_recovery.planning.plan import Plan
from airflow_recovery.planning.plan_diff import diff
from airflow_recovery.planning.plan_text import plan_text
from airflow_recovery.story.compared_components import unseen_code, unseen_text
from airflow_recovery.story.run_view import RunView
from airflow_recovery.story.what_if import WhatIf, plan_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is asked, how it is shown, and whether it is done."""
    add_run_arguments(parser)
    add_connect_argument(parser)
    asked = parser.add_argument_group("what if (none: the run as it is; several: all at once)")
    asked.add_argument("--failed", action="append", metavar="R", help="region R fails")
    asked.add_argument("--cause", metavar="TEXT", help="why it fails, for --failed")
    asked.add_argument(
        "--lost", action="append", metavar="R.RESULT", help="this result, or this channel's log, is gone"
    )
    asked.add_argument("--changed", action="append", metavar="V", help="the code of vertex V has changed")
    asked.add_argument(
        "--restart",
        action="append",
        metavar="R",
        help="restart region R; a streaming region with all that channels connect with it",
    )
    asked.add_argument("--from", action="append", metavar="V", dest="from_", help="restart from vertex V on")
    asked.add_argument("--recompute", action="store_true", help="run everything again")
    shown = parser.add_argument_group("output")
    shown.add_argument("--json", action="store_true", help="the plan as JSON")
    shown.add_argument("--diff", metavar="FILE", help="only what is different from a plan saved with --json")
    parser.add_argument(
        "--apply",
        nargs="?",
        const=True,
        metavar="FILE",
        help="write the resets of --restart, --from or --recompute and clear the tasks; with FILE, those of a plan "
        "saved with --json. Refused where the run has moved on since the plan was made",
    )


def run(args: argparse.Namespace) -> int:
    """The subcommand. `ExitCode.DIFFERENT` where ``--diff`` has found a difference; with ``--apply`` as `restart`."""
    asked = _asked(args)
    deployment, view = run_to_change(args)
    if isinstance(args.apply, str):
        return _apply(args, deployment, view, _load(args.apply, view))
    evaluation = evaluation_of(args, deployment, view)
    plan = plan_run(view, evaluation, asked.request(user_name()))
    if args.apply is not None:
        if not args.json:
            output(f"{view.header()}\n\n{plan_text(plan)}\n")
        return _apply(args, deployment, view, plan)
    if args.diff is not None:
        return _show_difference(args, _load(args.diff, view), plan)
    unseen = unseen_code(view)
    if args.json:  # either of the two takes a while for a large run
        answer(args, {**plan_document(view, plan), "unseen_code": unseen}, "")
    else:
        output("\n\n".join(part for part in (view.header(), plan_text(plan), unseen_text(unseen)) if part))
    return ExitCode.DONE


def _asked(args: argparse.Namespace) -> WhatIf:
    """Raises `ConfigurationError` for what ``--apply`` would pass over."""
    asked = WhatIf(
        restart=tuple(args.restart or ()),
        from_=tuple(args.from_ or ()),
        recompute=args.recompute,
        failed=tuple(args.failed or ()),
        lost=tuple(args.lost or ()),
        changed=tuple(args.changed or ()),
        cause=args.cause,
    )
    if isinstance(args.apply, str) and asked != WhatIf():
        given = [f"--{name.rstrip('_')}" for name in vars(asked) if getattr(asked, name) != getattr(WhatIf(), name)]
        raise ConfigurationError(
            f"Expected {args.apply} to say alone what is restarted, found {', '.join(given)} as well. Leave one of the "
            "two out: a saved plan is applied as it is, and --apply without a file applies what the options ask for."
        )
    if args.apply is not None and args.diff is not None:
        raise ConfigurationError(
            "Expected --apply or --diff, found both: compare first, and apply what you have seen, saved with --json."
        )
    return asked


def plan_document(view: RunView, plan: Plan) -> dict[str, Any]:
    """What ``--json`` prints, and ``--apply FILE`` and ``--diff FILE`` read."""
    identity = view.journal.identity
    run_of = {"dag_id": identity.dag_id, "run_key": identity.run_key, "group_id": identity.group_id}
    return {**run_of, "plan_hash": view.in_use.plan_hash, "plan": plan.to_json()}


def _load(file: str, view: RunView) -> Plan:
    """A plan that was saved with ``--json``, of this very run."""
    try:
        document: dict[str, Any] = parse_json(Path(file).read_bytes(), where=file)
        plan = Plan.from_json(document["plan"])
        of = (document["dag_id"], document["run_key"], document["group_id"])
    except (OSError, KeyError, TypeError, ValueError, RecordInvalid) as error:
        raise ConfigurationError(f"Expected a plan saved with --json in {file}, found: {error!r}.") from error
    identity = view.journal.identity
    if of != (identity.dag_id, identity.run_key, identity.group_id):
        raise ConfigurationError(f"Expected a plan of {identity}, found one of {' / '.join(of)} in {file}.")
    return plan


def _show_difference(args: argparse.Namespace, before: Plan, after: Plan) -> int:
    differences = diff(before, after)
    document = [{**to_json(difference), "text": difference.text()} for difference in differences]
    text = "\n".join(difference.text() for difference in differences) or f"No difference to {args.diff}."
    answer(args, {"differences": document}, text)
    return ExitCode.DIFFERENT if differences else ExitCode.DONE


def _apply(args: argparse.Namespace, deployment: Deployment, view: RunView, plan: Plan) -> int:
    done = apply_and_clear(deployment, view, plan, args.run)
    answer(args, done.document, done.text)
    return done.code
