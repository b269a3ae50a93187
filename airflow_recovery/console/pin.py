"""``pin DAG RUN REGION``: no release policy, gc or purge deletes the data of this attempt, until it is unpinned."""

from __future__ import annotations

import argparse

from airflow_recovery.attempt.pin import pin, unpin
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.console.user import user_name
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.escaping import one_line
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.model.records import Pin
from airflow_recovery.planning.plan_text import table
from airflow_recovery.story.changed import Pinned
from airflow_recovery.story.run_view import RunView


def add_attempt_argument(parser: argparse.ArgumentParser) -> None:
    """``--attempt``: of which attempt the data are meant."""
    parser.add_argument("--attempt", metavar="N", type=_attempt, help="default: the attempt that counts")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which data is meant, and why it is pinned."""
    add_run_arguments(parser)
    parser.add_argument("region", metavar="REGION", nargs="?", help="default: list what is pinned in this run")
    add_attempt_argument(parser)
    parser.add_argument("--why", metavar="TEXT", default="pinned by hand", help="for whoever wants the room one day")
    parser.add_argument("--off", action="store_true", help="unpin it: the release policy counts again")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. `ExitCode.REFUSED` where the data were released before."""
    _, view = run_to_change(args)
    if args.region is None:
        if args.off or args.attempt is not None:
            raise ConfigurationError("Expected the REGION that --off or --attempt is about, found none.")
        pinned = _pinned(view)
        answer(args, [Pinned.of(kept) for kept in pinned], _text(view, pinned))
        return ExitCode.DONE
    region = view.region(args.region).name
    change = unpin if args.off else pin
    with recorded_journal(view.journal) as journal:
        turn = change(journal, view.in_use.state, region, args.attempt, user_name(), args.why)
    text = f"Unpinned: {region}@{turn.attempt}. The release policy counts again."
    if turn.is_pinned:
        why = one_line(turn.why)
        text = f"Pinned: {region}@{turn.attempt}, by {turn.who} ({why}). Its data stay until `pin --off`."
    answer(args, Pinned.of(turn), text)
    return ExitCode.DONE


def _pinned(view: RunView) -> list[Pin]:
    return [
        view.journal.read_pin(name, attempt.number, attempt.pin_turn)
        for name, state in view.in_use.state.regions.items()
        for attempt in state.pinned
    ]


def _text(view: RunView, pinned: list[Pin]) -> str:
    rows = [(f"{kept.region}@{kept.attempt}", kept.who, kept.why) for kept in pinned]
    return "\n\n".join([view.header(), table(("pinned", "by", "why"), rows) if rows else "Nothing is pinned."])


def _attempt(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected the number of an attempt, found {text!r}")
    return int(text)
