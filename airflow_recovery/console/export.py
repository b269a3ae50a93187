"""``export DAG RUN``: one file with all that a bug report needs, and no secrets. `show --bundle` reads it."""

from __future__ import annotations

import argparse
import re
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from airflow_recovery.console.arguments import add_run_arguments, journal_of
from airflow_recovery.console.bundle import write_bundle
from airflow_recovery.console.connect import add_connect_argument, evaluation_of
from airflow_recovery.console.deployment import Deployment, deployment_of
from airflow_recovery.console.doctor import results_for_bundle
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.plan import plan_document
from airflow_recovery.console.terminal import answer
from airflow_recovery.errors import RecoveryError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.story.run_view import view_run
from airflow_recovery.story.what_if import plan_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which run, and into which file."""
    add_run_arguments(parser)
    add_connect_argument(parser)
    parser.add_argument("--out", metavar="FILE", help="default: recovery-<DAG>-<run key>.zip here")
    parser.add_argument("--json", action="store_true", help="as JSON: what was written")


def run(args: argparse.Namespace) -> int:
    """The subcommand. A damaged journal is exported as it is; that no plan can be made of it is in the bundle."""
    deployment = deployment_of(args)
    journal = journal_of(args, deployment.journal, uuid.uuid4().hex)
    identity = journal.identity
    name = re.sub(r"[^\w.-]+", "_", f"recovery-{identity.dag_id}-{identity.run_key}")[:150]
    path = Path(args.out or f"{name}.zip")
    written = write_bundle(
        path,
        journal.store,
        deployment.results,
        identity,
        _plan(args, deployment, journal),
        doctor=results_for_bundle(args),
    )
    masked = f" In {len(written.altered)} of them something that looks like a secret was replaced."
    text = f"{path}: {written.objects:,} objects of the journal and of channels' logs, the plan, versions, doctor."
    text += (masked if written.altered else "") + f"\nRead it with: show --bundle {path}"
    answer(args, {"file": str(path), **asdict(written)}, text)
    return ExitCode.DONE


def _plan(args: argparse.Namespace, deployment: Deployment, journal: Journal) -> dict[str, Any] | str:
    try:
        view = view_run(journal)
        evaluation = evaluation_of(args, deployment, view)
        return plan_document(view, plan_run(view, evaluation))
    except RecoveryError as error:
        return f"{type(error).__name__}: {error}"
