"""The subcommands, and the parser for ``python -m airflow_recovery``. Imports nothing heavy, and never Airflow."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from airflow_recovery.console.exit_codes import EXIT_CODES, ExitCode, exit_code_of
from airflow_recovery.console.terminal import answers_only
from airflow_recovery.doctor.checking import CHECK_THREAD
from airflow_recovery.errors import ConfigurationError, RecoveryError
from airflow_recovery.escaping import for_terminal
from airflow_recovery.story.question import QUESTIONS, Question

DESCRIPTION = "Fine-grained recovery of Spark pipelines: what a run did, what would run again, and why."
EPILOG = "exit codes: " + "; ".join(f"{code.value} {code.meaning}" for code in EXIT_CODES)


@dataclass(frozen=True)
class Subcommand:
    """One subcommand: its name, one line of help, and the module that has ``add_arguments`` and ``run``.

    Or the ``question`` that it asks, in place of a module.
    """

    name: str
    help: str
    module: str = ""
    question: Question | None = None

    def load(self) -> Any:
        """What has ``add_arguments`` and ``run``, imported when the subcommand is used."""
        if self.question is None:
            return import_module(self.module)
        from airflow_recovery.console.asking import QuestionCommand

        return QuestionCommand(self.question)


_COMMANDS = (
    Subcommand("plan", "what would run, what is kept, and why", "airflow_recovery.console.plan"),
    Subcommand("show", "what a run did: vertices, attempts, results", "airflow_recovery.console.show"),
    Subcommand("restart", "run regions again: the plan, and its application", "airflow_recovery.console.restart"),
    Subcommand("rebuild", "set what has finished to success in a re-created run", "airflow_recovery.console.rebuild"),
    Subcommand("confirm", "go on with a commit in doubt: its old process is dead", "airflow_recovery.console.confirm"),
    Subcommand("abandon", "give up a commit that its target refuses", "airflow_recovery.console.abandon"),
    Subcommand("adopt", "a renamed task or DAG owns its rows in targets", "airflow_recovery.console.adopt"),
    Subcommand("verify", "check the invariants I1 to I15 of runs, independently", "airflow_recovery.console.verify"),
    Subcommand("export", "one file for a bug report: journal, plan, versions", "airflow_recovery.console.export"),
    Subcommand("release", "let the data of one result go now", "airflow_recovery.console.release"),
    Subcommand("pin", "keep the data of one result, whatever the policy says", "airflow_recovery.console.pin"),
    Subcommand("withdraw", "take a published result from other DAGs", "airflow_recovery.console.withdraw"),
    Subcommand("doctor", "whether what is installed and configured here will work", "airflow_recovery.console.doctor"),
    Subcommand("impact", "what a deploy of other code makes run again", "airflow_recovery.console.impact"),
    Subcommand("gc", "delete what nobody will read any more, and say what and why", "airflow_recovery.console.gc"),
)


def subcommands() -> tuple[Subcommand, ...]:
    """Return every subcommand, those of questions last."""
    return (*_COMMANDS, *(Subcommand(each.name, each.help, question=each) for each in QUESTIONS.values()))


def execute(subcommand: Subcommand, args: argparse.Namespace) -> int:
    """Run it. An error of ours is one line on standard error and an exit code, never a traceback."""
    from airflow_recovery.journal.journal import without_garbage_collection

    try:
        _check_values(args)
        with answers_only(), without_garbage_collection():
            code = int(subcommand.load().run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever reads has seen enough. Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except RecoveryError as error:
        # KeyError quotes its message. Further lines of it begin like no message of another command.
        text = f"error: {error.args[0] if error.args else error}".replace("\n", "\n  ")
        print(for_terminal(text), file=sys.stderr)
        return exit_code_of(error)


def leave(code: int, *, at_once: bool = False) -> NoReturn:
    """End this process. A check that was left behind may be held by a server, and must not hold the process.

    ``at_once``: nothing of this process wants to be called at its end, and no value need be taken apart.
    """
    if at_once or any(thread.name.startswith(CHECK_THREAD) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        # Spark's and Amazon's clients have threads of their own, for which Python waits at its end.
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m airflow_recovery``. Returns the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    known = subcommands()
    named = next((word for word in words if word in [subcommand.name for subcommand in known]), None)
    parser = argparse.ArgumentParser(prog="python -m airflow_recovery", description=DESCRIPTION, epilog=EPILOG)
    parsers = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for subcommand in known:
        own = parsers.add_parser(subcommand.name, help=subcommand.help, description=subcommand.help, epilog=EPILOG)
        if subcommand.name == named:  # the others' modules take half a second
            from airflow_recovery.console.deployment import add_standalone_arguments

            subcommand.load().add_arguments(own)
            add_standalone_arguments(own)
        own.set_defaults(chosen=subcommand)
    args = parser.parse_args(words)
    return execute(args.chosen, args)


def _check_values(args: argparse.Namespace) -> None:
    """Raise `ConfigurationError` for an option whose value is empty, or bytes that are no text.

    An empty one must never mean the same as no option at all: ``gc --dag "$DAG"`` with a variable that is not set would
    sweep every DAG.
    """
    for option, value in vars(args).items():
        name = option.strip("_").replace("_", "-")
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.strip():
                raise ConfigurationError(
                    f"Expected a value for {name}, found an empty text: is the shell's variable set? Leave the option "
                    "out if it is not meant."
                )
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise ConfigurationError(f"Expected a text in UTF-8 for {name}, found {text!r}: write it in UTF-8.")
