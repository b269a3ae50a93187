"""What every subcommand that looks at one run, or at the runs of a DAG, asks for."""

from __future__ import annotations

import argparse
import uuid

from airflow_recovery.console.bundle import BundleStore, journal_in
from airflow_recovery.console.deployment import Deployment, deployment_of
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.asked import AskedRun
from airflow_recovery.story.run_lookup import find_run
from airflow_recovery.story.run_view import RunView, view_run


def add_run_arguments(parser: argparse.ArgumentParser, *, all_runs: bool = False, bundle: bool = False) -> None:
    """DAG, RUN and --group. With ``all_runs``, RUN may be left out (`None`): every run of the DAG.

    With ``bundle``, a file that `export` has written may be named in place of both.
    """
    if bundle:
        parser.add_argument(
            "--bundle", metavar="FILE", help="in place of DAG and RUN: a file that `export` has written"
        )
    parser.add_argument("dag", metavar="DAG", type=name, nargs="?" if bundle else None, help="DAG id")
    named = "logical date, run key as the journal has it, or run id of one of its claims"
    if all_runs or bundle:
        parser.add_argument(
            "run", metavar="RUN", type=name, nargs="?", help=f"{named}; default: every run" if all_runs else named
        )
    else:
        parser.add_argument("run", metavar="RUN", type=name, help=named)
    parser.add_argument("--group", metavar="G", type=name, help="task group; needed only where a run has several")


def add_dag_arguments(parser: argparse.ArgumentParser) -> None:
    """DAG and --group."""
    parser.add_argument("dag", metavar="DAG", type=name, help="DAG id")
    parser.add_argument("--group", metavar="G", type=name, help="task group; needed only where runs have several")


def name(text: str) -> str:
    """An argparse type: a name that is not empty, as ``"$DAG"`` is where the variable is not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a name, found {text!r}: is the shell's variable set?")
    return text


def journal_of(args: argparse.Namespace, store: ObjectStore, writer: str) -> Journal:
    """The journal of the run that the arguments name. Raises `NothingRecorded`."""
    return Journal(store, find_run(store, args.dag, args.run, args.group), writer=writer)


def run_to_change(args: argparse.Namespace) -> tuple[Deployment, RunView]:
    """The deployment, and the run that the arguments name, read once. Raises as `journal_of`."""
    deployment = deployment_of(args)
    return deployment, view_run(journal_of(args, deployment.journal, uuid.uuid4().hex))


def run_to_read(args: argparse.Namespace) -> AskedRun:
    """The run, or the bundle, that the arguments name. Raises as `journal_of` and `BundleStore`."""
    if getattr(args, "bundle", None) is not None:
        if args.dag is not None:
            raise ConfigurationError("Expected DAG and RUN, or --bundle FILE, found both: a bundle holds one run.")
        bundle = BundleStore(args.bundle)
        results = bundle if bundle.no_channels is None else None
        return AskedRun(journal_in(bundle), results, bundle.no_channels or "")
    if args.run is None:
        raise ConfigurationError("Expected DAG and RUN, or --bundle FILE, found neither.")
    deployment = deployment_of(args)
    return AskedRun(journal_of(args, deployment.journal, "reader"), deployment.results)
