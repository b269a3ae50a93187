"""The result of a check, as a value and as the line that is printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum


class Status(str, Enum):
    """Whether what was checked is in order."""

    OK = "ok"
    WARNING = "warning"
    """It works; something else is recommended."""
    NOT_CHECKED = "not checked"
    """It can't be seen from here; nothing is known to be wrong."""
    WRONG = "wrong"


@dataclass(frozen=True)
class CheckResult:
    """One line. ``found`` says what there is; where that is wrong, ``expected`` and ``next_step`` say the rest.

    ``expected`` of a warning is what is recommended.
    """

    check: str
    status: Status
    found: str
    expected: str = ""
    next_step: str = ""

    def text(self) -> str:
        """The line for people, without the status."""
        if self.status is Status.OK:
            text = self.found
        elif self.status is Status.NOT_CHECKED:
            text = f"not checked: {_sentence(self.found)}"
        elif self.status is Status.WARNING:
            text = f"recommended {self.expected}, found {_sentence(self.found)}"
        else:
            text = f"expected {self.expected}, found {_sentence(self.found)}"
        return " ".join(f"{self.check}: {text} {self.next_step}".split())

    def to_json(self) -> dict[str, str]:
        """The fields as JSON values, which ``airflow recovery doctor --json`` prints."""
        return {**asdict(self), "status": self.status.value}


def ok(check: str, text: str) -> CheckResult:
    """A result that is in order; ``text`` says what was found."""
    return CheckResult(check, Status.OK, text)


def wrong(check: str, *, expected: str, found: object, next_step: str) -> CheckResult:
    """Something that will fail. ``found`` may be the error that was raised."""
    return CheckResult(check, Status.WRONG, _one_line(found), expected, next_step)


def warning(check: str, *, recommended: str, found: object, next_step: str) -> CheckResult:
    """Something that works, and that costs time or money on a bad day."""
    return CheckResult(check, Status.WARNING, _one_line(found), recommended, next_step)


def not_checked(check: str, why: object, next_step: str = "") -> CheckResult:
    """A result for what can't be seen from here; ``why`` may be the error that was raised."""
    return CheckResult(check, Status.NOT_CHECKED, _one_line(why), next_step=next_step)


def is_wrong(results: Iterable[CheckResult]) -> bool:
    """Whether any of the results is `Status.WRONG`."""
    return any(result.status is Status.WRONG for result in results)


def summary(results: Iterable[CheckResult]) -> str:
    """How many results have which status: ``9 ok, 0 warning, 1 not checked, 2 wrong.``"""
    statuses = [result.status for result in results]
    return ", ".join(f"{statuses.count(status)} {status.value}" for status in Status) + "."


def _one_line(found: object) -> str:
    # KeyError, of which some errors of ours are, quotes its message.
    text = str(found.args[0]) if isinstance(found, Exception) and found.args else str(found)
    return " ".join(text.split()) or repr(found)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
