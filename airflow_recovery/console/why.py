"""``why DAG RUN REGION``: what the newest attempt was made of, what differs from the one before, and what decided."""

from __future__ import annotations

import argparse
import json
import uuid
from dataclasses import asdict

from airflow_recovery.console.arguments import add_run_arguments, journal_of
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.planning.plan_text import cut, table
from airflow_recovery.story.compared_components import ComparedComponent, ComparedComponents, compared_components
from airflow_recovery.story.run_view import view_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which region is meant."""
    add_run_arguments(parser)
    parser.add_argument("region", metavar="REGION", help="a region, as `show` names it")
    parser.add_argument("--json", action="store_true", help="as JSON, with every value in full")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Changes nothing, and reads no data."""
    view = view_run(journal_of(args, deployment_of(args).journal, uuid.uuid4().hex))
    compared = compared_components(view, args.region)
    output(json.dumps(asdict(compared), indent=1) if args.json else f"{view.header()}\n\n{text_of(compared)}")
    return ExitCode.DONE


def text_of(compared: ComparedComponents) -> str:
    """The first line, the table, and how to run the region again."""
    parts = [compared.first_line()]
    if compared.components:
        heads = ("component", f"attempt {compared.before or '-'}", f"attempt {compared.attempt}", "")
        parts.append(table(heads, [_row(component) for component in compared.components]))
    parts.append(f"To run it again whatever this table says: {compared.force}")
    return "\n\n".join(parts)


def _row(component: ComparedComponent) -> tuple[str, str, str, str]:
    marks = ["changed, decided"] if component.changed and component.decides else []
    marks += ["changed, does not decide"] if component.changed and not component.decides else []
    marks += ["can't be seen"] if not component.seen else []
    return component.name, cut(component.before or ""), cut(component.now or ""), "; ".join(marks)
