"""Escape untrusted text for the place that shows it, with one function for each place.

    one_line        a line of a log, or a part of a line on a terminal
    for_terminal    a whole answer on a terminal; its line ends stay
    for_markdown    a part of a pull request's comment, on GitHub or GitLab
    for_note        Airflow's note on a task instance, which Airflow's pages show as Markdown
    for_message     a message of a notifier: an e-mail in HTML, a message in Slack

Exception texts, names of files, a run's conf and user names can hold anything. The Recovery tab has its own function,
`shown` in ``api_server/static/dom.js``. JSON, metrics and OpenLineage have values, and nothing has to be escaped there.
"""

from __future__ import annotations

import re

MOST_MARKDOWN = 1_000
"""Characters of one part of a comment. GitHub refuses a comment of more than 65,536, and with it the whole answer."""

_NOT_PLAIN = re.compile(r"[^\n\t\x20-\x7e]")
_BREAK = "&#8203;"
"""A space without width, as HTML writes it. Behind an ``@``, no user is notified."""
_MARKUP = re.compile(
    r"(?P<escape>[\\`*_<>|\[\]~$])|(?P<entity>&)|"
    r"(?P<link>[@#]|:(?=//|[+-]1:|[\w+-]*[a-z][\w+-]*:)|(?<=www)\.|!(?=\d)|(?<=gh)-(?=\d))",
    re.IGNORECASE,
)
_BEGINS_BLOCK = re.compile(r"^(?=[-+=]|/\w+(?:\s|$))|^(\d+)(?=[.)](?:\s|$))")
_NOTE_MARKUP = re.compile(r"(?<=\])\(|(?<!\\)<")


def one_line(text: str) -> str:
    r"""Return ``text`` without line ends, and with each invisible character replaced by its escape.

    So no part of ``text`` looks like another line of a log or a table. Spaces beside each other become one space.
    """
    return for_terminal(" ".join(text.split()))


def for_terminal(text: str) -> str:
    r"""Return ``text`` with each invisible character replaced by its escape, such as ``\x1b``.

    A terminal would obey such characters: it would rename its window, erase lines, or write from right to left. Line
    ends and tabs stay.
    """
    return _NOT_PLAIN.sub(lambda match: _shown(match[0]), text)


def for_markdown(text: str) -> str:
    """Return ``text`` as one line of Markdown that shows it as it is: no markup, link, mention, emoji or command.

    At most `MOST_MARKDOWN` characters of it are shown.
    """
    line = one_line(text)
    line = line if len(line) <= MOST_MARKDOWN else f"{line[: MOST_MARKDOWN - 3]}..."
    return _BEGINS_BLOCK.sub(r"\1\\", _MARKUP.sub(_escaped, line))


def for_note(text: str) -> str:
    """Return ``text`` as one line in which Airflow's pages show no link under another name, no image and no HTML.

    Other markup stays, since notes are read as plain text as well. Escaping twice gives the same text.
    """
    return _NOTE_MARKUP.sub(r"\\\g<0>", one_line(text))


def for_message(text: str) -> str:
    """Return ``text`` as one line for HTML and for Slack: ``<!channel>`` notifies nobody, and no tag is a tag."""
    return one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escaped(match: re.Match[str]) -> str:
    if match["escape"]:
        return f"\\{match[0]}"
    return "&amp;" if match["entity"] else f"{match[0]}{_BREAK}"


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
