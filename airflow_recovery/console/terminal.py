"""What reaches a terminal: text that shows itself, whatever a journal, a store's answer or an error text holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import Any

from airflow_recovery.escaping import for_terminal


def output(text: str, *, flush: bool = False) -> None:
    """Print a command's answer, escaped for a terminal. Standard output has nothing else: see `answers_only`."""
    print(for_terminal(text), file=getattr(sys.stdout, "answers", sys.stdout), flush=flush)


def answer(args: argparse.Namespace, document: Any, text: str) -> None:
    """Print ``text``, or with ``--json`` the document: plain values, and objects with ``to_json`` or of dataclasses."""
    output(json.dumps(document, indent=1, default=_plain) if args.json else text)


def _plain(value: Any) -> Any:
    return value.to_json() if hasattr(value, "to_json") else asdict(value)


@contextmanager
def answers_only() -> Iterator[None]:
    """What `output` prints goes to standard output, and what anybody else prints there goes to standard error.

    A script reads the answer of ``--json``. Airflow logs to standard output while it is imported, and a DAG file or a
    client may print.
    """
    stream: Any = _NotTheAnswer(sys.stdout)
    with redirect_stdout(stream):
        yield


class _NotTheAnswer:
    """Standard output, for all that is no answer: it is printed on standard error, escaped."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def write(self, text: str) -> int:
        sys.stderr.write(for_terminal(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)
