"""``airflow recovery``: what Airflow's command line loads of this provider, in every ``airflow`` process: light."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_recovery.airflow_compat import ActionCommand, GroupCommand, suppress_logs_and_warning
from airflow_recovery.console.main import DESCRIPTION, EPILOG, Subcommand, execute, leave, subcommands

if TYPE_CHECKING:
    from airflow_recovery.airflow_compat import CLICommand

log = logging.getLogger(__name__)


class _Arguments:
    """All arguments of one subcommand, in place of Airflow's own ``Arg`` for each: it asks for no more than this."""

    flags = ("arguments",)

    def __init__(self, subcommand: Subcommand) -> None:
        self._subcommand = subcommand

    def add_to_parser(self, parser: argparse.ArgumentParser) -> None:
        """Let the subcommand declare them.

        Airflow calls this for every command that anybody gives, outside its own guard against broken providers: one
        that can't be loaded is told of, and raises when it is used.
        """
        try:
            self._subcommand.load().add_arguments(parser)
        except Exception:
            log.exception("`airflow recovery %s` can't be used; every other command can.", self._subcommand.name)


def _action(subcommand: Subcommand) -> Callable[[argparse.Namespace], None]:
    def run(args: argparse.Namespace) -> None:
        from airflow_recovery.console.in_airflow import doctor_checks, open_in_airflow

        args.open_deployment = open_in_airflow
        args.doctor_checks = doctor_checks
        args.verbose = False  # asked for by the decorator
        run_quietly(args)

    @suppress_logs_and_warning
    def run_quietly(args: argparse.Namespace) -> None:
        # Airflow logs to standard output, which a script reads. It ignores what a command returns.
        leave(execute(subcommand, args))

    return run


def recovery_commands() -> list[CLICommand]:
    """What Airflow adds to its command line: the group ``recovery``, with each of `subcommands`."""
    commands: list[Any] = [
        ActionCommand(subcommand.name, subcommand.help, _action(subcommand), (_Arguments(subcommand),), epilog=EPILOG)  # type: ignore[arg-type]
        for subcommand in subcommands()
    ]
    return [GroupCommand("recovery", "Fine-grained recovery of Spark pipelines", commands, DESCRIPTION, EPILOG)]
