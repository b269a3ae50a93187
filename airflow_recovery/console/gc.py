"""``gc``: delete the data that nobody will ever read, and say what was deleted, what was kept, and why."""

from __future__ import annotations

import argparse

from airflow_recovery.console.arguments import name
from airflow_recovery.console.connect import add_connect_argument, cache_server_of
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.journal.owner import check_results, own_results
from airflow_recovery.model.retention import Retention, parse_duration_s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is swept, and whether anything is deleted."""
    parser.add_argument("--dry-run", action="store_true", help="delete nothing, and say what would be")
    parser.add_argument(
        "--dag", metavar="DAG", type=name, help="the runs of this DAG only; default: all, and shared results"
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="also remove whole runs and shared results that have been silent for --older-than: this call closes them, "
        "and one a grace time later deletes them",
    )
    parser.add_argument("--older-than", metavar="TIME", help="for --purge: 30d, 2d12h, ...; at least 1d")
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --purge: also runs that have been silent for less than 1d, and those with an attempt that has been "
        "open for less than 7d, where Airflow can't be asked; never one that Airflow says has not ended",
    )
    parser.add_argument(
        "--retention", metavar="R", help="'7d', 'on-run-success', 'as-consumed 1h'; default: configured"
    )
    parser.add_argument("--grace", metavar="TIME", help="keep what nobody counts on for so long; default: configured")
    add_connect_argument(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. `ExitCode.NO_ANSWER` where a part could not be read and was left as it is."""
    from airflow_recovery.results.sweep import Sweeper
    from airflow_recovery.results.swept_run import DAY_S, OPEN_ATTEMPT_S, SweepOptions
    from airflow_recovery.story.run_lookup import check_dag

    if args.purge != (args.older_than is not None):
        raise ConfigurationError("Expected --purge and --older-than together, for example: --purge --older-than 30d.")
    if args.force and not args.purge:
        raise ConfigurationError("Expected --force with --purge only, found it alone: nothing else is held back.")
    older_than_s = parse_duration_s(args.older_than) if args.purge else None
    if older_than_s is not None and older_than_s < DAY_S and not args.force:
        raise ConfigurationError(
            f"Expected --older-than to be 1d or more, found {args.older_than}: a run at work may say nothing for "
            "hours, and it would be closed. Where none is at work, add --force."
        )
    deployment = deployment_of(args)
    if args.dag is not None:
        check_dag(deployment.journal, args.dag)
    options = SweepOptions(
        retention=Retention.parse(args.retention) if args.retention else deployment.retention,
        grace_s=parse_duration_s(args.grace) if args.grace else deployment.grace_s,
        dag_id=args.dag,
        purge_older_than_s=older_than_s,
        open_attempt_s=0 if args.force else OPEN_ATTEMPT_S,
        dry_run=args.dry_run,
    )
    # Of two journals over one place neither knows of the other's runs, whose data is the same keys.
    (check_results if args.dry_run else own_results)(deployment.journal, deployment.results)
    sweeper = Sweeper(
        deployment.journal,
        deployment.results,
        options,
        cache_server_of(args),
        tables=deployment.tables,
        is_live_run=deployment.is_live_run,
        live_run=deployment.live_run,
    )
    report = sweeper.sweep()
    answer(args, report, report.text())
    return ExitCode.NO_ANSWER if report.unread else ExitCode.DONE
