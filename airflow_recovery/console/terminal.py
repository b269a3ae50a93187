"""What reaches a terminal: text that shows itself, whatever a journal, a store's answer or an error text holds."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

_NOT_PLAIN = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str) -> str:
    r"""``text`` with every character that shows nothing as its escape: ``\x1b`` for one that begins a command.

    A terminal obeys those: it would rename its window, rub lines out, or write from right to left. Line ends and tabs
    stay.
    """
    return _NOT_PLAIN.sub(lambda match: _shown(match[0]), text)


def output(text: str, *, flush: bool = False) -> None:
    """Print a command's answer, as `printable` text. Standard output has nothing else: see `answers_only`."""
    print(printable(text), file=getattr(sys.stdout, "answers", sys.stdout), flush=flush)


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
    """Standard output, for all that is no answer: it is printed on standard error, as `printable` text."""

    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def write(self, text: str) -> int:
        sys.stderr.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
