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


@contextmanager
def printable_output() -> Iterator[None]:
    """All that is printed meanwhile goes through `printable`."""
    stream: Any = _Printable(sys.stdout)
    with redirect_stdout(stream):
        yield


class _Printable:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
