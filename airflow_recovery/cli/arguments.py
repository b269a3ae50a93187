"""What every subcommand that looks at one run asks for."""

from __future__ import annotations

import argparse

from airflow_recovery.cli.run_lookup import find_run
from airflow_recovery.journal.journal import Journal
from airflow_recovery.storage.object_store import ObjectStore


def add_run_arguments(parser: argparse.ArgumentParser, *, all_runs: bool = False) -> None:
    """DAG, RUN and --group. With ``all_runs``, RUN may be left out (`None`): every run of the DAG."""
    parser.add_argument("dag", metavar="DAG", type=_name, help="DAG id")
    named = "run id, logical date, or run key as the journal has it"
    if all_runs:
        parser.add_argument("run", metavar="RUN", type=_name, nargs="?", help=f"{named}; default: every run")
    else:
        parser.add_argument("run", metavar="RUN", type=_name, help=named)
    parser.add_argument("--group", metavar="G", type=_name, help="task group; needed only where a run has several")


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a name, found an empty string")
    return text


def journal_of(args: argparse.Namespace, store: ObjectStore, writer: str) -> Journal:
    """The journal of the run that the arguments name. Raises `NothingRecorded`."""
    return Journal(store, find_run(store, args.dag, args.run, args.group), writer=writer)
