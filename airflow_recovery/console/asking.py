"""The command of a question (`airflow_recovery.story.question`)."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from airflow_recovery.console.arguments import add_dag_arguments, add_run_arguments, run_to_read
from airflow_recovery.console.deployment import deployment_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.planning.plan_text import cut, table
from airflow_recovery.story.asked import AskedDag, AskedRun
from airflow_recovery.story.question import Argument, Question
from airflow_recovery.story.run_view import RunView, view_run


class QuestionCommand:
    """The command of one question. It has ``add_arguments`` and ``run``, like the module of any other command."""

    def __init__(self, question: Question) -> None:
        self._question = question

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the DAG, the run, the arguments of the question and ``--json``."""
        shape = self._question.shape
        if shape.reads is AskedDag:
            add_dag_arguments(parser)
        else:
            add_run_arguments(parser, bundle=not any(argument.is_required for argument in shape.arguments))
        for argument in shape.arguments:
            _add(parser, argument)
        parser.add_argument("--json", action="store_true", help="as JSON")

    def run(self, args: argparse.Namespace) -> int:
        """Ask the question and print the answer. Raises the errors of the question's function."""
        shape, header = self._question.shape, ""
        asked: AskedDag | AskedRun | RunView
        if shape.reads is AskedDag:
            asked = AskedDag(deployment_of(args).journal, args.dag, args.group)
        else:
            asked = run_to_read(args)
            if shape.reads is RunView:
                asked = view_run(asked.journal)
                header = f"{asked.header()}\n\n"
        found = self._question.ask(asked, {each.parameter: getattr(args, each.name) for each in shape.arguments})
        answer(args, found, header + text_of(found))
        return ExitCode.DONE


def text_of(found: Any) -> str:
    """Return the text that the response class has; without one, a line for each value and a table for each list."""
    if hasattr(found, "text"):
        return str(found.text())
    lines, tables = [], []
    for name, value in asdict(found).items():
        if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            heads = [head.replace("_", " ") for head in value[0]]
            tables.append(f"{_words(name)}:\n{table(heads, [list(map(_cell, row.values())) for row in value])}")
        else:
            lines.append(f"{_words(name)}: {_cell(value) or 'none'}")
    return "\n\n".join(["\n".join(lines), *tables] if lines else tables)


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return cut(", ".join(map(_cell, value)))
    return "" if value is None else f"{value:.1f}" if isinstance(value, float) else cut(str(value))


def _add(parser: argparse.ArgumentParser, argument: Argument) -> None:
    """A required argument is a positional one, a `bool` is a flag."""
    given, options = argument.given, dict[str, Any](help=argument.given.help)
    if argument.kind is bool:
        options["action"] = "store_true"
    else:
        options |= {"metavar": given.metavar or argument.name.upper(), "type": argument.kind}
        options |= {"choices": given.choices} if given.choices else {}
    if argument.is_required:
        parser.add_argument(argument.name, **options)
    else:
        parser.add_argument(f"--{argument.name.replace('_', '-')}", default=argument.default, **options)
